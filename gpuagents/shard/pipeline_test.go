package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// patient is a context for what must happen.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestEntryBatches: what comes while the loop is busy is one batch as far as its kind and the size
// allow, a refused entry in its place, and nothing is lost or overtaken.
func TestEntryBatches(t *testing.T) {
	s := openWhole(t, launches.Host(t), nil, gruText, 0)
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("s.Close: %v, want no error", err)
		}
	}()
	ctx, cancel := context.WithCancel(patient(t))
	p := &pipeline{next: make(chan *entryBatch), state: s}
	items, ended := make(chan (<-chan logEntry)), make(chan struct{})
	go func() { defer close(ended); p.merge(ctx, items) }()
	defer func() { cancel(); <-ended }()
	r, seq := rand.New(rand.NewPCG(1, 1)), uint64(0)
	send := func(kind string, rows int) {
		t.Helper()
		seq++
		i := logEntry{Entry: swarms.Entry{Seq: seq, Kind: kind}}
		switch {
		case kind == "":
			i.ended = jobs.ErrDrain
		case rows < 0:
			i.refused = jobs.Errorf(jobs.CodeInvalid, "bad")
		case kind == swarms.EntryObserve:
			i.observed = state.Observations{Agents: randomAgents(r, 3300, rows, 2)}
		}
		decoded := make(chan logEntry, 1)
		decoded <- i
		select {
		case items <- decoded:
		case <-ctx.Done():
			t.Fatal("the merging goroutine takes nothing")
		}
	}
	want := func(rows int, full bool, seqs ...uint64) {
		t.Helper()
		select {
		case got := <-p.next:
			var have []uint64
			for _, i := range got.entries {
				have = append(have, i.Seq)
			}
			if !slices.Equal(have, seqs) || got.rows != rows || got.full != full {
				t.Fatalf("entries %v with %d rows, full %v; want %v with %d, %v", have, got.rows, got.full, seqs, rows,
					full)
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
			t.Fatal("no batch")
		}
	}
	const observe, tick = swarms.EntryObserve, swarms.EntryTick
	p.limit.Store(100)
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
	p.limit.Store(0) // nothing is merged
	send(observe, 1)
	want(1, true, 11)
	send("", 0)
	want(1, false, 12)
	want(0, false, 13)
	p.limit.Store(1 << 30)
	for range maxMerged + 1 {
		send(observe, 1)
	}
	got := <-p.next
	if len(got.entries) != maxMerged || !got.full {
		t.Errorf("%d entries, full %v", len(got.entries), got.full)
	}
}

// TestInFlight: the bytes in flight stay within the bound, except for a single large entry. A wait
// ends when bytes are free again, and when its context ends.
func TestInFlight(t *testing.T) {
	r := newInFlight()
	testkit.NoError(t, "r.acquire", r.acquire(patient(t), 2*inFlightBytes))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.acquire(gone, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("there was room: %v", err)
	}
	r.release(2 * inFlightBytes)
	ctx, taken := patient(t), make(chan error)
	const each, n = inFlightBytes / 4, 400
	go func() {
		for range n {
			taken <- r.acquire(ctx, each)
		}
	}()
	for under := 0; under < n; { // four may be there at once
		got := 0
		for ; got < 4 && under < n; got++ {
			testkit.NoError(t, "take", <-taken)
			under++
		}
		if got == 4 {
			select {
			case <-taken:
				t.Fatal("more bytes are in flight than the bound")
			default:
			}
		}
		for range got {
			r.release(each)
		}
	}
	if query := (swarms.Entry{Kind: swarms.EntryQuery}); weightOf(query) != jobs.MaxMessage ||
		weightOf(swarms.Entry{Kind: swarms.EntryObserve}) != inFlightBytes/inFlightEntries {
		t.Error("entries weigh something else")
	}
	many := &batch.AgentObservations{Agent: make([]uint32, 65536), Features: make([]float32, 65536), Width: 1}
	data, err := many.Pack()
	if err != nil || len(data) > 10_000 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if w := weightOf(swarms.Entry{Kind: swarms.EntryObserve, Data: data}); w != 8*65536 {
		t.Errorf("65,536 observations in %d bytes weigh %d", len(data), w)
	}
}
