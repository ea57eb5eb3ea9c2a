package raster

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// open returns n agents of a cell in groups of 64, and a source of pictures of them.
func open(t testing.TB, d device.Device, cell string, values map[string]float64, n int64, o agents.Options) (
	*agents.Agents, *Source,
) {
	t.Helper()
	features := 1
	c, err := cells.Address(cell, values, 64, features, 2, cells.Voting{Rule: kernels.RuleMajority})
	if err != nil {
		t.Fatalf("cells.Address: %v, want no error", err)
	}
	a, err := agents.New(d, c, n, o)
	if err != nil {
		t.Fatalf("agents.New: %v, want no error", err)
	}
	testkit.Close(t, a)
	s := New(d, a.Memory(), a.Layout(), int(n/64), Vars(a.Layout()))
	testkit.Close(t, s)
	return a, s
}

// fill writes the values of a float32 variable of all agents, by id, and returns them.
func fill(t testing.TB, a *agents.Agents, n int, v int) []float32 {
	t.Helper()
	r, l := rand.New(rand.NewPCG(1, 2)), a.Layout()
	all, per := make([]float32, n), l.Agents*l.Slots
	page := make([]byte, l.PageBytes)
	for first := 0; first < n; first += per {
		part := all[first:min(first+per, n)]
		for i := range part {
			part[i] = r.Float32()*4 - 1
		}
		copy(page[l.Offsets[v]:], device.Bytes(part))
		if err := a.Memory().Write(t.Context(), uint64(first/per), page); err != nil {
			t.Fatalf("memory.Write: %v, want no error", err)
		}
	}
	return all
}

func draw(t testing.TB, s *Source, variable string, most int) *Picture {
	t.Helper()
	d, err := s.Begin(variable, most)
	if err != nil {
		t.Fatalf("Begin: %v, want no error", err)
	}
	for {
		p, err := d.Part(t.Context())
		if err != nil {
			t.Fatalf("Part: %v, want no error", err)
		}
		if p != nil {
			return p
		}
	}
}

// TestPicture: each cell has the mean, the least and the greatest value of its agents.
func TestPicture(t *testing.T) {
	const n = 64 * 700
	a, s := open(t, opentest.Device(t), "leaky", nil, n, agents.Options{PageBytes: 64 << 10})
	values := fill(t, a, n, kernels.AgentVarPotential)
	for _, most := range []int{1, 7, 1000, 16 << 10, MaxCells} {
		p := draw(t, s, "potential", most)
		if p.Units != n || p.Each != 1 || len(p.Mean) > most || len(p.Mean) != (n+p.Per-1)/p.Per {
			t.Fatalf("%d cells of %d units, %d a cell, want at most %d", len(p.Mean), p.Units, p.Per, most)
		}
		for i := range p.Mean {
			part := values[i*p.Per : min((i+1)*p.Per, n)]
			sum := 0.0
			for _, v := range part {
				sum += float64(v)
			}
			mean := sum / float64(len(part))
			if p.Least[i] != slices.Min(part) || p.Most[i] != slices.Max(part) || p.States[i] != Whole ||
				float64(p.Mean[i]) < mean-1e-4 || float64(p.Mean[i]) > mean+1e-4 {
				t.Fatalf("cell %d of %d: %v, %v to %v, state %d, want %v, %v to %v", i, len(p.Mean), p.Mean[i],
					p.Least[i], p.Most[i], p.States[i], mean, slices.Min(part), slices.Max(part))
			}
		}
	}
}

// TestPictureParts: a picture in many parts has the bits of one in a single part.
func TestPictureParts(t *testing.T) {
	const n = 64 * 300
	a, s := open(t, opentest.Device(t), "leaky", nil, n, agents.Options{PageBytes: 64 << 10})
	fill(t, a, n, kernels.AgentVarTrace)
	want := draw(t, s, "trace", 1000)
	d, err := s.Begin("trace", 1000)
	if err != nil {
		t.Fatalf("Begin: %v, want no error", err)
	}
	parts := 0
	for {
		d.slice = 37
		p, err := d.Part(t.Context())
		if err != nil {
			t.Fatalf("Part: %v, want no error", err)
		}
		if parts++; p == nil {
			continue
		}
		if parts != (len(want.Mean)+36)/37 {
			t.Errorf("%d parts, want %d", parts, (len(want.Mean)+36)/37)
		}
		if !slices.Equal(p.Mean, want.Mean) || !slices.Equal(p.Least, want.Least) ||
			!slices.Equal(p.Most, want.Most) || !slices.Equal(p.States, want.States) {
			t.Error("the picture in parts is another one")
		}
		return
	}
}

// TestPictureOfPagedAgents: pages that are not on the device are not brought there; cells keep the
// value that they had.
func TestPictureOfPagedAgents(t *testing.T) {
	const n = 64 * 2000
	o := agents.Options{PageBytes: 16 << 10, PageMemory: 40 * (16 << 10), HostPageMemory: 64 << 20}
	a, s := open(t, opentest.Device(t), "leaky", nil, n, o)
	if a.Memory().Resident() {
		t.Fatal("all pages are resident, want some elsewhere")
	}
	values := fill(t, a, n, kernels.AgentVarPotential)
	before := a.Memory().Pager().Stats()
	first := draw(t, s, "potential", 4096)
	if after := a.Memory().Pager().Stats(); after.Memory[0].Hits != before.Memory[0].Hits ||
		after.Memory[0].Misses != before.Memory[0].Misses || after.Memory[0].In != before.Memory[0].In {
		t.Errorf("a picture changed the accesses: %+v, before %+v", after.Memory[0], before.Memory[0])
	}
	count := func(p *Picture, state uint8) (n int) {
		for _, s := range p.States {
			if s == state {
				n++
			}
		}
		return n
	}
	if count(first, Whole) == 0 || count(first, NotResident) == 0 || count(first, Kept) > 0 {
		t.Fatalf("%d cells are whole and %d not resident, want some of both", count(first, Whole),
			count(first, NotResident))
	}
	for i, state := range first.States {
		if state == Whole && first.Least[i] != slices.Min(values[i*first.Per:min((i+1)*first.Per, n)]) {
			t.Fatalf("cell %d has the least value %v", i, first.Least[i])
		}
	}
	// A tick moves all pages through the device, and the last ones stay there.
	if _, err := a.TickAll(t.Context(), t.Context(), 1, 1); err != nil {
		t.Fatalf("TickAll: %v, want no error", err)
	}
	second := draw(t, s, "potential", 4096)
	if count(second, Kept) == 0 {
		t.Error("no cell keeps its value")
	}
	for i, state := range second.States {
		if state == Kept && second.Mean[i] != first.Mean[i] {
			t.Fatalf("cell %d keeps %v, want %v", i, second.Mean[i], first.Mean[i])
		}
	}
}

// TestPictureOfVotes: agents that have never voted do not count, and a variable of groups has a
// unit for each group.
func TestPictureOfVotes(t *testing.T) {
	const n = 64 * 100
	a, s := open(t, opentest.Device(t), "leaky", map[string]float64{"threshold": 0.5}, n,
		agents.Options{PageBytes: 64 << 10})
	ids, inputs := make([]uint32, n/2), make([]float32, n/2)
	for i := range ids {
		ids[i], inputs[i] = uint32(i), float32(i%2)
	}
	if _, err := a.Observe(t.Context(), ids, inputs); err != nil {
		t.Fatalf("Observe: %v, want no error", err)
	}
	p := draw(t, s, "vote", 100)
	for i := range p.Mean {
		switch {
		case i < 50 && (p.States[i] != Whole || p.Mean[i] != 0.5 || p.Least[i] != 0 || p.Most[i] != 1):
			t.Fatalf("cell %d: %v, %v to %v, state %d, want 0.5", i, p.Mean[i], p.Least[i], p.Most[i], p.States[i])
		case i >= 50 && p.States[i] != NoValue:
			t.Fatalf("cell %d of agents that have not voted has state %d", i, p.States[i])
		}
	}
	if p := draw(t, s, "round", 1000); p.Units != 100 || p.Each != 64 || p.Mean[0] != 1 || p.Mean[99] != 0 {
		t.Errorf("rounds of %d units of %d: %v, want 1 for the first half", p.Units, p.Each, p.Mean)
	}
}

// TestRefusedPicture: what cannot be drawn is refused with a reason.
func TestRefusedPicture(t *testing.T) {
	_, s := open(t, opentest.Device(t), "leaky", nil, 64, agents.Options{})
	if _, err := s.Begin("mood", 10); !errors.Is(err, ErrUnknown) {
		t.Errorf("Begin of an unknown variable: %v, want ErrUnknown", err)
	}
	for _, n := range []int{0, MaxCells + 1} {
		if _, err := s.Begin("trace", n); !errors.Is(err, ErrInvalid) {
			t.Errorf("Begin with %d cells: %v, want ErrInvalid", n, err)
		}
	}
}
