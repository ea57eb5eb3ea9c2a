package celltwin

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// TestLatest holds every cell under every policy to one that is given only what is not dropped: the
// same outputs and the same pages, but for the latest time, which is the latest time of its
// observations. What is dropped is answered with the reason.
func TestLatest(t *testing.T) {
	for _, cell := range cells.Names() {
		for drop := range kernels.Drop(4) {
			t.Run(fmt.Sprintf("%s/%d", cell, drop), func(t *testing.T) { latestEqualsFiltered(t, cell, drop) })
		}
	}
}

func latestEqualsFiltered(t *testing.T, cell string, drop kernels.Drop) {
	const agents, features, n = 7, 2, 400
	b := bind(t, cell, warmed(cell, 20), agents, features, cells.Weighted)
	b.Drop = drop
	whole, filtered := newSwarm(t, b, 1<<18), newSwarm(t, b, 1<<18)
	rng := rand.New(rand.NewPCG(uint64(drop), 21))
	var times, keptTimes []int64
	var x, keptX []float32
	var want []uint32 // by observation: the decision on one that is dropped, or 0
	newest := int64(0)
	for i, e := range randomEvents(rng, n, 1, features) {
		at := e.time - 2e18 // before 1970
		switch k := rng.IntN(4); {
		case i == 0:
		case k == 0:
			at = newest
		case k == 1:
			at = newest - 1 - rng.Int64N(1e12)
		}
		decision := uint32(0)
		switch {
		case i > 0 && at < newest && drop&kernels.DropLate != 0:
			decision = kernels.DroppedLate
		case i > 0 && at == newest && drop&kernels.DropDuplicate != 0:
			decision = kernels.DroppedDuplicate
		default:
			keptTimes, keptX = append(keptTimes, at), append(keptX, e.features...)
			if i == 0 || at > newest {
				newest = at
			}
		}
		times, x, want = append(times, at), append(x, e.features...), append(want, decision)
	}
	cut := rng.IntN(n)
	got := whole.series(times[:cut], x[:cut*features])
	got = got.and(whole.series(times[cut:], x[cut*features:]))
	kept := filtered.series(keptTimes, keptX)
	at, seen := 0, uint64(0)
	for i, decision := range want {
		counts := got.counts[3*i:][:3]
		if decision != 0 {
			if got.decisions[i] != decision || got.scores[i] != 0 || got.leaders[i] != 0 || got.rounds[i] != seen ||
				!allZero(counts) {
				t.Fatalf("observation %d: decision %#x, score %v, leader %d, round %d, counts %v; want %#x in round "+
					"%d", i,
					got.decisions[i], got.scores[i], got.leaders[i], got.rounds[i], counts, decision, seen)
			}
			continue
		}
		seen++
		if got.decisions[i] != kept.decisions[at] || got.scores[i] != kept.scores[at] ||
			got.leaders[i] != kept.leaders[at] || got.rounds[i] != seen {
			t.Fatalf("observation %d differs without the dropped observations", i)
		}
		at++
	}
	if drop != 0 && (at == n || at < n/4) {
		t.Errorf("%d of %d were applied: the comparison proves little", at, n)
	}
	if !bytes.Equal(whole.page, filtered.page) {
		t.Error("the page differs without the dropped observations")
	}
	if latest := whole.values(kernels.VarLatest.Name); drop == 0 && latest != nil || drop != 0 && latest == nil {
		t.Errorf("the latest time in the state: %v", latest)
	}
}

// and is the outputs of two batches, one behind the other.
func (c columns) and(d columns) columns {
	return columns{
		append(c.scores, d.scores...), append(c.decisions, d.decisions...), append(c.counts, d.counts...),
		append(c.leaders, d.leaders...), append(c.rounds, d.rounds...),
	}
}

func allZero(v []uint32) bool {
	for _, n := range v {
		if n != 0 {
			return false
		}
	}
	return true
}
