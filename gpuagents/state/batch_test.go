package state

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// crowded are observations of few groups: each of several entries has some of the same, often with
// an agent that has several.
func crowded(r *rand.Rand, p State) swarms.Entry {
	var v interface{ Encode() ([]byte, error) }
	switch p := p.(type) {
	case *agentState:
		size := p.agents.Cell().Agents
		first := r.IntN(p.agents.Groups()-2) * size
		o := randomFor(r, 3*size, r.IntN(60), p.agents.Cell())
		for i := range o.Agent {
			o.Agent[i] += uint32(first)
		}
		v = o
	case *groupState:
		v = observations(r, 1+r.IntN(4), 1+r.IntN(30), p.inputs)
	}
	data, err := v.Encode()
	if err != nil {
		panic(err)
	}
	return swarms.Entry{Kind: swarms.EntryObserve, Data: data}
}

// together applies entries of observations as one batch.
func together(ctx context.Context, p State, all []swarms.Entry) ([]Answer, error) {
	m := p.NewBatch()
	for _, e := range all {
		o, err := p.Decode(e.Data)
		if err != nil {
			return nil, err
		}
		m.Add(o)
	}
	answers, err := m.Observe(ctx)
	for i := range answers {
		var eerr error
		answers[i], eerr = answers[i].Encoded()
		err = errors.Join(err, eerr)
	}
	return answers, err
}

// TestMerged: entries that are applied together have the answers, and leave the pages, of one at a
// time: of groups that several of them address, with a frame for each page and with few, in parts,
// and where the device has too little memory for all at once.
func TestMerged(t *testing.T) {
	for name, text := range pagedTexts {
		for memory, frames := range map[string][2]int64{
			"resident": {20, 20}, "few frames": {4, 96},
			"two frames": {2, 140},
		} {
			t.Run(name+", "+memory, func(t *testing.T) {
				d := openHost(t)
				open := func(b *pages.Budget) State {
					p := openPaged(t, d, b, text)
					testkit.Close(t, p)
					return p
				}
				p, twin := open(pages.NewBudget(frames[0]*testPage, frames[1]*testPage)), open(nil)
				for seed := range uint64(testkit.Of(8, 3)) {
					r := rand.New(rand.NewPCG(seed, 7))
					entry := randomEntry
					if _, groups := p.(*groupState); groups || seed%2 == 0 { // their steps take long
						entry = func(_ testing.TB, r *rand.Rand, p State) swarms.Entry { return crowded(r, p) }
					}
					var all []swarms.Entry
					for n := 1 + r.IntN(9); len(all) < n; {
						if e := entry(t, r, p); e.Kind == swarms.EntryObserve {
							all = append(all, e)
						}
					}
					p.Reduce(seed%5 == 4)
					if s, ok := p.(*agentState); ok { // some entries are long
						agents.SurveyFrom(s.agents, 1+r.IntN(60))
					}
					got, err := together(t.Context(), p, all)
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					want := applyAll(t, twin, all)
					if d := diff(want, got, cmp.AllowUnexported(Answer{})); d != "" {
						t.Fatalf("seed %d: %s", seed, d)
					}
				}
				if !bytes.Equal(contents(t, p.Memory()), contents(t, twin.Memory())) {
					t.Error("the pages differ")
				}
				if s, ok := p.(*agentState); ok {
					tick := swarms.Tick{Version: jobs.Version, Count: 1}
					if d := diff(mustApply(t, twin, swarms.EntryTick, tick),
						mustApply(t, s, swarms.EntryTick, tick),
						cmp.AllowUnexported(Answer{})); d != "" {
						t.Errorf("difference (-want +got):\n%s", d)
					}
				}
			})
		}
	}
}

// TestMergedHalved: a batch that the device has no memory for is cut, and has the same answers as
// one entry at a time.
func TestMergedHalved(t *testing.T) {
	for name, text := range pagedTexts {
		t.Run(name, func(t *testing.T) {
			d := faults.New(openHost(t))
			p, twin := openPaged(t, d, nil, text), openPaged(t, openHost(t), nil, text)
			defer func() {
				if err := errors.Join(p.Close(), twin.Close()); err != nil {
					t.Errorf("joined errors: %v, want no error", err)
				}
			}()
			r := rand.New(rand.NewPCG(1, 1))
			for range 4 { // each halves what fitted before
				var all []swarms.Entry
				for range 20 {
					all = append(all, crowded(r, p))
				}
				first, err := r.IntN(3), error(nil)
				switch p := p.(type) {
				case *groupState:
					err = p.trim()
				case *agentState: // which allocates once
					first = 0
					agents.SurveyFrom(p.agents, []int{1, 1 << 20}[r.IntN(2)])
					err = p.agents.StageAll()
				}
				if err != nil {
					t.Fatalf("%v, want no error", err)
				}
				d.Fail(faults.Alloc, first, 1, device.ErrOutOfMemory)
				got, err := together(t.Context(), p, all)
				if err != nil || got[0].Halved == 0 {
					t.Fatalf("%d answers: %v", len(got), err)
				}
				d.Heal()
				got[0].Halved = 0
				if d := diff(applyAll(t, twin, all), got, cmp.AllowUnexported(Answer{})); d != "" {
					t.Fatalf("difference (-want +got):\n%s", d)
				}
			}
			if !bytes.Equal(contents(t, p.Memory()), contents(t, twin.Memory())) {
				t.Error("the pages differ")
			}
		})
	}
}

// TestMergeKeepsMessages: what is merged behind an entry does not change the entry's own columns.
func TestMergeKeepsMessages(t *testing.T) {
	s := openAgentState(t, openHost(t), gruText)
	one := &batch.AgentObservations{Agent: make([]uint32, 2, 9), Features: make([]float32, 4, 99), Width: 2}
	behind := one.Agent[2:9]
	m := s.NewBatch()
	m.Add(Observations{Agents: one})
	m.Add(Observations{Agents: &batch.AgentObservations{
		Agent: []uint32{7, 8}, Features: []float32{1, 2, 3, 4},
		Width: 2,
	}})
	if _, err := m.Observe(t.Context()); err != nil || slices.Max(behind) != 0 ||
		!slices.Equal(one.Agent, []uint32{0, 0}) {
		t.Fatalf("the first entry has agents %v, changed elements %v, %v, want it unchanged", one.Agent, behind, err)
	}
}
