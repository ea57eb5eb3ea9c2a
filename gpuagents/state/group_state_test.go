package state

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func openHost(t *testing.T) device.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Poison: true})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil { // a leak of the state is an error here
			t.Errorf("d.Close: %v, want no error", err)
		}
	})
	return d
}

func openGroupState(t *testing.T, d device.Device, text string, groups int) *groupState {
	t.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	s, err := newGroupState(d, nil, spec, allOf(groups))
	if err != nil {
		t.Fatalf("newGroupState: %v, want no error", err)
	}
	testkit.Close(t, s)
	return s
}

// contents are all pages of m.
func contents(t testing.TB, m *pages.Memory) []byte {
	t.Helper()
	pages := make([]byte, len(m.Made())*m.PageBytes())
	for page := range m.Made() {
		if err := m.Read(t.Context(), uint64(page), pages[page*m.PageBytes():][:m.PageBytes()]); err != nil {
			t.Fatalf("m.Read: %v, want no error", err)
		}
	}
	return pages
}

// TestPlan compares the grouping of a batch with the obvious way to do it, on random batches.
func TestPlan(t *testing.T) {
	s := openGroupState(t, openHost(t), "name: x\nagents_per_group: 8\npage_size: 64KiB\n", 40)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 5))
		groups := make([]uint32, r.IntN(60)+1)
		for i := range groups {
			groups[i] = uint32(r.IntN(40))
			if i > 0 && r.IntN(3) > 0 {
				groups[i] = groups[i-1]
			}
		}
		moved := s.plan(groups)
		order := s.order
		if !moved {
			order = make([]int, len(groups))
			for i := range order {
				order[i] = i
			}
		}
		got := map[uint32][]int{}
		covered := 0
		for _, run := range s.runs {
			g := run.Frame*uint32(s.layout.Slots) + run.Slot
			if _, twice := got[g]; twice {
				t.Fatalf("seed %d: group %d has two runs", seed, g)
			}
			got[g] = append([]int{}, order[run.First:run.First+run.Count]...)
			covered += int(run.Count)
		}
		want := map[uint32][]int{}
		for i, g := range groups {
			want[g] = append(want[g], i)
		}
		if d := diff(want, got); d != "" || covered != len(groups) {
			t.Fatalf("seed %d: %d of %d covered: %s", seed, covered, len(groups), d)
		}
	}
}

func observations(r *rand.Rand, groups, n, width int) *batch.Observations {
	o := &batch.Observations{Width: width}
	rows := make([]uint64, groups)
	for i := range n {
		g := r.IntN(groups)
		rows[g]++
		o.Group = append(o.Group, uint32(g))
		o.Row = append(o.Row, rows[g])
		o.Time = append(o.Time, int64(i)*1e9)
		o.Read = append(o.Read, 0)
		o.Timestamp = append(o.Timestamp, "")
		v := math.Sin(float64(i)/20) + 0.1*r.NormFloat64()
		if r.IntN(100) == 0 {
			v += 20
		}
		o.Value = append(o.Value, v)
		for range width {
			o.Features = append(o.Features, float32(v))
		}
	}
	return o
}

func cut(o *batch.Observations, from, to int) *batch.Observations {
	return &batch.Observations{
		Group: o.Group[from:to], Row: o.Row[from:to], Time: o.Time[from:to], Read: o.Read[from:to],
		Timestamp: o.Timestamp[from:to],
		Value:     o.Value[from:to], Features: o.Features[from*o.Width : to*o.Width], Width: o.Width,
	}
}

// TestCutInvariance: however the input is cut into batches, the decisions and the agents' state are
// the same, byte for byte.
func TestCutInvariance(t *testing.T) {
	for _, c := range []struct {
		agents, features int
		cell, columns    string
	}{
		{8, 1, "gru, weights: group", "a"},
		{33, 1, "predictor", "a"},
		{16, 2, "leaky", "a, b"},
		{8, 3, "predictor", "a, b, c"},
		{33, 1, "lif", "a"},
		{9, 2, "gru", "a, b"},
	} {
		agents := c.agents
		text := fmt.Sprintf("name: x\nagents_per_group: %d\npage_size: 64KiB\ncell: {kind: %s}\nfeatures: [%s]\n",
			agents, c.cell, c.columns)
		d := openHost(t)
		const groups, n = 20, 3000
		all := observations(rand.New(rand.NewPCG(1, 1)), groups, n, c.features)
		run := func(next func() int) (*batch.Decisions, []byte) {
			s := openGroupState(t, d, text, groups)
			if err := s.check(all); err != nil {
				t.Fatalf("s.check: %v, want no error", err)
			}
			out := &batch.Decisions{}
			for at := 0; at < n; {
				to := min(at+next(), n)
				dec, _, err := s.observe(t.Context(), cut(all, at, to))
				if err != nil {
					t.Fatalf("s.observe: %v, want no error", err)
				}
				out.Score = append(out.Score, dec.Score...)
				out.Decision = append(out.Decision, dec.Decision...)
				out.Counts = append(out.Counts, dec.Counts...)
				out.Leader = append(out.Leader, dec.Leader...)
				out.Round = append(out.Round, dec.Round...)
				at = to
			}
			return out, contents(t, s.memory)
		}
		want, wantPages := run(func() int { return n })
		r := rand.New(rand.NewPCG(2, 2))
		for range 4 {
			got, pages := run(func() int { return 1 + r.IntN(400) })
			if d := diff(want, got); d != "" {
				t.Fatalf("difference (-want +got):\n%s", d)
			}
			if string(pages) != string(wantPages) {
				t.Fatal("the pages differ")
			}
		}
		for i, round := range want.Round {
			if round != all.Row[i] {
				t.Fatalf("observation %d of group %d is round %d, want %d", i, all.Group[i], round, all.Row[i])
			}
			if first := uint64(all.Group[i]) * uint64(agents); want.Leader[i] < first ||
				want.Leader[i] >= first+uint64(agents) {
				t.Fatalf("leader %d is no agent of group %d", want.Leader[i], all.Group[i])
			}
		}
	}
}

func TestCheck(t *testing.T) {
	s := openGroupState(t, openHost(t), "name: x\nagents_per_group: 4\n", 3)
	good := observations(rand.New(rand.NewPCG(1, 1)), 3, 5, 1)
	if err := s.check(good); err != nil {
		t.Fatalf("s.check: %v, want no error", err)
	}
	for name, spoil := range map[string]func(*batch.Observations){
		"group":    func(o *batch.Observations) { o.Group[2] = 3 },
		"nan":      func(o *batch.Observations) { o.Features[4] = float32(math.NaN()) },
		"infinite": func(o *batch.Observations) { o.Features[0] = float32(math.Inf(-1)) },
		"width":    func(o *batch.Observations) { o.Width, o.Features = 2, append(o.Features, o.Features...) },
	} {
		o := observations(rand.New(rand.NewPCG(1, 1)), 3, 5, 1)
		spoil(o)
		if s.check(o) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestOutOfMemory: a swarm that does not fit is refused and leaves nothing behind.
func TestOutOfMemory(t *testing.T) {
	d, err := cuda.Open(t.Context(), "host", cuda.Options{MemoryLimit: 1 << 20})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	spec, err := swarm.Parse("test.yaml", []byte("name: x\n"))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	if _, err := newGroupState(d, nil, spec, allOf(1000)); err == nil {
		t.Error("1,000 groups fit into 1 MiB")
	}
	if err := d.Close(); err != nil {
		t.Errorf("d.Close: %v, want no error", err)
	}
}

func BenchmarkObserve(b *testing.B) {
	d, err := cuda.Open(b.Context(), "host", cuda.Options{Poison: true})
	if err != nil {
		b.Fatalf("cuda.Open: %v, want no error", err)
	}
	defer d.Close()
	for _, cell := range cells.Names() {
		b.Run(cell, func(b *testing.B) {
			spec, err := swarm.Parse("test.yaml", []byte("name: x\ncell: {kind: "+cell+"}\n"))
			if err != nil {
				b.Fatalf("swarm.Parse: %v, want no error", err)
			}
			s, err := newGroupState(d, nil, spec, allOf(64))
			if err != nil {
				b.Fatalf("newGroupState: %v, want no error", err)
			}
			defer s.Close() //nolint:errcheck // a benchmark
			o := observations(rand.New(rand.NewPCG(1, 1)), 64, 4096, 1)
			for b.Loop() {
				if _, _, err := s.observe(b.Context(), o); err != nil {
					b.Fatalf("s.observe: %v, want no error", err)
				}
			}
			steps := float64(b.N) * 4096 * 256
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/steps, "ns/agent-step")
			b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds(), "obs/s")
		})
	}
}
