package graph

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// openTypes puts the numbers of the two types of neurons on the device; see graphset.TypeWords.
func (s *spiking) openTypes() error {
	var types []float32
	for _, of := range []string{"", "inhibitory_"} {
		for _, name := range []string{"a", "b", "c", "d", "noise"} {
			types = append(types, float32(s.cell.Value(of+name)))
		}
	}
	if err := s.alloc(&s.types, int64(4*len(types))); err != nil {
		return err
	}
	return s.types.Write(0, device.Bytes(types))
}

// stepTypes is step for neurons of Izhikevich.
func (s *spiking) stepTypes(i int, tick uint32, count bool) error {
	noisy := s.cell.Value("noise") != 0 || s.cell.Value("inhibitory_noise") != 0
	return s.stream.Launch(s.tick, s.lanes(), append(s.page(), device.Uint32(s.potential),
		device.Uint32(s.layout.Offsets[cells.IzhikevichRecovery]), device.Uint32(s.current), s.inputs(),
		device.Ptr(s.active[1-i%2]), device.Ptr(s.counts), device.Uint32(uint32(1-i%2)), device.Ptr(s.types),
		device.Uint32(s.exciting()), bit(noisy), device.Uint32(tick), device.Uint32(uint32(s.o.Seed)),
		device.Uint32(uint32(s.o.Seed>>32)), bit(count), device.Ptr(s.tally))...)
}

// first makes the potentials of neurons those at first, if there was no tick: pages have zeros then.
func (s *spiking) first(ctx context.Context, ids []uint32, potentials []float32) error {
	ticks, err := s.Ticks(ctx)
	if err != nil || ticks > 0 {
		return err
	}
	for i, id := range ids {
		if potentials[i] = float32(s.cell.Value("c")); id >= s.exciting() {
			potentials[i] = float32(s.cell.Value("inhibitory_c"))
		}
	}
	return nil
}
