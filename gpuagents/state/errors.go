package state

import (
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// unknownKind refuses an entry of a kind that a State does not take.
func unknownKind(e swarms.Entry) error {
	return jobs.Errorf(jobs.CodeInvalid, "kind %.100q: this swarm does not take it", e.Kind)
}
