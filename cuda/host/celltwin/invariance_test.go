package celltwin

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// warmed returns the parameters of a cell with which its agents vote early, about behind a number of
// observations.
func warmed(cell string, observations float64) map[string]float64 {
	if cell == "region" {
		return map[string]float64{"learn_for": max(observations, 40)}
	}
	return map[string]float64{"warmup": observations}
}

// arrival is one observation of one group.
type arrival struct {
	slot     int
	time     int64
	features []float32
}

// randomEvents are n observations of random groups: a daily curve with noise, level shifts and
// spikes, at times that mostly advance.
func randomEvents(rng *rand.Rand, n, slots, features int) []arrival {
	events, at, level := make([]arrival, n), int64(1_400_000_000e9), 0.0
	for i := range events {
		at += rng.Int64N(1e12) - 1e11
		if rng.IntN(200) == 0 {
			level = rng.NormFloat64() * 10
		}
		x := make([]float32, features)
		for f := range x {
			x[f] = float32(level + 3*math.Sin(float64(at)/1e9*2*math.Pi/86400) + rng.NormFloat64())
			if rng.IntN(100) == 0 {
				x[f] *= float32(math.Exp(rng.NormFloat64() * 5))
			}
		}
		events[i] = arrival{rng.IntN(slots), at, x}
	}
	return events
}

// play feeds the events to the swarm in batches that end at the cuts, and returns every arrival's
// outputs by its index.
func (s *swarm) play(events []arrival, cuts []int) columns {
	n, c := len(events), len(s.bound.Cell.Candidates)
	all := columns{make([]float32, n), make([]uint32, n), make([]uint32, n*c), make([]uint32, n), make([]uint64, n)}
	from := 0
	for _, to := range append(slices.Clone(cuts), n) {
		var runs []kernels.Run
		var times []int64
		var features []float32
		var index []int
		for slot := range s.layout.Slots {
			first := len(times)
			for i := from; i < to; i++ {
				if e := events[i]; e.slot == slot {
					times, features, index = append(times, e.time), append(features, e.features...), append(index, i)
				}
			}
			if len(times) > first {
				runs = append(runs, kernels.Run{
					Slot: uint32(slot), First: uint32(first),
					Count: uint32(len(times) - first),
				})
			}
		}
		if len(times) > 0 {
			got := s.observe(runs, times, features)
			for k, i := range index {
				all.scores[i], all.decisions[i], all.leaders[i], all.rounds[i] = got.scores[k], got.decisions[k],
					got.leaders[k], got.rounds[k]
				copy(all.counts[i*c:], got.counts[k*c:][:c])
			}
		}
		from = to
	}
	return all
}

func (c columns) equal(d columns) bool {
	return bytes.Equal(device.Bytes(c.scores), device.Bytes(d.scores)) && slices.Equal(c.decisions, d.decisions) &&
		slices.Equal(c.counts, d.counts) && slices.Equal(c.leaders, d.leaders) && slices.Equal(c.rounds, d.rounds)
}

// TestBatchesDoNotMatter cuts the same input into random batches, down to one observation each:
// outputs and pages must be the same to the bit.
func TestBatchesDoNotMatter(t *testing.T) {
	for _, cell := range cells.Names() {
		for _, features := range []int{1, 3} {
			for _, agents := range []int{1, 33} {
				t.Run(fmt.Sprintf("%s/I=%d/A=%d", cell, features, agents), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(features), uint64(agents)))
					b := bind(t, cell, warmed(cell, 30), agents, features, cells.Weighted)
					const pageBytes = 1 << 16
					whole := newSwarm(t, b, pageBytes)
					slots := min(whole.layout.Slots, 3)
					events := randomEvents(rng, testkit.Of(1500, 600), slots, features)
					want := whole.play(events, nil)
					for trial := range 4 {
						var cuts []int
						for i := range events {
							if trial == 0 || rng.IntN(1+20*trial) == 0 {
								cuts = append(cuts, i)
							}
						}
						cut := newSwarm(t, b, pageBytes)
						if got := cut.play(events, cuts); !got.equal(want) {
							t.Errorf("%d batches: other outputs than in one", len(cuts)+1)
						}
						if !bytes.Equal(cut.page, whole.page) {
							t.Errorf("%d batches: another page than in one", len(cuts)+1)
						}
					}
				})
			}
		}
	}
}

// TestNeighboursDoNotMatter runs a series alone and together with others: its outputs must be the
// same.
func TestNeighboursDoNotMatter(t *testing.T) {
	for _, cell := range cells.Names() {
		rng := rand.New(rand.NewPCG(5, 6))
		b := bind(t, cell, warmed(cell, 30), 16, 1, cells.Weighted)
		crowd := newSwarm(t, b, 1<<16)
		events := randomEvents(rng, 2000, crowd.layout.Slots, 1)
		all := crowd.play(events, nil)
		var alone []arrival
		var scores []float32
		last := crowd.layout.Slots - 1
		for i, e := range events {
			if e.slot == last {
				alone, scores = append(alone, arrival{0, e.time, e.features}), append(scores, all.scores[i])
			}
		}
		if got := newSwarm(t, b, 1<<16).play(alone, nil); !slices.Equal(got.scores, scores) {
			t.Errorf("%s: the last slot of %d scores otherwise than alone", cell, crowd.layout.Slots)
		}
	}
}
