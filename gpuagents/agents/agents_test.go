package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// column is a variable of all agents, or groups, of a, without what lies between them in the pages.
func column(t testing.TB, a *Agents, v int) []byte {
	t.Helper()
	pages, of, l := pagesOf(t, a, a.pages), a.layout.Vars[v], a.layout
	size := of.Width * of.Elem.Bytes()
	if !of.Group {
		size *= l.Agents
	}
	var out []byte
	for g := range a.groups {
		out = append(out, pages[g/l.Slots*l.PageBytes+int(l.Offsets[v])+g%l.Slots*size:][:size]...)
	}
	return out
}

// values are a column of F32 or BF16 as float64.
func values(t testing.TB, a *Agents, v int) []float64 {
	t.Helper()
	var out []float64
	data := column(t, a, v)
	if a.layout.Vars[v].Elem == kernels.BF16 {
		for _, x := range device.Of[uint16](data) {
			out = append(out, float64(device.FromBF16(x)))
		}
		return out
	}
	for _, x := range device.Of[float32](data) {
		out = append(out, float64(x))
	}
	return out
}

// units and held belong to all agents of a gru, class by class.
func units(t testing.TB, a *Agents) []float64 { return halves(t, a, 0) }

func held(t testing.TB, a *Agents) []float64 { return halves(t, a, 1) }

func halves(t testing.TB, a *Agents, half int) (out []float64) {
	t.Helper()
	rows, class := values(t, a, kernels.AgentVarRow), a.layout.Vars[kernels.AgentVarRow].Width/2
	for i := half * class; i < len(rows); i += 2 * class {
		out = append(out, rows[i:][:class]...)
	}
	return out
}

// exactGRUBound is what a unit may be away from it after a step. A product is off by 2^-w at most,
// where 2^w is the scale of the table (the product of the low bytes, which is left out), and by
// half a unit of each factor: sums of 64 with weights of N(0, 1/H) are off by 1e-3, the largest
// unit of these tests by 1.2e-3.
const exactGRUBound = 2e-3

// exactGRU is torch.nn.GRUCell and the readout in float64, by its definition.
func exactGRU(w cells.GRUWeights, H, I, C int, x, h []float64) (next, sums []float64) {
	gate := func(row int) (in, un float64) {
		in, un = float64(w.InputBias[row]), float64(w.HiddenBias[row])
		for k := range I {
			in += float64(w.InputHidden[row*I+k]) * x[k]
		}
		for k := range H {
			un += float64(w.HiddenHidden[row*H+k]) * h[k]
		}
		return in, un
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for j := range H {
		ri, ru := gate(j)
		zi, zu := gate(H + j)
		ni, nu := gate(2*H + j)
		z, n := sigmoid(zi+zu), math.Tanh(ni+sigmoid(ri+ru)*nu)
		next = append(next, (1-z)*n+z*h[j])
	}
	for c := range C {
		sum := float64(w.ReadoutBias[c])
		for k := range H {
			sum += float64(w.Readout[c*H+k]) * next[k]
		}
		sums = append(sums, sum)
	}
	return next, sums
}

func randomWeights(r *rand.Rand, H, I, C int) cells.GRUWeights {
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64() / math.Sqrt(float64(H)))
		}
		return v
	}
	return cells.GRUWeights{
		InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H),
		HiddenBias: draw(3 * H), Readout: draw(C * H), ReadoutBias: draw(C),
	}
}

// TestAgentsEqualFloat64 compares observations and ticks with the definition of the network in
// float64, each step from the state before it: units within the error of the activations, votes
// where they do not hang on it.
func TestAgentsEqualFloat64(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, c := range []struct{ hidden, features, candidates, bf16 int }{
		{8, 8, 5, 0}, {5, 3, 2, 0}, {1, 1, 16, 0}, {16, 9, 4, 0}, {32, 32, 7, 0}, {20, 2, 3, 1}, {8, 8, 5, 1},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(c.hidden), 51))
			cell := address(t, "gru", map[string]float64{"hidden": float64(c.hidden), "bf16": float64(c.bf16)}, 7,
				c.features, c.candidates)
			w := randomWeights(r, c.hidden, c.features, c.candidates)
			table, err := cell.Table(w)
			testkit.NoError(t, "cell.Table", err)
			const n = 7 * 30
			a := makeAgents(t, d, cell, n, Options{Weights: table, PageBytes: 32768})
			class := kernels.AgentHidden(c.hidden)
			bound := exactGRUBound
			if c.bf16 == 1 {
				bound += 4e-3 // half a unit of bf16 below one
			}
			different := 0
			for step := range 6 {
				before, stepped := units(t, a), map[int]bool{}
				if step%3 == 2 {
					if _, err := a.Tick(t.Context(), 1); err != nil {
						t.Fatalf("a.Tick: %v, want no error", err)
					}
					for i := range n {
						stepped[i] = true
					}
				} else {
					ids, inputs := randomObservations(r, n, n/2, c.features)
					out, err := a.Observe(t.Context(), ids, inputs)
					if err != nil || out.Stepped != uint64(len(ids)) {
						t.Fatalf("%d of %d stepped: %v", out.Stepped, len(ids), err)
					}
					held, votes := held(t, a), column(t, a, kernels.AgentVarVote)
					for i, id := range ids {
						stepped[int(id)] = true
						if out.Votes[i]+1 != votes[id] {
							t.Fatalf("agent %d: the vote is %d, and kept is %d", id, out.Votes[i], votes[id])
						}
						for k := range class {
							want := 0.0
							if k < c.features {
								want = float64(inputs[i*c.features+k])
							}
							if math.Abs(held[int(id)*class+k]-want) > float64(c.bf16)*4e-3 {
								t.Fatalf("agent %d holds %v, want %v", id, held[int(id)*class+k], want)
							}
						}
					}
				}
				after, held, votes := units(t, a), held(t, a), column(t, a, kernels.AgentVarVote)
				for i := range n {
					h := before[i*class:][:class]
					if !stepped[i] {
						if !slices.Equal(h, after[i*class:][:class]) {
							t.Fatalf("step %d: agent %d moved", step, i)
						}
						continue
					}
					next, sums := exactGRU(w, c.hidden, c.features, c.candidates, held[i*class:][:class], h)
					for k := range class {
						want := 0.0
						if k < c.hidden {
							want = next[k]
						}
						if got := after[i*class+k]; math.Abs(got-want) > bound {
							t.Fatalf("step %d, agent %d: unit %d is %v, want %v", step, i, k, got, want)
						}
					}
					best := slices.Index(sums, slices.Max(sums))
					if int(votes[i]) != best+1 && slices.Max(sums)-sums[votes[i]-1] > 8*bound {
						t.Fatalf("step %d, agent %d votes %d of %v", step, i, int(votes[i])-1, sums)
					}
					different |= 1 << best
				}
			}
			if different&(different-1) == 0 {
				t.Error("all agents vote alike: the comparison proves nothing")
			}
		})
	}
}

// checkVotes holds counts, tally and decisions to the votes of the agents.
func checkVotes(t *testing.T, a *Agents, r Report, decided func(group int) (byte, bool)) {
	t.Helper()
	votes, counts := column(t, a, kernels.AgentVarVote), device.Of[uint32](column(t, a, kernels.AgentVarCounts))
	C, size := a.cell.Candidates, a.layout.Agents
	tally := make([]uint64, C)
	for g := range a.groups {
		count := make([]uint32, C)
		for _, v := range votes[g*size:][:size] {
			if v > 0 {
				count[v-1]++
				tally[v-1]++
			}
		}
		if !slices.Equal(count, counts[g*C:][:C]) {
			t.Fatalf("group %d: counts %v, its agents vote %v", g, counts[g*C:][:C], count)
		}
		have, ok := decided(g)
		if !ok {
			continue
		}
		sum, err := consensus.NewTally(C)
		testkit.NoError(t, "consensus.NewTally", err)
		for c, n := range count {
			sum.Counts[c] = uint64(n)
			sum.Total += uint64(n)
		}
		winner, err := consensus.Rule{Kind: consensus.Majority}.Winner(&sum)
		testkit.NoError(t, "Winner", err)
		want := byte(kernels.AgentNoVote)
		if winner != consensus.None {
			want = byte(winner)
		}
		if have != want {
			t.Fatalf("group %d decides %d by %v, want %d", g, have, count, want)
		}
	}
	if !slices.Equal(tally, r.Tally) {
		t.Fatalf("tally %v, the agents vote %v", r.Tally, tally)
	}
}

// TestAgentsDecide: counts, decisions, tallies and rounds follow from the agents' votes, after
// observations and after ticks.
func TestAgentsDecide(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, cell := range []*cells.Addressed{address(t, "gru", nil, 33, 4, 3), address(t, "leaky", nil, 10, 2, 2)} {
		a := makeAgents(t, d, cell, int64(cell.Agents)*50, Options{Seed: 3, PageBytes: 8192})
		r := rand.New(rand.NewPCG(61, 62))
		rounds := make([]uint64, a.groups)
		for step := range 8 {
			if step%4 == 3 {
				report, err := a.Tick(t.Context(), 2)
				if err != nil || report.Stepped != 2*uint64(a.n) {
					t.Fatalf("%+v, error %v; want %d steps", report, err, 2*uint64(a.n))
				}
				decisions, err := a.Decisions(t.Context())
				testkit.NoError(t, "a.Decisions", err)
				checkVotes(t, a, report, func(g int) (byte, bool) { return decisions[g], true })
				for g := range rounds {
					rounds[g] += 2
				}
			} else {
				ids, inputs := randomObservations(r, int(a.n), 60, cell.Features)
				for i := range inputs {
					inputs[i] *= 4
				}
				out, err := a.Observe(t.Context(), ids, inputs)
				testkit.NoError(t, "a.Observe", err)
				by := map[int]byte{}
				for i, id := range ids {
					g := int(id) / cell.Agents
					if v, ok := by[g]; ok && v != out.Decisions[i] {
						t.Fatalf("group %d decides %d and %d", g, v, out.Decisions[i])
					}
					by[g] = out.Decisions[i]
				}
				for g := range by {
					rounds[g]++
				}
				checkVotes(t, a, out.Report, func(g int) (byte, bool) { v, ok := by[g]; return v, ok })
			}
			if !slices.Equal(device.Of[uint64](column(t, a, kernels.AgentVarRound)), rounds) {
				t.Fatalf("step %d: rounds %v, want %v", step, device.Of[uint64](column(t, a, kernels.AgentVarRound)),
					rounds)
			}
		}
	}
}

// TestObservationsCut: several observations of an agent take effect in their order, and all of them
// alike in one batch and one by one.
func TestObservationsCut(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	cell := address(t, "gru", nil, 5, 3, 4)
	r := rand.New(rand.NewPCG(71, 72))
	whole, single := makeAgents(t, d, cell, 40, Options{}), makeAgents(t, d, cell, 40, Options{})
	ids, inputs := make([]uint32, 150), make([]float32, 450)
	for i := range ids {
		ids[i] = r.Uint32N(42) // two of them are not there
	}
	for i := range inputs {
		inputs[i] = float32(r.NormFloat64())
	}
	inputs[31] = float32(math.NaN())
	out, err := whole.Observe(t.Context(), ids, inputs)
	testkit.NoError(t, "whole.Observe", err)
	for i, id := range ids {
		one, err := single.Observe(t.Context(), []uint32{id}, inputs[3*i:][:3])
		testkit.NoError(t, "single.Observe", err)
		if one.Votes[0] != out.Votes[i] {
			t.Fatalf("observation %d: vote %d, alone %d", i, out.Votes[i], one.Votes[0])
		}
	}
	for _, v := range []int{kernels.AgentVarRow, kernels.AgentVarVote, kernels.AgentVarCounts} {
		if !bytes.Equal(column(t, whole, v), column(t, single, v)) {
			t.Errorf("%s differs between a batch and single observations", cell.Vars()[v].Name)
		}
	}
}

// TestObservationsRefused: what cannot be is refused one by one, counted, and changes nothing.
func TestObservationsRefused(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, cell := range []*cells.Addressed{address(t, "gru", nil, 4, 2, 3), address(t, "leaky", nil, 4, 2, 2)} {
		a := makeAgents(t, d, cell, 12, Options{})
		inf, nan := float32(math.Inf(-1)), float32(math.NaN())
		ids := []uint32{3, 12, 4, 5, math.MaxUint32, 6}
		out, err := a.Observe(t.Context(), ids, []float32{1, 2, 1, 2, 1, nan, inf, 1, nan, nan, 1e38, -1e38})
		testkit.NoError(t, "a.Observe", err)
		if out.Stepped != 2 || out.Outside != 2 || out.Refused != 2 {
			t.Errorf("%+v, want 2 stepped, 2 outside, 2 refused", out.Report)
		}
		for i, refused := range []bool{false, true, true, true, true, false} {
			if (out.Votes[i] == kernels.AgentNoVote) != refused || refused && out.Decisions[i] != kernels.AgentNoVote {
				t.Errorf("%s: observation %d: vote %d, decision %d", cell.Cell.Name, i, out.Votes[i], out.Decisions[i])
			}
		}
		for v, of := range a.layout.Vars {
			if of.Elem != kernels.F32 {
				continue
			}
			all := values(t, a, v)
			for i, x := range all {
				if agent := i / of.Width; math.IsNaN(x) || math.IsInf(x, 0) || x != 0 && agent != 3 && agent != 6 {
					t.Errorf("%s of agent %d is %v", of.Name, agent, x)
				}
			}
		}
	}
}

// TestLeakySpikes follows one agent through current, gain, threshold and rest.
func TestLeakySpikes(t *testing.T) {
	a := makeAgents(t, openNamed(t, *opentest.Name), address(t, "leaky",
		map[string]float64{"decay": 0.5, "threshold": 1, "trace": 4}, 2, 2, 2), 2, Options{})
	v, trace := 0.0, 0.0
	for step := range 12 {
		if step == 0 {
			if _, err := a.Observe(t.Context(), []uint32{1}, []float32{0.5, 0.5}); err != nil {
				t.Fatalf("a.Observe: %v, want no error", err)
			}
		} else if _, err := a.Tick(t.Context(), 1); err != nil {
			t.Fatalf("a.Tick: %v, want no error", err)
		}
		v = 0.5*v + 0.75
		spike := 0.0
		if v > 1 {
			v, spike = v-1, 1
		}
		trace += (spike - trace) / 4
		if got := values(t, a, kernels.AgentVarPotential)[1]; math.Abs(got-v) > 1e-6 {
			t.Fatalf("step %d: potential %v, want %v", step, got, v)
		}
		if got := values(t, a, kernels.AgentVarTrace)[1]; math.Abs(got-trace) > 1e-6 {
			t.Fatalf("step %d: trace %v, want %v", step, got, trace)
		}
		if got := column(t, a, kernels.AgentVarVote)[1]; got != byte(1+spike) {
			t.Fatalf("step %d: vote %d, want %v", step, got, 1+spike)
		}
	}
	if trace == 0 {
		t.Error("it never spiked")
	}
}

func TestAgentsRefuse(t *testing.T) {
	d, cell := openNamed(t, "host"), address(t, "gru", nil, 4, 2, 3)
	for _, c := range []struct {
		n int64
		o Options
	}{
		{0, Options{}},
		{-4, Options{}},
		{6, Options{}},
		{1 << 33, Options{}},
		{4, Options{PageBytes: 5000}},
		{4, Options{Weights: make([]uint32, 3)}},
	} {
		if _, err := New(d, cell, c.n, c.o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d agents, %+v: %v, want ErrAgents", c.n, c.o, err)
		}
	}
	a := makeAgents(t, d, cell, 8, Options{})
	if _, err := a.Observe(t.Context(), []uint32{1, 2}, []float32{1, 2, 3}); !errors.Is(err, ErrInvalid) {
		t.Errorf("too few inputs: %v", err)
	}
	if _, err := a.Tick(t.Context(), 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("no ticks: %v", err)
	}
	if out, err := a.Observe(t.Context(), nil, nil); err != nil || out.Stepped != 0 {
		t.Errorf("no observations: %+v, %v", out, err)
	}
	o, err := a.Load([]uint32{1}, []float32{1, 2})
	testkit.NoError(t, "a.Load", err)
	if err := errors.Join(o.Close(), o.Close()); err != nil {
		t.Errorf("joined errors: %v, want no error", err)
	}
	if _, err := a.Step(t.Context(), o); !errors.Is(err, ErrInvalid) {
		t.Errorf("closed observations: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("a.Close: %v, want no error", err)
	}
}

// TestSplit: for observations of several entries, no launch has an agent twice, the observations of
// an agent keep their order, the observations of a group in an entry follow the earlier entries,
// there are no more launches than necessary, and each observation has its own position in its
// launch.
func TestSplit(t *testing.T) {
	const size = 2
	a := makeAgents(t, openNamed(t, "host"), address(t, "leaky", nil, size, 1, 2), 200, Options{})
	ranks := NewRanking(200, size)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 81))
		var ids, launches []uint32
		var entry []int // of each observation
		several := false
		for e := range 1 + r.IntN(4) {
			some := make([]uint32, r.IntN(40))
			for i := range some {
				some[i] = r.Uint32N(1 + r.Uint32N(210))
				entry = append(entry, e)
			}
			more := false
			launches, more = ranks.Rank(some, launches)
			ids, several = append(ids, some...), several || more
		}
		if ranks.Forget(); slices.Max(ranks.seen) != 0 || slices.Max(ranks.next) != 0 {
			t.Fatalf("seed %d: agents or groups still marked", seed)
		}
		if !several {
			launches = nil
		}
		o := &Observations{agents: a, n: len(ids)}
		all := o.split(ids, launches)
		launchOf := map[int]int{} // by place
		for k, p := range o.launches {
			if p.first%16 != 0 || p.first+p.n > all {
				t.Fatalf("seed %d: launch %d is %+v of %d places", seed, k, p, all)
			}
			for place := p.first; place < p.first+p.n; place++ {
				launchOf[place] = k
			}
		}
		// By group: its launches. An entry needs as many as the most frequent agent of the group
		// has observations.
		type turn struct {
			group uint32
			entry int
		}
		last, used, most := map[uint32]int{}, map[turn]map[int]bool{}, map[turn]int{}
		counts := map[turn]map[uint32]int{}
		for i, id := range ids {
			place := i
			if o.positions != nil {
				place = o.positions[i]
			}
			k, ok := launchOf[place]
			if delete(launchOf, place); !ok {
				t.Fatalf("seed %d: observation %d has no place of its own", seed, i)
			}
			if int64(id) >= a.n {
				continue
			}
			if before, ok := last[id]; ok && before >= k {
				t.Fatalf("seed %d: observation %d of agent %d is in launch %d, the one before in %d", seed, i, id, k,
					before)
			}
			last[id] = k
			at := turn{id / size, entry[i]}
			if used[at] == nil {
				used[at], counts[at] = map[int]bool{}, map[uint32]int{}
			}
			used[at][k] = true
			counts[at][id]++
			most[at] = max(most[at], counts[at][id])
		}
		for at, launches := range used {
			first := 0
			for e := range at.entry {
				first += most[turn{at.group, e}]
			}
			for k := range launches {
				if k < first || k >= first+most[at] {
					t.Fatalf("seed %d: group %d has an observation of entry %d in launch %d, not in %d of them from "+
						"%d on", seed, at.group, at.entry, k, most[at], first)
				}
			}
		}
		if len(launchOf) != 0 {
			t.Fatalf("seed %d: places without an observation", seed)
		}
	}
}

// TestAgentsCancelled: a cancelled wait harms nothing: the work is done, and its memory is released
// after it.
func TestAgentsCancelled(t *testing.T) {
	a := makeAgents(t, openNamed(t, *opentest.Name), address(t, "gru", nil, 8, 8, 3), 8*500, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Tick(ctx, 3); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("tick: %v, want no error or %v", err, context.Canceled)
	}
	o, err := a.Load([]uint32{7}, make([]float32, 8))
	testkit.NoError(t, "a.Load", err)
	if _, err := a.Step(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("step: %v, want no error or %v", err, context.Canceled)
	}
	if err := o.Close(); err != nil {
		t.Errorf("o.Close: %v, want no error", err)
	}
	if _, err := a.Tick(t.Context(), 1); err != nil {
		t.Fatalf("a.Tick: %v, want no error", err)
	}
	if rounds := device.Of[uint64](column(t, a, kernels.AgentVarRound)); rounds[0] != 5 || rounds[1] != 4 {
		t.Errorf("rounds %v, want 5 of the first group and 4 of the others", rounds[:2])
	}
}

// TestDivisor: quotients equal a division.
func TestDivisor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for by := range 5000 {
		n := by + 1
		if by >= 4000 {
			n = int(r.Uint32() | 1)
		}
		d := divideBy(n)
		for _, i := range []uint32{
			0, 1, uint32(n) - 1, uint32(n), uint32(n) + 1, 2*uint32(n) - 1, math.MaxUint32,
			math.MaxUint32 / uint32(n) * uint32(n), math.MaxUint32/uint32(n)*uint32(n) - 1, r.Uint32(), r.Uint32(),
		} {
			if got := d.of(i); got != i/uint32(n) {
				t.Fatalf("%d / %d is %d", i, n, got)
			}
		}
	}
}

// TestObserveNobody: observations of no agent, or only of agents that do not exist, step nobody,
// also where pages are not all on the device.
func TestObserveNobody(t *testing.T) {
	d := openNamed(t, *opentest.Name)
	for _, o := range []Options{{PageBytes: 4096}, {PageBytes: 4096, PageMemory: 6 * 4096, HostPageMemory: 1 << 20}} {
		a := makeAgents(t, d, address(t, "gru", nil, 7, 2, 5), 210, o)
		for _, ids := range [][]uint32{nil, {210, 1000}} {
			out, err := a.Observe(t.Context(), ids, make([]float32, 2*len(ids)))
			if err != nil || out.Stepped != 0 || out.Outside != uint64(len(ids)) {
				t.Errorf("observe %v with %d bytes of pages: %d stepped, %d outside, %v; want nobody and no error",
					ids, o.PageMemory, out.Stepped, out.Outside, err)
			}
		}
	}
}
