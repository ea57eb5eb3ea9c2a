package state

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// DevicesOf returns the names of the devices that make the ticks of a state; nil: one does.
func DevicesOf(s State) (names []string) {
	n, is := s.(*neighbourState)
	if !is {
		return nil
	}
	shared, is := n.topology.(interface{ Devices() []device.Device })
	if !is || len(shared.Devices()) < 2 {
		return nil
	}
	for _, d := range shared.Devices() {
		names = append(names, d.Properties().Name)
	}
	return names
}

// New makes the state of a shard on a device, with pages that take the budget b. The memory of the
// state is not open yet. The caller closes the state before the device. A *jobs.Error says what is
// wrong with the record of the swarm, or that there is no room for it here. peers are further
// devices that share ticks, for swarms with devices; see field.Peer.
func New(dev device.Device, b *pages.Budget, spec *swarm.Spec, p GroupRange, peers ...field.Peer) (State, error) {
	if err := p.check(spec); err != nil {
		return nil, err
	}
	keep := spec.Residency == swarm.ResidencyGPU
	if keep {
		b = b.AllOnDevice()
	}
	t := spec.Topology()
	s, err := libraries[t.Name].open(opening{dev, b, spec, p, peers})
	if err != nil {
		return nil, err
	}
	if keep || t.Neighbours {
		s.Memory().Claim()
	}
	return s, nil
}
