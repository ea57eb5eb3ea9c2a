package state

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestPieces: swarms whose batches are cut, because they are reduced or because there is no room
// for more, answer as others do and have the same pages.
func TestPieces(t *testing.T) {
	for name, text := range pagedTexts {
		t.Run(name, func(t *testing.T) {
			d := faults.New(openHost(t))
			p := pair{whole: openPaged(t, openHost(t), nil, text), paged: openPaged(t, d, nil, text)}
			defer func() {
				if err := errors.Join(p.whole.Close(), p.paged.Close()); err != nil {
					t.Errorf("joined errors: %v, want no error", err)
				}
			}()
			r := rand.New(rand.NewPCG(5, 5))
			halved := map[string]int{}
			for i := range 150 {
				p.paged.Reduce(i%20 >= 10)
				e := randomEntry(t, r, p.whole)
				// more than a few observations, so that two halves are not the floor
				if i%3 == 0 && (e.Kind == swarms.EntryFuse || e.Kind == swarms.EntryObserve && len(e.Data) > 2200) {
					first := r.IntN(5)
					if s, ok := p.paged.(*agentState); ok && e.Kind == swarms.EntryObserve { // which allocates once
						first = 0
						if err := s.agents.StageAll(); err != nil {
							t.Fatalf("agents.StageAll: %v, want no error", err)
						}
					}
					d.Fail(faults.Alloc, first, 1+r.IntN(2), device.ErrOutOfMemory)
				}
				a, err := p.whole.Apply(t.Context(), e)
				b, gotErr := p.paged.Apply(t.Context(), e)
				if err != nil || gotErr != nil {
					t.Fatalf("entry %d, a %s: %v, %v", i, e.Kind, err, gotErr)
				}
				if a.Kind != b.Kind || !bytes.Equal(a.Data, b.Data) || a.Halved != 0 {
					t.Fatalf("entry %d, a %s, halved %d times: other answers", i, e.Kind, b.Halved)
				}
				halved[e.Kind] += b.Halved
				d.Heal()
			}
			p.check(t)
			// a fusion of other agents needs no memory of the device, and quantum has none
			a, addressed := p.paged.(*agentState)
			addressed = addressed && !a.agents.Cell().Measures()
			if halved[swarms.EntryObserve] == 0 || addressed && halved[swarms.EntryFuse] == 0 {
				t.Errorf("there was room for every batch: %v", halved)
			}
		})
	}
}

// TestPiecesFloor: a batch for which there is no room at all is an error of the device, and has
// changed nothing.
func TestPiecesFloor(t *testing.T) {
	d := faults.New(openHost(t))
	s := openGroupState(t, d, "name: x\nagents_per_group: 4\n", 3)
	d.Fail(faults.Alloc, 0, 1000, device.ErrOutOfMemory)
	obs := observations(rand.New(rand.NewPCG(1, 1)), 3, 50, 1)
	if _, halved, err := s.observe(t.Context(), obs); !errors.Is(err, gpubatch.ErrDevice) ||
		gpubatch.ClassOf(err) != gpubatch.ClassMemory || halved == 0 {
		t.Fatalf("halved %d times: %v", halved, err)
	}
	if s.memory.Made()[0] {
		t.Error("a page was made")
	}
}

// TestFewerFrames: a shard for whose pages the device has less room than the budget says takes
// fewer frames, and gives the others back.
func TestFewerFrames(t *testing.T) {
	d := faults.New(openHost(t))
	d.Room(5 * testPage)
	b := pages.NewBudget(100*testPage, 200*testPage)
	spec, err := swarm.Parse("test.yaml", []byte(pagedTexts["gru"]))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	spec.PageSize = testPage
	p, err := newWhole(d, b, spec, spec.Groups())
	if err != nil {
		t.Fatalf("newWhole: %v, want no error", err)
	}
	left, _ := b.Left()
	if n := p.Memory().Frames(); n > 5 || n < 2 || left != int64(100-n)*testPage {
		t.Errorf("%d frames, %d bytes left", n, left)
	}
	if err := p.Close(); err != nil {
		t.Errorf("p.Close: %v, want no error", err)
	}
	d.Room(testPage)
	if _, err := newWhole(d, b, spec, spec.Groups()); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("no room: %v", err)
	}
	if onDevice, inHost := b.Left(); onDevice != 100*testPage || inHost != 200*testPage {
		t.Errorf("%d and %d bytes left", onDevice, inHost)
	}
}
