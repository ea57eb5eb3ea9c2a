package graph

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// typeNumbers returns the numbers of the two types of neurons; see graphset.TypeWords.
func (s *spiking) typeNumbers() (types []float32) {
	for _, of := range []string{"", "inhibitory_"} {
		for _, name := range []string{"a", "b", "c", "d", "noise"} {
			types = append(types, float32(s.cell.Value(of+name)))
		}
	}
	return types
}

func (s *spiking) openTypes() error {
	types := s.typeNumbers()
	if err := s.alloc(&s.types, int64(4*len(types))); err != nil {
		return err
	}
	return s.types.Write(0, device.Bytes(types))
}

// first replaces potentials by the initial ones before the first tick, when pages have zeros.
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
