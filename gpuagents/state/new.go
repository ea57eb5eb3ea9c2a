package state

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// New makes the state of a shard on a device, with pages that take the budget b. The memory of the
// state is not open yet. The caller closes the state before the device. A *jobs.Error says what is
// wrong with the record of the swarm, or that there is no room for it here.
func New(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange) (State, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	if spec.Residency == swarm.ResidencyGPU {
		b = b.AllOnDevice()
	}
	if spec.HasNeighbours() {
		s, err := newPlacedState(dev, b, spec, p)
		if err != nil {
			return nil, err
		}
		s.place.Memory().Claim()
		return s, nil
	}
	if spec.ByAgent() {
		s, err := newAgentState(dev, b, spec, p)
		if err != nil {
			return nil, err
		}
		if spec.Residency == swarm.ResidencyGPU {
			s.memory.Claim()
		}
		return s, nil
	}
	s, err := newGroupState(dev, b, spec, p)
	if err != nil {
		return nil, err
	}
	if spec.Residency == swarm.ResidencyGPU {
		s.memory.Claim()
	}
	return s, nil
}
