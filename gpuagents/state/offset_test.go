package state

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// TestLargeBase: entries that are applied together, and over several calls, decide on a base of
// 1e10 as on a base of 0, from the values of the log in 64 bits.
func TestLargeBase(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	run := func(base float64) (scores []float32) {
		spec := customSpec(t, celltest.Leaky(20), 16, "weighted")
		spec.Cell = swarm.Cell{Kind: "leaky", Params: map[string]float64{"warmup": 20}}
		s, err := newGroupState(d, nil, spec, allOf(20))
		if err != nil {
			t.Fatalf("newGroupState: %v, want no error", err)
		}
		testkit.Close(t, s)
		r := rand.New(rand.NewPCG(5, 5))
		for range 4 {
			m := s.NewBatch()
			for range 3 {
				o := observations(r, 3, 40, 1)
				o.Value = make([]float64, o.Len())
				for i, f := range o.Features {
					o.Value[i] = base + math.Round(10*float64(f))
					o.Features[i] = float32(o.Value[i])
				}
				data, err := o.Pack()
				if err != nil {
					t.Fatalf("o.Pack: %v, want no error", err)
				}
				decoded, err := s.Decode(bytes.Clone(data))
				if err != nil {
					t.Fatalf("s.Decode: %v, want no error", err)
				}
				m.Add(decoded)
			}
			answers, err := m.Observe(t.Context())
			if err != nil {
				t.Fatalf("m.Observe: %v, want no error", err)
			}
			for _, a := range answers {
				scores = append(scores, a.Body.(*batch.Decisions).Score...)
			}
		}
		return scores
	}
	want, got := run(0), run(1e10)
	// The floor of a spread is a millionth of the level, which is above the offset.
	for i := range want {
		if math.Abs(float64(want[i]-got[i])) > 1e-3 {
			t.Fatalf("observation %d: score %v on a base of 1e10, %v on 0", i, got[i], want[i])
		}
	}
}
