package state

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// DevicesOf returns the names of the devices that make the ticks of a state; nil: one does.
func DevicesOf(s State) (names []string) {
	placed, is := s.(*placedState)
	if !is {
		return nil
	}
	if shared, is := placed.place.(interface{ Devices() []device.Device }); is {
		all := shared.Devices()
		if len(all) < 2 {
			return nil
		}
		for _, d := range all {
			names = append(names, d.Properties().Name)
		}
	}
	return names
}

// New makes the state of a shard on a device, with pages that take the budget b. The memory of the
// state is not open yet. The caller closes the state before the device. A *jobs.Error says what is
// wrong with the record of the swarm, or that there is no room for it here. members are further devices
// that share ticks, for swarms with devices; see team.Member.
func New(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange, members ...team.Member) (State, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	if spec.Residency == swarm.ResidencyGPU {
		b = b.AllOnDevice()
	}
	if spec.HasNeighbours() {
		s, err := newPlacedState(dev, b, spec, p, members)
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
