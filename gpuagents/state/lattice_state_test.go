package state

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// forest is where the agents of forestText are.
var forest = celltest.Grid{Width: 32, Height: 15, Depth: 20, Periodic: true}

// forestText is a forest of four pages of testPage: groups count their ticks.
var forestText = "name: x\naddressed: agent\nseed: 99\ncell:\n  kind: custom\n  state: {state: u8}\n" +
	"  params: {growth: 0.25, lightning: 0.0625}\n  hear: {max: [state]}\n  step: |\n    " +
	strings.ReplaceAll(strings.TrimSpace(celltest.FireStep), "\n", "\n    ") + "\n" +
	"neighbours: {width: 32, height: 15, depth: 20, periodic: true}\nvote: {candidates: [empty, tree, fire]}\n"

// openCompiling opens the device of the flag. The host device gets kernels that are compiled for
// the processor.
func openCompiling(t testing.TB) device.Device {
	t.Helper()
	d := openNamed(t, *opentest.Name)
	if d.Properties().ComputeMajor == 0 {
		return emulation.NewDevice(t, d)
	}
	return d
}

// closed closes a state at the end of a test.
func closed(t testing.TB, s State) State {
	testkit.Close(t, s)
	return s
}

// TestLatticeState applies logs to a forest, and compares it with the plain one. Checkpoints,
// replays of the rest of the log in another process, and resets are part of the logs.
func TestLatticeState(t *testing.T) {
	d, r, disk := openCompiling(t), rand.New(rand.NewPCG(6, 4)), newDisk()
	want, made := make([]byte, forest.Len()), uint64(0)
	s := openStored(t, d, disk, forestText)
	digest := s.Info().Digest
	if s.Info().Cell != "custom" || s.Info().Agents != 9600 || s.Memory().Count() != 4 {
		t.Errorf("%+v, %d pages", s.Info(), s.Memory().Count())
	}
	for range 30 {
		switch r.IntN(5) {
		case 0:
			ids, to := make([]uint32, 1+r.IntN(5000)), []byte(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(len(want))), append(to, byte(r.IntN(3)))
				want[ids[i]] = to[i]
			}
			s.apply(func(s State) {
				a := mustApply(t, s, swarms.EntryObserve, alive(to, ids...))
				got, err := batch.DecodeAgentDecisions(a.Data)
				if err != nil || !slices.Equal(got.Agent, ids) {
					t.Fatalf("the answer to observations is %v, %v", got, err)
				}
			})
		case 1, 2:
			n, counted := 1+r.IntN(4), make([]uint64, 3)
			for range n {
				want = forest.StepFire(want, 99, made)
				made++
			}
			for _, c := range want {
				counted[c]++
			}
			s.apply(func(s State) {
				a := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n})
				if got := a.Ticked; got.Stepped != uint64(n)*9600 || !slices.Equal(got.Tally, counted) {
					t.Fatalf("%+v, want %d", got, counted)
				}
			})
		case 3:
			s.checkpoint()
		default:
			s.restart()
		}
		if got := gridStates(t, s); !bytes.Equal(got, want) {
			t.Fatal("the forest differs from the plain one")
		}
	}
	if made < 10 {
		t.Errorf("%d ticks", made)
	}
	if s.Info().Digest != digest {
		t.Error("the digest has changed")
	}
	s.Reduce(true)
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 2})
	if want = forest.StepFire(forest.StepFire(want, 99, made), 99, made+1); !bytes.Equal(gridStates(t, s), want) {
		t.Error("a reduced forest differs")
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
	if !bytes.Equal(gridStates(t, s), forest.StepFire(make([]byte, forest.Len()), 99, 0)) {
		t.Error("a forest does not begin anew after a reset")
	}
	s.end()
}

// TestLatticeDigest: pages of one step, grid, seed, parameter or vote are not read by another one.
func TestLatticeDigest(t *testing.T) {
	d, seen := openCompiling(t), map[string]string{}
	for what, change := range map[string][2]string{
		"itself":          {},
		"another step":    {"? 1 : 0", "? 2 : 0"},
		"another size":    {"height: 15", "height: 14"},
		"edges":           {"periodic: true", "periodic: false"},
		"faces":           {"periodic: true", "faces: true, periodic: true"},
		"another seed":    {"seed: 99", "seed: 98"},
		"a parameter":     {"growth: 0.25", "growth: 0.26"},
		"more state":      {"{state: u8}", "{state: u8, more: u8}"},
		"more is heard":   {"max: [state]", "max: [state], min: [state]"},
		"more candidates": {"tree, fire", "tree, fire, ash"},
	} {
		s := closed(t, openPaged(t, d, nil, strings.Replace(forestText, change[0], change[1], 1)))
		if other, ok := seen[s.Info().Digest]; ok {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[s.Info().Digest] = what
	}
}

// mixText is a cell with variables of all types. Observations set two of them.
const mixText = "name: x\naddressed: agent\ncell:\n  kind: custom\n  state: {a: u8, b: u64, c: f32}\n" +
	"  hear: {sum: [b]}\n  step: |\n" +
	"    __device__ void step(Agent &self, const Params &, const Around &around) { self.b += around.sum.b; }\n" +
	"neighbours: {width: 20, height: 30}\nfeatures: [c, b]\nvote: {by: b, candidates: [zero, one, more]}\n"

// TestLatticeBatch: a batch of several entries leaves what the entries leave one by one.
func TestLatticeBatch(t *testing.T) {
	d, r := openCompiling(t), rand.New(rand.NewPCG(6, 5))
	one, many := closed(t, openPaged(t, d, nil, mixText)), closed(t, openPaged(t, d, nil, mixText))
	ask := swarms.Query{Version: jobs.Version}
	for i := range uint32(600) {
		ask.Agents = append(ask.Agents, i)
	}
	for range 4 {
		m := many.NewBatch()
		var want []Answer
		for range 1 + r.IntN(4) {
			o := &batch.AgentObservations{Width: 2}
			for range r.IntN(300) {
				o.Agent = append(o.Agent, uint32(r.IntN(600)))
				o.Features = append(o.Features, r.Float32(), float32(r.IntN(1<<24)*r.IntN(1<<8)>>8<<30))
			}
			m.Add(Observations{Agents: o})
			want = append(want, mustApply(t, one, swarms.EntryObserve, o))
		}
		got, err := m.Observe(t.Context())
		if err != nil || len(got) != len(want) {
			t.Fatalf("Observe: %d answers, %v, want %d", len(got), err, len(want))
		}
		for i, a := range got {
			if a, err = a.Encoded(); err != nil || !bytes.Equal(a.Data, want[i].Data) {
				t.Fatalf("answer %d differs: %v", i, err)
			}
		}
		for _, s := range []State{one, many} {
			mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
		}
		this, that := mustApply(t, one, swarms.EntryQuery, ask), mustApply(t, many, swarms.EntryQuery, ask)
		if !bytes.Equal(this.Data, that.Data) {
			t.Fatal("the agents differ")
		}
	}
}

// TestLatticeRefuses: what a custom cell on a grid does not take is refused with the cure, and
// changes nothing.
func TestLatticeRefuses(t *testing.T) {
	s := closed(t, openPaged(t, openCompiling(t), nil, mixText))
	observe := func(id uint32, f ...float32) []byte {
		return encoded(t, &batch.AgentObservations{Agent: []uint32{id}, Features: f, Width: len(f)})
	}
	refusesAll(t, s, []refusal{
		{swarms.EntryObserve, observe(600, 1, 1), "observation 0 is for agent 600 of 600"},
		{swarms.EntryObserve, observe(1, 1), "observations have 1 features, the swarm takes 2"},
		{
			swarms.EntryObserve, observe(1, 1, 0.5),
			"observation 0: agent 1 has the b 0.5: use a whole number from 0 to below 2^64",
		},
		{swarms.EntryObserve, observe(1, 1, -1), "agent 1 has the b -1"},
		{swarms.EntryObserve, observe(1, float32(math.NaN()), 1), "agent 1 has the c NaN: use a finite number"},
		{swarms.EntryQuery, []byte(`{"v":1,"groups":[1]}`), "query: groups on a grid do not vote: name agents, or " +
			"ask swarm compute, as in sum(b) by group"},
		{swarms.EntryVote, []byte(`{"v":1,"round":1}`), "vote: agents on a grid do not vote"},
		{swarms.EntryFuse, []byte(`{"v":1,"by":"all"}`), "fuse: agents on a grid have no embeddings"},
		{"other", nil, `kind "other": this swarm does not take it`},
	})
}

// TestLatticeCannotBeServed: the host device compiles nothing and says so, a step that is no CUDA
// C++ is refused where the device compiles, and pages need room.
func TestLatticeCannotBeServed(t *testing.T) {
	spec, err := swarm.Parse("test.yaml", []byte(forestText))
	if err != nil {
		t.Fatal(err)
	}
	spec.PageSize = testPage
	refusal := func(d device.Device, b *pages.Budget, want string) {
		t.Helper()
		_, err := newWhole(d, b, spec, spec.Groups())
		var refused *jobs.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	refusal(openHost(t), nil, "custom cells are compiled when they are served, and host cannot do that: serve the "+
		"swarm with gpuagent --device cuda:0 --allow-custom-cells")
	refusal(openCompiling(t), pages.NewBudget(4*testPage, 1<<20), "")
	if d := openCompiling(t); d.Properties().ComputeMajor > 0 {
		spec.Cell.Step = strings.Replace(spec.Cell.Step, "self.uniform()", "self.uniformly()", 1)
		line := 1 + strings.Count(spec.Cell.Step[:strings.Index(spec.Cell.Step, "uniformly")], "\n")
		refusal(d, nil, fmt.Sprintf("step(%d): error", line))
	}
}

// TestLatticeCompute: expressions fold variables of agents and of groups, which are rows.
func TestLatticeCompute(t *testing.T) {
	s := closed(t, openPaged(t, openCompiling(t), nil, forestText))
	mustApply(t, s, swarms.EntryObserve, alive([]byte{2}, 1, 2, 3, 32*7+5, 9599))
	computes(t, s, map[string]byte{"sum(state)": 10, "sum(state) by group": 6})
	if _, vars := Variables(s); len(vars) == 0 || vars[0].Name != "state" {
		t.Errorf("the variables are %+v", vars)
	}
}
