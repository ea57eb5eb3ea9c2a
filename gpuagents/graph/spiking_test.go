package graph

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// lifOf returns the cell for a group size.
func lifOf(t testing.TB, group int, params map[string]float64) *cells.Addressed {
	t.Helper()
	return neuronsOf(t, cells.LIFName, group, params)
}

// neuronsOf returns a cell of neurons for a group size.
func neuronsOf(t testing.TB, cell string, group int, params map[string]float64) *cells.Addressed {
	t.Helper()
	c, err := cells.Address(cell, params, group, 1, 2, cells.Voting{})
	if err != nil {
		t.Fatalf("cells.Address: %v, want no error", err)
	}
	return c
}

// TestChain: a spike runs along a chain of neurons whose links are strong enough, a neuron a tick,
// and the neuron that starts it is driven over the threshold every fourth tick: one to charge, and
// three of rest. These are the pictures.
func TestChain(t *testing.T) {
	rows := &edges.Rows{Offsets: []uint64{0}}
	for i := range uint32(8) {
		if i < 7 {
			rows.Columns = append(rows.Columns, i+1)
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	n := open(t, openDevice(t), lifOf(t, 2, map[string]float64{"weight": 1.5, "refractory": 3}), Options{
		Agents: 8, Links: edges.Links{Rows: rows}, PageBytes: 4096,
	})
	if err := n.Set(t.Context(), []uint32{0, 7, 0}, []float32{9, 0, 1}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for range 7 {
		tally := tick(t, n, 1)
		for _, s := range states(t, n) {
			b.WriteByte(".|"[s])
		}
		fmt.Fprintln(&b, "", tally)
	}
	if got, want := b.String(), `|....... [7 1]
.|...... [7 1]
..|..... [7 1]
...|.... [7 1]
|...|... [6 2]
.|...|.. [6 2]
..|...|. [6 2]
`; got != want {
		t.Errorf("the spikes are\n%swant\n%s", got, want)
	}
}

// neurons is a plain model of a network of neurons, by RFC 0053.
type neurons struct {
	potential, current []float32
	rest               []int
	spike              []byte
	links              *edges.Rows
	cell               *cells.Addressed
	seed               uint64
	mail               mail
}

// mail is the weights that are on their way to neurons, by the tick in which they arrive.
type mail map[uint32][]int64

// arrive sends the weights of neurons that have spiked in the tick before, and returns what arrives
// in a tick. Links without delays arrive in the next tick.
func (m *mail) arrive(tick uint32, spike []byte, links *edges.Rows, cell *cells.Addressed) []int64 {
	agents := len(spike)
	exciting := int(math.Round(float64(agents) * (1 - cell.Value("inhibitory"))))
	if *m == nil {
		*m = mail{}
	}
	for from := range agents {
		for at := links.Offsets[from]; spike[from] == 1 && at < links.Offsets[from+1]; at++ {
			weight, delay := cell.Value("weight"), uint32(1)
			if from >= exciting {
				weight *= -cell.Value("inhibition")
			}
			fixed := int64(math.RoundToEven(weight * (1 << 16)))
			if links.Weights != nil {
				fixed = int64(links.Weights[at])
			}
			if links.Delays != nil {
				delay = uint32(links.Delays[at])
			}
			when := tick - 1 + delay
			if (*m)[when] == nil {
				(*m)[when] = make([]int64, agents)
			}
			(*m)[when][links.Columns[at]] += fixed
		}
	}
	defer delete(*m, tick)
	if (*m)[tick] == nil {
		return make([]int64, agents)
	}
	return (*m)[tick]
}

// step makes tick number tick: it goes from each neuron to all that have links to it.
func (n *neurons) step(tick uint32) {
	value := func(name string) float32 { return float32(n.cell.Value(name)) }
	agents := len(n.spike)
	sums, spikes := n.mail.arrive(tick, n.spike, n.links, n.cell), make([]byte, agents)
	for id := range agents {
		if n.rest[id] > 0 {
			n.rest[id]--
			continue
		}
		draw := uint32(1 << 31)
		if value("noise") != 0 {
			key := [2]uint32{uint32(n.seed), uint32(n.seed >> 32)}
			draw = kernels.Philox(key, [4]uint32{0, uint32(id / 4), tick})[id%4]
		}
		v := float32(n.potential[id] * value("decay"))
		v += n.current[id]
		v += float32((float32(draw>>8)/(1<<23) - 1) * value("noise"))
		v += float32(sums[id]) / (1 << 16)
		if n.potential[id] = v; v >= value("threshold") {
			spikes[id], n.potential[id], n.rest[id] = 1, 0, int(value("refractory"))
		}
	}
	n.spike = spikes
}

// TestSpiking compares random networks with neurons one by one: links of files and of a generator,
// over many pages, with ticks of all numbers and currents that change between them.
func TestSpiking(t *testing.T) {
	d, r, spikes := openDevice(t), rand.New(rand.NewPCG(1, 44)), 0
	for round := range testkit.Of(60, 16) {
		group := 1 + r.IntN(40)
		agents := group * (2 + r.IntN(3000/group))
		params := map[string]float64{
			"decay": 0.5 + 0.5*r.Float64(), "refractory": float64(r.IntN(4)), "weight": 0.5 * r.Float64(),
			"inhibitory": 0.5 * r.Float64(), "noise": float64(r.IntN(2)) * 0.3, "threshold": 0.5 + r.Float64(),
		}
		want := &neurons{
			potential: make([]float32, agents), current: make([]float32, agents), rest: make([]int, agents),
			spike: make([]byte, agents), cell: lifOf(t, group, params), seed: r.Uint64(),
		}
		links := edges.Links{Degree: 1 + r.IntN(min(20, agents-1)), Rewire: 0, Seed: 5}
		rows := &edges.Rows{Offsets: []uint64{0}}
		for id := range agents {
			if round%2 == 0 { // a ring
				for k := range links.Degree {
					by := k/2 + 1
					if k%2 == 1 {
						by = agents - by
					}
					rows.Columns = append(rows.Columns, uint32((id+by)%agents))
				}
			} else {
				for range r.IntN(30) {
					rows.Columns = append(rows.Columns, uint32(r.IntN(agents)))
					rows.Weights = append(rows.Weights, int32(r.NormFloat64()*0.2*(1<<16)))
				}
			}
			rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
		}
		if want.links = rows; round%2 == 1 {
			links = edges.Links{Rows: rows}
		}
		n := open(t, d, want.cell, Options{Agents: int64(agents), Links: links, Seed: want.seed, PageBytes: 4096})
		spikes += oneByOne(t, r, n, 30, 0.2, want.current, func(tick uint32) (spike []byte, potential []float32) {
			want.step(tick)
			return want.spike, want.potential
		})
	}
	if spikes < 1000 {
		t.Errorf("%d spikes: too few for a comparison", spikes)
	}
}

// TestSpikingInvalid: currents that are no numbers are refused.
func TestSpikingInvalid(t *testing.T) {
	n := open(t, openDevice(t), lifOf(t, 2, nil), Options{Agents: 4, Links: edges.Links{Degree: 2, Rewire: 1}})
	for _, v := range []float64{math.NaN(), math.Inf(1), -1.1e6} {
		if err := n.Set(t.Context(), []uint32{1}, []float32{float32(v)}); !errors.Is(err, ErrInvalid) {
			t.Errorf("current %v: %v, want an ErrInvalid", v, err)
		}
	}
	if err := n.Set(t.Context(), []uint32{4}, []float32{1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("agent 4 of 4: %v, want an ErrInvalid", err)
	}
	if !slices.Equal(n.Kernels(), []string{graphset.Links, graphset.Push, graphset.LIF}) {
		t.Errorf("the kernels are %q", n.Kernels())
	}
}

// oneByOne makes ticks of a network with random currents, and compares its votes and potentials
// with a plain model, whose currents it sets. It returns the number of spikes.
func oneByOne(t *testing.T, r *rand.Rand, n *Network, ticks uint32, deviation float64, current []float32,
	step func(tick uint32) (spike []byte, potential []float32),
) (spikes int) {
	t.Helper()
	agents := len(current)
	all := make([]uint32, agents)
	for i := range all {
		all[i] = uint32(i)
	}
	for tick := uint32(0); tick < ticks; {
		ids, to := make([]uint32, 1+r.IntN(agents)), []float32(nil)
		for i := range ids {
			ids[i], to = uint32(r.IntN(agents)), append(to, float32(r.NormFloat64()*deviation))
			current[ids[i]] = to[i]
		}
		if err := n.Set(t.Context(), ids, to); err != nil {
			t.Fatal(err)
		}
		count := 1 + r.IntN(9)
		var spike []byte
		var potential []float32
		for range count {
			spike, potential = step(tick)
			tick++
		}
		tally, err := n.Tick(t.Context(), t.Context(), count, 7)
		if err != nil {
			t.Fatal(err)
		}
		votes, potentials, err := n.Get(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(votes, spike) || !slices.Equal(potentials, potential) {
			t.Fatalf("%d agents, tick %d: the network differs from neurons one by one", agents, tick)
		}
		for _, s := range votes {
			spikes += int(s)
			tally[s]--
		}
		if tally[0] != 0 || tally[1] != 0 {
			t.Fatalf("the tally is %d away from the votes", tally)
		}
	}
	return spikes
}
