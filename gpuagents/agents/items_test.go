package agents

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// obviousScore is the score of a unit's row in float64, from a table of items.
func obviousScore(table []uint32, items, class int, units []float32, item int32) float64 {
	numbers := device.Of[int16](device.Bytes(table[kernels.AgentItemsReadout(items):]))
	sum := int64(device.Of[int32](device.Bytes(table[kernels.AgentItemsBias:]))[item])
	for k, u := range units {
		x, w := int64(math.RoundToEven(float64(u)*(1<<kernels.AgentUnitBits))), int64(numbers[int(item)*class+k])
		low := func(v int64) int64 { return int64(int8(v)) }
		sum += (x*w - low(x)*low(w)) / 256
	}
	// The first coefficient of the logistic function is A0 by 2^(3e).
	e := math.Log2(float64(math.Float32frombits(table[0]))/float64(kernels.LogisticA0)) / 3
	return 1 / (1 + math.Exp(-float64(sum)/math.Exp2(e)))
}

// TestItems: agents with an embedding and items vote, decide and are as agents without both that
// get the rows as features, whose readout is the vote's; scores are of the units behind each step.
// They are the same bits through all ways of loading, in parts, one by one, and for few frames.
func TestItems(t *testing.T) {
	const n, size, width, rows, items, hidden = 20 * 60, 20, 3, 50, 70, 11
	for _, bf16 := range []float64{0, 1} {
		values := map[string]float64{"hidden": hidden, "bf16": bf16}
		plain := address(t, "gru", values, size, width, 2)
		with, err := plain.Embedding(rows)
		testkit.NoError(t, "Embedding", err)
		cell, err := with.Asking(items)
		testkit.NoError(t, "Asking", err)
		r := rand.New(rand.NewPCG(9, uint64(bf16)))
		table := randomTable(t, r, cell)
		class := kernels.AgentHidden(hidden)
		first, words := cell.ItemWords()

		d := openNamed(t, *opentest.Name)
		o := Options{PageBytes: 16 << 10, Weights: table}
		a, single := makeAgents(t, d, cell, n, o), makeAgents(t, openNamed(t, "host"), cell, n, o)
		o.PageMemory, o.HostPageMemory = 3*16<<10, 1<<30
		few := makeAgents(t, d, cell, n, o)
		other := makeAgents(t, openNamed(t, "host"), plain, n,
			Options{PageBytes: 16 << 10, Weights: table[:kernels.AgentGRUTable(class)]})
		surveyor := NewSurveyor(a)
		for round := range 18 {
			if round == 9 {
				testkit.NoError(t, "StageAll", a.StageAll())
			}
			ids, _ := randomObservations(r, n, 1+r.IntN(n/4), 1)
			numbers, asked := make([]float32, len(ids)), make([]int32, len(ids))
			for i := range ids {
				numbers[i], asked[i] = float32(r.IntN(rows)), r.Int32N(items+1)-1
			}
			if round%2 == 1 {
				spoil(r, n, ids, numbers, 30, 5)
			}
			ranked := Launches{Unknown: true}
			if round%3 == 0 {
				ranked = Launches{Survey: surveyor.Survey(ids)}
			}
			parts := &gpubatch.Splitter{Reduced: round%4 == 2}
			got, _, err := a.ObserveParts(t.Context(), parts, ids, numbers, asked, ranked)
			testkit.NoError(t, "ObserveParts", err)
			moved, _, err := few.ObserveParts(t.Context(), &gpubatch.Splitter{}, ids, numbers, asked,
				Launches{Unknown: true})
			testkit.NoError(t, "ObserveParts", err)
			want, err := other.Observe(t.Context(), ids, cell.LookUp(nil, numbers, table, 0))
			testkit.NoError(t, "Observe", err)
			for i, id := range ids {
				one, _, err := single.ObserveParts(t.Context(), &gpubatch.Splitter{}, []uint32{id}, numbers[i:i+1],
					asked[i:i+1], Launches{Unknown: true})
				testkit.NoError(t, "ObserveParts", err)
				want.Scores = append(want.Scores, one.Scores[0])
				if one.Votes[0] == kernels.AgentNoVote || asked[i] < 0 {
					if one.Scores[0] == one.Scores[0] {
						t.Fatalf("score %v of an observation without one, want NaN", one.Scores[0])
					}
					continue
				}
				s, err := single.AgentStates(t.Context(), []uint32{id})
				testkit.NoError(t, "AgentStates", err)
				score := obviousScore(table[first:first+words], items, class, s.State[:hidden], asked[i])
				if v := float64(one.Scores[0]); math.Abs(v-score) > 1e-4 {
					t.Fatalf("score %v, want %v", v, score)
				}
			}
			for name, o := range map[string]Outcome{"all pages": got, "few frames": moved} {
				if !slices.Equal(o.Votes, want.Votes) || !slices.Equal(o.Decisions, want.Decisions) {
					t.Fatalf("round %d, %s: other votes or decisions than agents without items", round, name)
				}
				if !reflect.DeepEqual(device.Bytes(o.Scores), device.Bytes(want.Scores)) {
					t.Fatalf("round %d, %s: other scores than one by one", round, name)
				}
			}
		}
		all := make([]uint32, n)
		for i := range all {
			all[i] = uint32(i)
		}
		states := func(a *Agents) []float32 {
			s, err := a.AgentStates(t.Context(), all)
			testkit.NoError(t, "AgentStates", err)
			return s.State
		}
		if want := states(other); !slices.Equal(states(a), want) || !slices.Equal(states(few), want) {
			t.Error("other states than agents without items")
		}
	}
}

// randomTable makes a weights table of random weights, with an embedding.
func randomTable(t testing.TB, r *rand.Rand, cell *cells.Addressed) []uint32 {
	t.Helper()
	H, I := int(cell.Value("hidden")), cell.Features
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	table, err := cell.Table(cells.GRUWeights{
		InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H), HiddenBias: draw(3 * H),
		Readout: draw(cell.Items * H), ReadoutBias: draw(cell.Items), Embed: draw(cell.Rows * I),
	})
	testkit.NoError(t, "Table", err)
	return table
}

// TestItemsRefused: numbers that are no rows are refused and counted, and items of a cell without
// items are an ErrInvalid.
func TestItemsRefused(t *testing.T) {
	with, err := address(t, "gru", nil, 4, 2, 2).Embedding(5)
	testkit.NoError(t, "Embedding", err)
	a := makeAgents(t, openNamed(t, *opentest.Name), with, 8, Options{Seed: 3})
	out, err := a.Observe(t.Context(), []uint32{0, 1, 2, 3}, []float32{4, 5, 0.5, float32(math.NaN())})
	if err != nil || out.Stepped != 1 || out.Refused != 3 {
		t.Errorf("%+v, %v, want one stepped and three refused", out.Report, err)
	}
	if _, _, err := a.ObserveParts(t.Context(), &gpubatch.Splitter{}, []uint32{0}, []float32{1}, []int32{0},
		Launches{}); err == nil {
		t.Error("items of a cell that has none: no error")
	}
}
