package graph

import (
	"errors"
	"fmt"
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

// TestDelayedChain: a spike takes one tick over the first link of a chain, two over the second, and
// so on. The neuron that starts it spikes once. The pages go to another network after each tick.
func TestDelayedChain(t *testing.T) {
	rows := &edges.Rows{Offsets: []uint64{0}}
	for i := range uint32(5) {
		if i < 4 {
			rows.Columns, rows.Delays = append(rows.Columns, i+1), append(rows.Delays, uint8(i+1))
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	d := openDevice(t)
	next := func() *Network {
		return open(t, d, lifOf(t, 5, map[string]float64{"weight": 1.5, "refractory": 255}), Options{
			Agents: 5, Links: edges.Links{Rows: rows}, PageBytes: 4096,
		})
	}
	n := next()
	if err := n.Set(t.Context(), []uint32{0}, []float32{9}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for range 12 {
		tick(t, n, 1)
		for _, s := range states(t, n) {
			b.WriteByte(".|"[s])
		}
		b.WriteByte(' ')
		n = moved(t, n, next())
	}
	const want = "|.... .|... ..... ..|.. ..... ..... ...|. ..... ..... ..... ....| ..... "
	if got := b.String(); got != want {
		t.Errorf("the spikes are\n%s, want\n%s", got, want)
	}
}

// moved copies the pages of a network to another one, which has none, and closes the first.
func moved(t *testing.T, n, to *Network) *Network {
	t.Helper()
	content := make([]byte, n.Layout().PageBytes)
	for page := range n.Memory().Count() {
		if err := errors.Join(n.Memory().Read(t.Context(), uint64(page), content),
			to.Memory().Write(t.Context(), uint64(page), content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// delayedLinks are random links with delays, as options have them, and link by link.
func delayedLinks(r *rand.Rand, agents int) (edges.Links, *edges.Rows) {
	rows := &edges.Rows{Offsets: []uint64{0}}
	if r.IntN(2) == 0 { // of a list
		longest := 2 + r.IntN(edges.MaxDelay-1)
		for range agents {
			for range r.IntN(30) {
				rows.Columns = append(rows.Columns, uint32(r.IntN(agents)))
				rows.Delays = append(rows.Delays, uint8(1+r.IntN(longest)))
			}
			rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
		}
		rows.Columns, rows.Delays = append(rows.Columns, 0), append(rows.Delays, uint8(longest))
		rows.Offsets[agents]++
		if r.IntN(2) == 0 {
			for range rows.Columns {
				rows.Weights = append(rows.Weights, int32(r.NormFloat64()*0.2*(1<<16)))
			}
		}
		return edges.Links{Rows: rows}, rows
	}
	most := 2 + r.IntN(edges.MaxDelay-1)
	l := edges.Links{
		Degree: 1 + r.IntN(min(300, agents-1)), Seed: r.Uint64(),
		Delays: edges.Delays{Least: 1 + r.IntN(most), Most: most},
	}
	for id := range agents {
		for k := range l.Degree { // a ring
			by := k/2 + 1
			if k%2 == 1 {
				by = agents - by
			}
			draw := kernels.Philox([2]uint32{uint32(l.Seed), uint32(l.Seed >> 32)},
				[4]uint32{uint32(k/128*32 + k%32), uint32(id), 1})[k/32%4]
			span := uint64(most - l.Delays.Least + 1)
			rows.Columns = append(rows.Columns, uint32((id+by)%agents))
			rows.Delays = append(rows.Delays, uint8(uint64(l.Delays.Least)+uint64(draw)*span>>32))
		}
		rows.Offsets = append(rows.Offsets, uint64(len(rows.Columns)))
	}
	return l, rows
}

// TestDelays compares random networks whose links have delays with neurons one by one: of both
// cells, of lists and of a generator, over many pages, with ticks of all numbers, currents that
// change between them, and pages that go on in another network.
func TestDelays(t *testing.T) {
	d, r, spikes := openDevice(t), rand.New(rand.NewPCG(1, 59)), 0
	for range testkit.Of(60, 16) {
		group := 1 + r.IntN(40)
		agents := group * (2 + r.IntN(1500/group))
		links, rows := delayedLinks(r, agents)
		var step func(tick uint32)
		var want func() (spike []byte, potential []float32)
		var set func(id uint32, current float32)
		seed, name := r.Uint64(), []string{cells.LIFName, cells.IzhikevichName}[r.IntN(2)]
		p := map[string]float64{"weight": 0.5 * r.Float64(), "inhibitory": 0.5 * r.Float64()}
		if p["noise"] = 0.3; name == cells.IzhikevichName {
			p["noise"] = 9
		}
		cell := neuronsOf(t, name, group, p)
		if name == cells.LIFName {
			n := &neurons{
				potential: make([]float32, agents), current: make([]float32, agents), rest: make([]int, agents),
				spike: make([]byte, agents), cell: cell, seed: seed, links: rows,
			}
			step, want = n.step, func() ([]byte, []float32) { return n.spike, n.potential }
			set = func(id uint32, current float32) { n.current[id] = current }
		} else {
			n := &modelNeurons{
				v: make([]float32, agents), u: make([]float32, agents), current: make([]float32, agents),
				spike: make([]byte, agents), cell: cell, seed: seed, links: rows,
			}
			step, want = n.step, func() ([]byte, []float32) { return n.spike, n.v }
			set = func(id uint32, current float32) { n.current[id] = current }
		}
		o := Options{Agents: int64(agents), Links: links, Seed: seed, PageBytes: 4096}
		n, all := open(t, d, cell, o), make([]uint32, agents)
		for i := range all {
			all[i] = uint32(i)
		}
		for now := uint32(0); now < 90; {
			if r.IntN(3) == 0 {
				other := open(t, d, cell, o)
				if r.IntN(2) == 0 { // it has spikes of its own on their way
					tick(t, other, 9)
				}
				n = moved(t, n, other)
			}
			id, current := uint32(r.IntN(agents)), float32(r.NormFloat64()*0.2)
			set(id, current)
			ok(t, n.Set(t.Context(), []uint32{id}, []float32{current}))
			count := []int{1, 1 + r.IntN(9), 1 + r.IntN(60)}[r.IntN(3)]
			for range count {
				step(now)
				now++
			}
			tick(t, n, count)
			votes, potentials, err := n.Get(t.Context(), all)
			ok(t, err)
			if spike, potential := want(); !slices.Equal(votes, spike) || !slices.Equal(potentials, potential) {
				t.Fatalf("%s, %d agents, delays to %d, tick %d: the network differs from neurons one by one", name,
					agents, n.slots, now)
			}
			for _, s := range votes {
				spikes += int(s)
			}
		}
		ok(t, n.Close())
	}
	if spikes < 1000 {
		t.Errorf("%d spikes: too few for a comparison", spikes)
	}
}

// TestDelayedCuts: ten ticks of one entry leave the pages that ten entries of one leave, all bytes,
// and so do pages that are written again, whose sums are made anew. A reset forgets the spikes on
// their way.
func TestDelayedCuts(t *testing.T) {
	d := openDevice(t)
	cell := lifOf(t, 10, map[string]float64{"noise": 0.5})
	o := Options{
		Agents: 2000, Links: edges.Links{Degree: 20, Rewire: 1, Delays: edges.Delays{Least: 2, Most: 7}}, Seed: 3,
		PageBytes: 4096,
	}
	content := func(n *Network) (all []byte) {
		page := make([]byte, n.Layout().PageBytes)
		for i := range n.Memory().Count() {
			ok(t, n.Memory().Read(t.Context(), uint64(i), page))
			all = append(all, page...)
		}
		return all
	}
	run := func(cuts ...int) []byte {
		n := open(t, d, cell, o)
		if len(cuts) > 1 {
			tick(t, n, 5)
			ok(t, n.Reset(t.Context()))
		}
		for _, count := range cuts {
			if count == 0 {
				page := content(n)[:n.Layout().PageBytes]
				ok(t, n.Memory().Write(t.Context(), 0, page))
				continue
			}
			tick(t, n, count)
		}
		return content(n)
	}
	want := run(30)
	for _, cuts := range [][]int{{10, 20}, {1, 1, 1, 26, 1}, {6, 0, 1, 1, 0, 0, 22}, {29, 0, 1}} {
		if !slices.Equal(run(cuts...), want) {
			t.Errorf("ticks in entries of %d leave other pages than 30 in one", cuts)
		}
	}
	if !slices.ContainsFunc(want, func(b byte) bool { return b != 0 }) {
		t.Error("the pages are zeros")
	}
}

// TestDelaysInvalid: invalid delays are refused, and delays of 1 need no extra state.
func TestDelaysInvalid(t *testing.T) {
	d, cell := openDevice(t), lifOf(t, 2, nil)
	rows := func(delays ...uint8) edges.Links {
		return edges.Links{Rows: &edges.Rows{
			Offsets: []uint64{0, 1, 2, 2, 2}, Columns: []uint32{1, 2}, Delays: delays,
		}}
	}
	for says, l := range map[string]edges.Links{
		"delays of 0 to 4 ticks: use 1 to 32":        {Degree: 1, Delays: edges.Delays{Least: 0, Most: 4}},
		"delays of 5 to 4 ticks":                     {Degree: 1, Delays: edges.Delays{Least: 5, Most: 4}},
		"delays of 1 to 33 ticks":                    {Degree: 1, Delays: edges.Delays{Least: 1, Most: 33}},
		"delays of -3 to -1 ticks":                   {Degree: 1, Delays: edges.Delays{Least: -3, Most: -1}},
		"link 1 has a delay of 0 ticks: use 1 to 32": rows(1, 0),
		"link 0 has a delay of 33 ticks":             rows(33, 1),
		"2 links, 0 weights and 1 delays":            rows(1),
	} {
		_, err := New(d, nil, cell, Options{Agents: 4, Links: l})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %s", l, err, says)
		}
	}
	if _, err := New(d, nil, sirOf(t, 2, 1, 1), Options{Agents: 4, Links: rows(2, 1)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("sir with delays: %v, want an ErrInvalid", err)
	}
	for _, l := range []edges.Links{{Degree: 1, Delays: edges.Delays{Least: 1, Most: 1}}, rows(1, 1)} {
		n := open(t, d, cell, Options{Agents: 4, Links: l})
		if got := fmt.Sprint(n.Kernels()); got != fmt.Sprint([]string{graphset.Links, graphset.Push, graphset.LIF}) ||
			len(n.Layout().Vars) != 5 {
			t.Errorf("delays of 1: kernels %s, variables %v", got, n.Layout().Vars)
		}
	}
}
