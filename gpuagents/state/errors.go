package state

import "github.com/exoswarm/exoswarm/jobs"

// unknownKind refuses an entry of a kind that a State does not take.
func unknownKind(e jobs.Entry) error {
	return jobs.Errorf(jobs.CodeInvalid, "kind %.100q: this swarm does not take it", e.Kind)
}
