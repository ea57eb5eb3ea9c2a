package state

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// swapTexts are the specifications of cells with different variables.
var swapTexts = map[string]string{
	"predictor": "name: x\nagents_per_group: 16\npage_size: 64KiB\n",
	"lif":       "name: x\nagents_per_group: 40\ncell: {kind: lif}\npage_size: 64KiB\n",
	"gru":       "name: x\nagents_per_group: 8\ncell: {kind: gru, params: {hidden: 4}}\npage_size: 64KiB\n",
	"late":      "name: x\nagents_per_group: 16\npage_size: 64KiB\nobservations: {late: drop, duplicate: drop}\n",
}

// swapper gives few groups to many entities, the one after the other.
type swapper struct {
	t      *testing.T
	s      State
	groups map[uint32]uint32 // by entity
	held   []uint32          // entities by group, plus 1; 0: none
	states map[uint32][]byte // of entities without a group
	swaps  int
}

// place gives an entity a group, at random among the groups outside of busy.
func (w *swapper) place(r *rand.Rand, entity uint32, busy map[uint32]bool) uint32 {
	w.t.Helper()
	if g, ok := w.groups[entity]; ok {
		return g
	}
	g := uint32(r.IntN(len(w.held)))
	for busy[g] {
		g = uint32(r.IntN(len(w.held)))
	}
	ask := swarms.SwapGroup{Group: g, State: w.states[entity]}
	if old := w.held[g]; old > 0 {
		ask.Tag = string(rune('A' + old))
	}
	data, err := json.Marshal(swarms.NewSwap([]swarms.SwapGroup{ask}))
	if err != nil {
		w.t.Fatalf("json.Marshal: %v", err)
	}
	a, err := w.s.Apply(w.t.Context(), swarms.Entry{Kind: swarms.EntrySwap, Data: data})
	if err != nil || a.Kind != swarms.EntrySwapped {
		w.t.Fatalf("Apply of a swap returns %+v, %v", a, err)
	}
	got, err := swarms.DecodeSwapped(a.Data)
	if err != nil {
		w.t.Fatalf("DecodeSwapped: %v", err)
	}
	if old := w.held[g]; old > 0 {
		if len(got.States) != 1 || got.States[0].Tag != ask.Tag {
			w.t.Fatalf("the answer is %+v, want the state of %q", got, ask.Tag)
		}
		w.states[old-1] = got.States[0].State
		delete(w.groups, old-1)
	}
	w.held[g], w.groups[entity] = entity+1, g
	w.swaps++
	return g
}

// decide applies observations of entities to their groups.
func (w *swapper) decide(r *rand.Rand, o *batch.Observations) *batch.Decisions {
	w.t.Helper()
	moved, busy := *o, map[uint32]bool{}
	moved.Group = nil
	for _, e := range o.Group {
		g := w.place(r, e, busy)
		busy[g] = true
		moved.Group = append(moved.Group, g)
	}
	return decide(w.t, w.s, &moved)
}

// decide applies observations.
func decide(t *testing.T, s State, o *batch.Observations) *batch.Decisions {
	t.Helper()
	data, err := o.Encode()
	if err != nil {
		t.Fatalf("Observations.Encode: %v", err)
	}
	a, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntryObserve, Data: data})
	if err != nil {
		t.Fatalf("Apply of observations: %v", err)
	}
	got, err := batch.DecodeDecisions(a.Data)
	if err != nil {
		t.Fatalf("DecodeDecisions: %v", err)
	}
	return got
}

// TestSwap: entities that give their groups to others and return with their states are decided as
// if each had a group of its own.
func TestSwap(t *testing.T) {
	for name, text := range swapTexts {
		t.Run(name, func(t *testing.T) {
			const entities, groups = 30, 7
			d, r := openNamed(t, *opentest.Name), rand.New(rand.NewPCG(5, 5))
			whole := openGroupState(t, d, text, entities)
			w := &swapper{
				t: t, s: openGroupState(t, d, text, groups), groups: map[uint32]uint32{}, held: make([]uint32, groups),
				states: map[uint32][]byte{},
			}
			rows := testkit.Of(600, 300)
			o := observations(r, entities, rows, 1)
			for at := 0; at < rows; {
				end := min(rows, at+1+r.IntN(5)) // fewer rows than groups
				part := cut(o, at, end)
				want, got := decide(t, whole, part), w.decide(r, part)
				agents := uint64(whole.layout.Agents)
				for i := range want.Len() {
					if got.Score[i] != want.Score[i] || got.Decision[i] != want.Decision[i] ||
						got.Round[i] != want.Round[i] || got.Leader[i]%agents != want.Leader[i]%agents {
						t.Fatalf("row %d of entity %d has score %v, decision %d, round %d, want %v, %d, %d", at+i,
							part.Group[i], got.Score[i], got.Decision[i], got.Round[i], want.Score[i], want.Decision[i],
							want.Round[i])
					}
				}
				at = end
			}
			if w.swaps < rows/3 {
				t.Errorf("%d swaps, want more than %d", w.swaps, rows/3)
			}
		})
	}
}

// TestSwapRefuses: a swap that does not fit the swarm is refused, and changes nothing.
func TestSwapRefuses(t *testing.T) {
	s := openGroupState(t, openHost(t), swapTexts["predictor"], 9)
	decide(t, s, observations(rand.New(rand.NewPCG(6, 6)), 9, 100, 1))
	before := contents(t, s.Memory())
	long := strings.Repeat("x", swarms.MaxTag+1)
	for data, want := range map[string]string{
		`{"v":1,"groups":[{"group":0},{"group":9}]}`:               "swap: group 9 of 9",
		`{"v":1,"groups":[{"group":0},{"group":1},{"group":0}]}`:   "swap: group 0 is named twice",
		`{"v":1,"groups":[{"group":0},{"group":1,"state":"AA="}]}`: "illegal base64",
		`{"v":1,"groups":[{"group":0},{"group":1,"state":"AAAA"}]}`: "a state of 3 bytes: the groups of this " +
			"swarm have",
		`{"v":1,"groups":[]}`: "swap: 0 groups",
		`{"v":1,"groups":[{"group":0,"tag":"` + long + `"}]}`: "a tag of 4097 bytes",
		`{"v":2,"groups":[{"group":0}]}`:                      "protocol version 2",
		`{"v":1,"groups":[{"group":0,"agent":1}]}`:            `unknown field "agent"`,
	} {
		_, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntrySwap, Data: []byte(data)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Apply of %.80s returns %v, want %s", data, err, want)
		}
	}
	if string(contents(t, s.Memory())) != string(before) {
		t.Error("a swap that was refused has changed a state")
	}
	many := make([]swarms.SwapGroup, 9)
	for i := range many {
		many[i] = swarms.SwapGroup{Group: uint32(i), Tag: strings.Repeat("t", swarms.MaxTag)}
	}
	data, err := json.Marshal(swarms.NewSwap(many))
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	if _, err := s.Apply(t.Context(), swarms.Entry{Kind: swarms.EntrySwap, Data: data}); err != nil {
		t.Errorf("Apply of a swap of all groups: %v", err)
	}
	if string(contents(t, s.Memory())) == string(before) {
		t.Error("a swap without states leaves the states of the groups")
	}
}
