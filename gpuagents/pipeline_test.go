package gpuagents

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// patient is a context for what must happen.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestStretches: what comes while the loop is busy is one stretch as far as its kind and the size allow, a refused entry in its place, and nothing is lost
// or overtaken.
func TestStretches(t *testing.T) {
	s := openWhole(t, openHost(t), nil, gruText, 0)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(patient(t))
	p, items, ended := &pipeline{next: make(chan *stretch), of: s}, make(chan item), make(chan struct{})
	go func() { defer close(ended); p.merge(ctx, items) }()
	defer func() { cancel(); <-ended }()
	r, seq := rand.New(rand.NewPCG(1, 1)), uint64(0)
	send := func(kind string, rows int) {
		t.Helper()
		seq++
		i := item{Entry: jobs.Entry{Seq: seq, Kind: kind}}
		switch {
		case kind == "":
			i.ended = jobs.ErrDrain
		case rows < 0:
			i.refused = jobs.Errorf(jobs.CodeInvalid, "bad")
		case kind == jobs.EntryObserve:
			i.observed = state.Observations{Agents: randomAgents(r, 3300, rows, 2)}
		}
		select {
		case items <- i:
		case <-ctx.Done():
			t.Fatal("the merging goroutine takes nothing")
		}
	}
	want := func(rows int, full bool, seqs ...uint64) {
		t.Helper()
		select {
		case got := <-p.next:
			var have []uint64
			for _, i := range got.items {
				have = append(have, i.Seq)
			}
			if !slices.Equal(have, seqs) || got.rows != rows || got.full != full {
				t.Fatalf("entries %v with %d rows, full %v; want %v with %d, %v", have, got.rows, got.full, seqs, rows, full)
			}
			if rows > 0 {
				answers, err := got.merged.Observe(ctx)
				merged := 0
				for _, a := range answers {
					merged += a.Observations
				}
				if err != nil || merged != rows {
					t.Fatalf("%d rows are merged of %d: %v", merged, rows, err)
				}
			}
		case <-ctx.Done():
			t.Fatal("no stretch")
		}
	}
	const observe, tick = jobs.EntryObserve, jobs.EntryTick
	p.most.Store(100)
	send(observe, 10)
	send(observe, 0)
	send(observe, -1)
	send(observe, 60)
	send(tick, 0)
	want(70, false, 1, 2, 3, 4)
	want(0, false, 5)
	send(observe, 40)
	send(observe, 60)
	send(observe, 1)
	want(100, true, 6, 7)
	send(observe, 99)
	send(observe, 500)
	want(100, true, 8, 9)
	send(observe, 1)
	want(500, true, 10)
	p.most.Store(0) // nothing is merged
	send(observe, 1)
	want(1, true, 11)
	send("", 0)
	want(1, false, 12)
	want(0, false, 13)
	p.most.Store(1 << 30)
	for range mostMerged + 1 {
		send(observe, 1)
	}
	got := <-p.next
	if len(got.items) != mostMerged || !got.full {
		t.Errorf("%d entries, full %v", len(got.items), got.full)
	}
}

// TestRoomOfEntries: what is taken is within the room, but for a single large thing; a wait ends when there is room again, and when it is given up.
func TestRoomOfEntries(t *testing.T) {
	r := newRoom()
	if err := r.take(patient(t), 2*roomBytes); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.take(gone, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("there was room: %v", err)
	}
	r.give(2 * roomBytes)
	ctx, taken := patient(t), make(chan error)
	const each, n = roomBytes / 4, 400
	go func() {
		for range n {
			taken <- r.take(ctx, each)
		}
	}()
	for under := 0; under < n; { // four may be there at once
		got := 0
		for ; got < 4 && under < n; got++ {
			if err := <-taken; err != nil {
				t.Fatal(err)
			}
			under++
		}
		r.mu.Lock()
		used := r.used
		r.mu.Unlock()
		if used > roomBytes {
			t.Fatalf("%d bytes are taken", used)
		}
		for range got {
			r.give(each)
		}
	}
	if query := (jobs.Entry{Kind: jobs.EntryQuery}); weigh(query) != jobs.MaxMessage || weigh(jobs.Entry{Kind: jobs.EntryObserve}) != roomBytes/roomEntries {
		t.Error("entries weigh something else")
	}
}
