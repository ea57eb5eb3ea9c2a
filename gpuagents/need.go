package gpuagents

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// needOf is how many bytes the pages of a swarm's shard take where there is room for all; 0 of a record that cannot be read.
func needOf(s jobs.Swarm) int64 {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 0
	}
	return PageBytes(spec, s.Groups)
}

// PageBytes returns how many bytes the pages of so many groups take; 0 of a spec that cannot be laid out.
func PageBytes(spec *swarm.Spec, groups int) int64 {
	var layout kernels.Layout
	if spec.ByAgent() {
		cell, err := spec.Address()
		if err != nil {
			return 0
		}
		layout, err = cell.Layout(int(spec.PageSize))
		if err != nil {
			return 0
		}
	} else {
		bound, err := spec.Bind()
		if err != nil {
			return 0
		}
		layout, err = bound.Layout(int(spec.PageSize))
		if err != nil {
			return 0
		}
	}
	return int64((groups+layout.Slots-1)/layout.Slots) * int64(layout.PageBytes)
}
