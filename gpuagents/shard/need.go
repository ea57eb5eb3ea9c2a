package shard

import (
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// needOf is how many bytes the pages of a swarm's shard take where there is room for all; 0 of a record that cannot be read.
func Need(s jobs.Swarm) int64 {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 0
	}
	return spec.PageBytes(s.Groups)
}
