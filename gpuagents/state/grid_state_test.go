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
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// gridText is a grid of three pages of testPage.
const gridText = "name: x\naddressed: agent\ncell: {kind: life}\nneighbours: {width: 96, height: 100, periodic: true}\n"

// alive are observations that give agents states.
func alive(states []byte, ids ...uint32) *batch.AgentObservations {
	o := &batch.AgentObservations{Width: 1, Agent: ids}
	for i := range ids {
		o.Features = append(o.Features, float32(states[i%len(states)]))
	}
	return o
}

// lifeOf makes a generation of the periodic grid of gridText, cell by cell.
func lifeOf(old []byte) []byte {
	const width, height = 96, 100
	next := make([]byte, len(old))
	for i := range old {
		n := 0
		for _, d := range []int{-97, -96, -95, -1, 1, 95, 96, 97} {
			dy := (d + 97) / 96 // the row of the neighbour, from the one above on
			dx := d - 96*(dy-1)
			n += int(old[(i/width+dy-1+height)%height*width+(i%width+dx+width)%width])
		}
		if n == 3 || n == 2 && old[i] == 1 {
			next[i] = 1
		}
	}
	return next
}

// gridStates queries all agents of a grid.
func gridStates(t testing.TB, s State) []byte {
	t.Helper()
	q := swarms.Query{Version: jobs.Version}
	for i := range s.Info().Agents {
		q.Agents = append(q.Agents, uint32(i))
	}
	found, err := batch.DecodeAgentStates(mustApply(t, s, swarms.EntryQuery, q).Data)
	if err != nil {
		t.Fatalf("DecodeAgentStates: %v, want no error", err)
	}
	for i, v := range found.Vote {
		if float32(v) != found.State[i] {
			t.Fatalf("agent %d: state %v, vote %d", i, found.State[i], v)
		}
	}
	return found.Vote
}

// TestGridState applies logs to a grid, and compares it with plain generations. Checkpoints,
// replays of the rest of the log in another process, and resets are part of the logs.
func TestGridState(t *testing.T) {
	d, r, disk := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(4, 2)), newDisk()
	want := make([]byte, 9600)
	s := openStored(t, d, disk, gridText)
	digest := s.Info().Digest
	for range 30 {
		switch r.IntN(5) {
		case 0, 1:
			ids, to := make([]uint32, 1+r.IntN(5000)), []byte(nil)
			for i := range ids {
				ids[i], to = uint32(r.IntN(len(want))), append(to, byte(r.IntN(2)))
				want[ids[i]] = to[i]
			}
			s.apply(func(s State) {
				a := mustApply(t, s, swarms.EntryObserve, alive(to, ids...))
				got, err := batch.DecodeAgentDecisions(a.Data)
				if err != nil || !slices.Equal(got.Vote, to) || !slices.Equal(got.Agent, ids) {
					t.Fatalf("the answer to observations is %v, %v", got, err)
				}
			})
		case 2:
			n, counted := 1+r.IntN(9), uint64(0)
			for range n {
				want = lifeOf(want)
			}
			for _, c := range want {
				counted += uint64(c)
			}
			s.apply(func(s State) {
				a := mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n})
				if got := a.Ticked; got.Stepped != uint64(n)*9600 || !slices.Equal(got.Tally,
					[]uint64{9600 - counted, counted}) {
					t.Fatalf("%+v, want %d alive", got, counted)
				}
			})
		case 3:
			s.checkpoint()
		default:
			s.restart()
		}
		if got := gridStates(t, s); !slices.Equal(got, want) {
			t.Fatal("the grid differs from the plain one")
		}
	}
	if s.Info().Digest != digest {
		t.Error("the digest has changed")
	}
	s.Reduce(true)
	mustApply(t, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 2})
	if got := gridStates(t, s); !slices.Equal(got, lifeOf(lifeOf(want))) {
		t.Error("a reduced grid differs")
	}
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(gridStates(t, s), 1) {
		t.Error("agents are alive after a reset")
	}
	s.end()
}

// TestGridBatch: a batch of several entries leaves what the entries leave one by one.
func TestGridBatch(t *testing.T) {
	d, r := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(4, 3))
	one, all := openPaged(t, d, nil, gridText), openPaged(t, d, nil, gridText)
	defer func() {
		if err := errors.Join(one.Close(), all.Close()); err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
	}()
	for range 5 {
		m := all.NewBatch()
		var want []Answer
		for range 1 + r.IntN(4) {
			ids, to := make([]uint32, r.IntN(300)), []byte{byte(r.IntN(2)), byte(r.IntN(2)), 1}
			for i := range ids {
				ids[i] = uint32(r.IntN(400))
			}
			o := alive(to, ids...)
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
		if !slices.Equal(gridStates(t, one), gridStates(t, all)) {
			t.Fatal("the grids differ")
		}
	}
}

// TestGridRefuses: what a grid does not take is refused with the cure, and changes nothing.
func TestGridRefuses(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, gridText))
	observe := func(id uint32, f ...float32) []byte {
		return encoded(t, &batch.AgentObservations{Agent: []uint32{id}, Features: f, Width: len(f)})
	}
	refusesAll(t, s, []refusal{
		{swarms.EntryObserve, observe(9600, 1), "observation 0 is for agent 9600 of 9600"},
		{
			swarms.EntryObserve, observe(1, 0.5),
			"observation 0: agent 1 has the state 0.5: use 0 for dead or 1 for alive",
		},
		{swarms.EntryObserve, observe(1, float32(math.NaN())), "observation 0: agent 1 has the state NaN"},
		{swarms.EntryObserve, observe(1, 1, 1), "observations have 2 features, the swarm takes 1"},
		{swarms.EntryTick, []byte(`{"v":1,"count":0}`), "tick: count 0: use 1 to 10000"},
		{swarms.EntryQuery, []byte(`{"v":1,"agents":[9600]}`), "query: agent 9600 of 9600"},
		{swarms.EntryQuery, []byte(`{"v":1,"groups":[1]}`), "query: groups on a grid do not vote"},
		{swarms.EntryQuery, []byte(`{"v":1,"outcome":true}`), "query: groups on a grid do not vote"},
		{swarms.EntryVote, []byte(`{"v":1,"round":1}`), "vote: agents on a grid do not vote"},
		{swarms.EntryFuse, []byte(`{"v":1,"by":"all"}`), "fuse: agents on a grid have no embeddings"},
		{"other", nil, `kind "other": this swarm does not take it`},
	})
}

// TestGridRoom: a grid whose pages have no room on the device is refused.
func TestGridRoom(t *testing.T) {
	spec, err := swarm.Parse("test.yaml", []byte(gridText))
	if err != nil {
		t.Fatal(err)
	}
	spec.PageSize = testPage
	_, err = newWhole(openHost(t), pages.NewBudget(2*testPage, 1<<20), spec, spec.Groups())
	var refused *jobs.Error
	if !errors.As(err, &refused) {
		t.Errorf("a grid of three pages in a budget of two: %v, want a refusal", err)
	}
}

// TestGridCompute: expressions fold the states of agents, and of groups, which are rows.
func TestGridCompute(t *testing.T) {
	s := closed(t, openPaged(t, openHost(t), nil, gridText))
	mustApply(t, s, swarms.EntryObserve, alive([]byte{1}, 1, 2, 3, 96*7+5, 96*99))
	computes(t, s, map[string]byte{"sum(alive)": 5, "sum(alive) by group": 3})
	if _, vars := Variables(s); len(vars) != 1 || fmt.Sprint(vars[0].Name) != "alive" {
		t.Errorf("the variables are %+v", vars)
	}
}

// refusal is an entry that a state refuses with a text.
type refusal struct {
	kind string
	data []byte
	says string
}

// refusesAll checks that a state without pages refuses entries, and makes no page.
func refusesAll(t *testing.T, s State, all []refusal) {
	t.Helper()
	for _, c := range all {
		_, err := s.Apply(t.Context(), swarms.Entry{Kind: c.kind, Data: c.data})
		var refused *jobs.Error
		if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid || !strings.Contains(refused.Message, c.says) {
			t.Errorf("%s: got %v, want %s", c.data, err, c.says)
		}
	}
	if slices.Contains(s.Memory().Made(), true) {
		t.Error("a refused entry has made a page")
	}
}

// computes checks the first byte of results of expressions.
func computes(t *testing.T, s State, want map[string]byte) {
	t.Helper()
	for text, want := range want {
		a := mustApply(t, s, swarms.EntryCompute, swarms.Compute{Version: jobs.Version, Text: text})
		got, err := swarms.DecodeComputed(a.Data)
		if err != nil || got.Outputs[0].Bits[0] != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// stored is a state over a store of pages. It keeps the entries since the last checkpoint.
type stored struct {
	State
	t    *testing.T
	end  func() // closes the state and the store
	open func() (State, func())
	rest []func(s State)
}

func openStored(t *testing.T, d device.Device, on *disk, text string) *stored {
	t.Helper()
	s := &stored{t: t, open: func() (State, func()) {
		s, store := openPaged(t, d, pages.NewBudget(1<<20, 0), text), on.open(t)
		if err := errors.Join(s.Memory().Open(t.Context(), store), s.Restored(t.Context())); err != nil {
			t.Fatalf("Open: %v, want no error", err)
		}
		return s, func() {
			if err := errors.Join(s.Close(), store.Close()); err != nil {
				t.Fatalf("Close: %v, want no error", err)
			}
		}
	}}
	s.State, s.end = s.open()
	return s
}

func (s *stored) apply(entry func(s State)) {
	entry(s.State)
	s.rest = append(s.rest, entry)
}

// applyBoth applies an entry to another state too, and compares the answers.
func (s *stored) applyBoth(plain State, entry func(s State) []byte) {
	s.t.Helper()
	var got []byte
	s.apply(func(s State) { got = entry(s) })
	if !slices.Equal(got, entry(plain)) {
		s.t.Fatal("the answers differ")
	}
}

func (s *stored) checkpoint() {
	s.t.Helper()
	if err := s.Memory().Checkpoint(s.t.Context(), nil); err != nil {
		s.t.Fatalf("Checkpoint: %v, want no error", err)
	}
	s.rest = nil
}

// restart ends the process. Another one continues from the checkpoint, and replays the rest of the
// log.
func (s *stored) restart() {
	s.end()
	s.State, s.end = s.open()
	for _, entry := range s.rest {
		entry(s.State)
	}
}
