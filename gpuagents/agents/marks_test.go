package agents

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// spoil changes some of the observations of n agents: of every "of" about one gets the id of no
// agent, one the largest id, one an infinite input, and repeats get the id of another observation.
func spoil(r *rand.Rand, n uint32, ids []uint32, inputs []float32, of, repeats int) {
	features := len(inputs) / len(ids)
	for i := range ids {
		switch k := r.IntN(of); {
		case k == 0:
			ids[i] = n + r.Uint32N(1000)
		case k == 1:
			ids[i] = math.MaxUint32
		case k == 2:
			inputs[i*features+r.IntN(features)] = float32(math.Inf(1))
		case k < 3+repeats:
			ids[i] = ids[r.IntN(len(ids))]
		}
	}
}

// TestRankedOnDevice: batches whose ids the device examines have the same outcomes, reports and
// state as batches that a Ranking examines, with repeated agents, ids of no agent and refused
// inputs. A Ranking is used only for batches with a repeated agent.
func TestRankedOnDevice(t *testing.T) {
	const n, features = 20 * 300, 3
	cell, o := address(t, "gru", nil, 20, features, 4), Options{PageBytes: 64 << 10}
	a, other := makeAgents(t, openNamed(t, *opentest.Name), cell, n, o), makeAgents(t, openNamed(t, "host"), cell, n, o)
	testkit.NoError(t, "a.StageAll", a.StageAll())
	if !a.RanksOnDevice(1) || other.RanksOnDevice(1<<20) {
		t.Fatal("the wrong agents rank on the device")
	}
	r := rand.New(rand.NewPCG(11, 12))
	for round := range 12 {
		if round == 8 {
			for _, a := range []*Agents{a, other} {
				testkit.NoError(t, "a.Reset", a.Reset(t.Context()))
			}
		}
		ids, inputs := randomObservations(r, n, 1+r.IntN(n/4), features)
		repeats := round%3 == 2
		if spoil(r, n, ids, inputs, 50, map[bool]int{true: 1}[repeats]); repeats {
			ids[0] = ids[len(ids)-1]
		}
		a.ranking = nil
		got, err := a.Observe(t.Context(), ids, inputs)
		testkit.NoError(t, "a.Observe", err)
		want, err := other.Observe(t.Context(), ids, inputs)
		testkit.NoError(t, "other.Observe", err)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: the outcomes differ from a Ranking", round)
		}
		if slices.Sort(ids); (a.ranking != nil) != repeated(ids, n) {
			t.Fatalf("round %d: the host has looked at the batch: %v", round, a.ranking != nil)
		}
		if !bytes.Equal(pagesOf(t, a, a.pages), pagesOf(t, other, other.pages)) {
			t.Fatalf("round %d: the state differs from a Ranking", round)
		}
		if !slices.Equal(a.memory.Dirty(), other.memory.Dirty()) ||
			!slices.Equal(a.memory.Made(), other.memory.Made()) {
			t.Fatalf("round %d: other pages are made or changed", round)
		}
	}
}

// repeated reports whether one of n agents is twice in sorted ids.
func repeated(ids []uint32, n uint32) bool {
	for i := 1; i < len(ids) && ids[i] < n; i++ {
		if ids[i] == ids[i-1] {
			return true
		}
	}
	return false
}

// TestRunRows: kernels and package fusion agree on the length of runs.
func TestRunRows(t *testing.T) {
	if swarmset.RunRows != fusion.RunRows {
		t.Errorf("%d rows a run, package fusion has %d", swarmset.RunRows, fusion.RunRows)
	}
}

// TestDistinct: distinct finds ids that are there twice, also 0 and with many on the same slot, and
// is ready for the next ids.
func TestDistinct(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var d distinct
	for range 500 {
		ids, seen, want := make([]uint32, r.IntN(200)), map[uint32]bool{}, true
		for i := range ids {
			ids[i] = r.Uint32N(20_000)
			want = want && !seen[ids[i]]
			seen[ids[i]] = true
		}
		if got := d.all(ids); got != want {
			t.Fatalf("distinct.all(%v) = %v, want %v", ids, got, want)
		}
	}
	if !d.all([]uint32{math.MaxUint32, 0, math.MaxUint32}) || d.all([]uint32{0, 5, 0}) {
		t.Error("ids at the ends of the range are mistaken")
	}
	if d.all(make([]uint32, mostDistinct+1)) {
		t.Error("a batch that is too large was looked at")
	}
}
