package state

import "github.com/exoswarm/exoswarm/jobs"

// unknownKind refuses an entry that a population has no use for.
func unknownKind(e jobs.Entry) error {
	return jobs.Errorf(jobs.CodeInvalid, "kind %.100q: this swarm does not take it", e.Kind)
}
