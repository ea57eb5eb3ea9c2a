package shard

import (
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Need returns how many bytes the pages of a shard take if there is room for all; 0 for a record
// that cannot be read.
func Need(s swarms.Swarm) int64 {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 0
	}
	return spec.PageBytes(s.Groups)
}
