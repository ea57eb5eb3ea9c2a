package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestApplyAnswers: every entry of a batch has its own answer, in order; a refused one has the
// reason; one that was answered before has none, and gives back its room.
func TestApplyAnswers(t *testing.T) {
	d := launches.Host(t)
	for _, replayed := range []uint64{0, 3, 4, 5, 9} {
		s := newTestLoop(t, d, &ledger{waits: true}, replayed, nil)
		testkit.NoError(t, "inFlight.acquire", s.inFlight.acquire(t.Context(), 60))
		testkit.NoError(t, "s.apply", s.apply(t.Context(), batchOf(s.p, 3, 6, 5, 8)))
		testkit.NoError(t, "answers.flush", s.answers.flush(t.Context()))
		if s.inFlight.any() {
			t.Error("room is not given back")
		}
		if applied, rejected, batches := s.gauge(t, "exoswarm_swarm_observations_total"), s.gauge(t,
			"exoswarm_swarm_rejected_entries_total"), s.gauge(t, "exoswarm_swarm_batch_observations"); applied != 8 ||
			rejected != 2 || batches != 1 {
			t.Errorf("%v observations, %v refusals and %v batches are counted", applied, rejected, batches)
		}
		if limit := s.gauge(t, "exoswarm_swarm_batch_limit"); limit <= 0 || int64(limit) != s.pipe.limit.Load() {
			t.Errorf("the limit is %v, and %d holds", limit, s.pipe.limit.Load())
		}
		testkit.NoError(t, "s.close", s.close())
		if limit := s.gauge(t, "exoswarm_swarm_batch_limit"); limit != 0 {
			t.Errorf("the limit of a closed loop is %v", limit)
		}
		got := s.out.entries()[replayed:]
		want := max(replayed+1, 3)
		for _, e := range got {
			if e.Ref != want {
				t.Fatalf("behind answers to %d: an answer to %d, want %d", replayed, e.Ref, want)
			}
			refused := want == 5 || want == 8
			var why jobs.Error
			if refused && (e.Kind != swarms.EntryRejected || json.Unmarshal(e.Data, &why) != nil ||
				why.Message != fmt.Sprintf("log entry %d: bad %d", want, want)) || !refused &&
				(e.Kind != swarms.EntryDecide || string(e.Data) != fmt.Sprint(want)) {
				t.Errorf("the answer to %d: %s %s", want, e.Kind, e.Data)
			}
			want++
		}
		if last := max(replayed, 8); want != last+1 {
			t.Errorf("behind answers to %d: the last answer is to %d, want %d", replayed, want-1, last)
		}
		if n := len(s.spans.Ended()); n != len(got) {
			t.Errorf("behind answers to %d: %d spans for %d answers", replayed, n, len(got))
		}
	}
}

// TestApplyNamesEntries: an error that ends the work says at which entries, and ends their spans.
func TestApplyNamesEntries(t *testing.T) {
	d := launches.Host(t)
	broken := errors.New("broken")
	for n, want := range map[uint64]string{
		1: "log entry 7: broken", 2: "log entries 7 to 8: broken",
		5: "log entries 7 to 11: broken",
	} {
		s := newTestLoop(t, d, &ledger{waits: true}, 0, nil)
		s.p.fail = broken
		if err := s.apply(t.Context(), batchOf(s.p, 7, n)); !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if got := s.spans.Ended(); uint64(len(got)) != n || got[0].Status().Description != "broken" {
			t.Errorf("%d spans for %d entries", len(got), n)
		}
		if n == 1 {
			if err := s.apply(t.Context(), &entryBatch{entries: []logEntry{{Entry: swarms.Entry{
				Seq:  4,
				Kind: swarms.EntryTick,
			}}}}); err == nil || err.Error() != "log entry 4: broken" {
				t.Errorf("%v, want the error of log entry 4", err)
			}
		}
		if err := s.close(); err != nil || len(s.out.all) != 0 {
			t.Errorf("%d answers: %v", len(s.out.all), err)
		}
	}
}

// TestNothingToObserve: if every entry of a batch was refused, nothing goes to the device.
func TestNothingToObserve(t *testing.T) {
	s := newTestLoop(t, launches.Host(t), &ledger{waits: true}, 0, nil)
	s.p.fail = errors.New("it was asked")
	testkit.NoError(t, "inFlight.acquire", s.inFlight.acquire(t.Context(), 20))
	testkit.NoError(t, "s.apply", s.apply(t.Context(), batchOf(s.p, 1, 2, 1, 2)))
	if n := s.gauge(t, "exoswarm_swarm_batch_observations"); n != 0 {
		t.Errorf("%v batches", n)
	}
	if err := s.close(); err != nil || len(s.out.all) != 2 {
		t.Errorf("%d answers: %v", len(s.out.all), err)
	}
}

// TestServe: a shard reads its log to the end, answers every entry once, and stores what was
// applied when it ends, when the agent drains and when the shard moves, and not when the lease is
// lost.
func TestServe(t *testing.T) {
	d := launches.Host(t)
	lost := errors.New("the lease is lost")
	for name, c := range map[string]struct {
		cause    error // that the work ends with; nil: the log ends
		answered uint64
		refuse   []uint64
		stored   uint64
	}{
		"end": {nil, 0, nil, 5}, "end, answered before": {nil, 5, nil, 5}, "end, some answered before": {
			nil, 3,
			[]uint64{4},
			5,
		}, "refused": {nil, 0, []uint64{1, 3}, 5},
		"drain": {jobs.ErrDrain, 0, nil, 4}, "move": {ErrMoved, 2, nil, 4}, "lost": {lost, 0, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := ticks(4)
			in.waits = true
			if c.cause == nil {
				in.all = append(in.all, swarms.Entry{Seq: 5, Kind: swarms.EntryEnd, Data: []byte("{}")})
			}
			keep := newShelf(t, newDisk())
			keep.entries = 1000
			s := newTestLoop(t, d, in, c.answered, keep.checkpoint)
			s.p.refuse = c.refuse
			testkit.NoError(t, "Open", s.p.Memory().Open(t.Context(), keep.store))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error)
			go func() { ended <- s.serve(ctx) }()
			if c.cause != nil {
				testkit.Until(t, "every entry has its answer", func() bool { return len(s.out.entries()) >= 4 })
				cancel(c.cause)
			}
			if err := <-ended; !errors.Is(err, c.cause) || c.cause == nil && err != nil {
				t.Errorf("%v, want %v", err, c.cause)
			}
			testkit.NoError(t, "s.close", s.close())
			if s.at != uint64(len(in.all)) || keep.stored != c.stored || in.readers != 0 {
				t.Errorf("applied is entry %d, stored %d, want %d; %d readers", s.at, keep.stored, c.stored, in.readers)
			}
			got := s.out.entries()
			for i, e := range got {
				if e.Ref != uint64(i+1) {
					t.Errorf("answer %d is to entry %d", i+1, e.Ref)
				}
				want := map[bool]string{true: swarms.EntryRejected, false: swarms.EntryTicked}[slices.Contains(c.refuse,
					e.Ref)]
				if e.Ref == 5 {
					want = swarms.EntryEnd
				}
				if e.Ref > c.answered && e.Kind != want {
					t.Errorf("the answer to entry %d is %s %s", e.Ref, e.Kind, e.Data)
				}
			}
			if len(got) != len(in.all) {
				t.Errorf("%d answers to %d entries", len(got), len(in.all))
			}
			if finished := strings.Contains(s.log.String(), "shard finished"); finished != (c.cause == nil) {
				t.Errorf("logged: %s", &s.log)
			}
		})
	}
}

// TestServeFails: a shard ends with the error of its log, its agents or its checkpoint. If an
// answer cannot be stored, only closing returns an error.
func TestServeFails(t *testing.T) {
	d := launches.Host(t)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		change       func(s *testLoop, keep *shelf)
		served, shut error
	}{
		"log":    {func(*testLoop, *shelf) {}, jobs.ErrNotFound, nil},
		"agents": {func(s *testLoop, _ *shelf) { s.p.fail = broken }, broken, nil},
		"checkpoint": {
			func(_ *testLoop, keep *shelf) { keep.opened.commit = fmt.Errorf("%w: %w", gpubatch.ErrDevice, broken) },
			broken, nil,
		},
		"answers": {func(s *testLoop, _ *shelf) { s.out.fail = broken }, nil, broken},
	} {
		t.Run(name, func(t *testing.T) {
			in := ticks(4)
			in.waits = name != "log"
			keep := newShelf(t, newDisk())
			keep.entries = 4
			s := newTestLoop(t, d, in, 0, keep.checkpoint)
			testkit.NoError(t, "Open", s.p.Memory().Open(t.Context(), keep.store))
			c.change(s, keep)
			if name == "answers" {
				keep.entries = 1000
			}
			err := s.serve(t.Context())
			if !errors.Is(err, c.served) || c.served == nil && err != nil {
				t.Errorf("serve: %v, want %v", err, c.served)
			}
			if err := s.close(); !errors.Is(err, c.shut) || c.shut == nil && err != nil {
				t.Errorf("close: %v, want %v", err, c.shut)
			}
		})
	}
}

// TestServeParks: a shard that is asked to park while nothing is under way leaves what its state is
// of, and one with a checkpoint stores it.
func TestServeParks(t *testing.T) {
	d := launches.Host(t)
	for _, stores := range []bool{false, true} {
		in := ticks(4)
		in.waits = true
		var keep *shelf
		var k *checkpoint
		if stores {
			keep = newShelf(t, newDisk())
			keep.entries = 1000
			k = keep.checkpoint
		}
		s := newTestLoop(t, d, in, 0, k)
		var store pages.Store
		if stores {
			store = keep.store
		}
		testkit.NoError(t, "Open", s.p.Memory().Open(t.Context(), store))
		ended := make(chan error)
		go func() { ended <- s.serve(t.Context()) }()
		testkit.Until(t, "every entry has its answer", func() bool { return len(s.out.entries()) >= 4 })
		var err error
		for err == nil { // It continues where something is under way.
			select {
			case s.open.park <- struct{}{}:
			case err = <-ended:
			}
		}
		var r *Rest
		if !errors.As(err, &r) || r.Entry != 4 || r.Stored != stores || stores && keep.stored != 4 {
			t.Errorf("%v: %+v, want a rest at entry 4, stored: %t", err, r, stores)
		}
		if err := s.close(); err != nil {
			t.Errorf("s.close: %v, want no error", err)
		}
	}
}

// TestResize: batches are of the size that is measured, and one entry each while the device is
// reduced.
func TestResize(t *testing.T) {
	s := newTestLoop(t, launches.Host(t), &ledger{waits: true}, 0, nil)
	most := int64(s.size.Most())
	for _, reduced := range []bool{false, true, false} {
		s.place.reduced = reduced
		s.resize()
		want := most
		if reduced {
			want = 0
		}
		got, limit := s.pipe.limit.Load(), s.gauge(t, "exoswarm_swarm_batch_limit")
		if cut := s.p.cut[len(s.p.cut)-1]; got != want || limit != float64(want) || cut != reduced ||
			most == 0 {
			t.Errorf("reduced %v: %d observations, a limit of %v, cut %v; want %d", reduced, got, limit, cut, want)
		}
	}
	s.place.reduced = true
	testkit.NoError(t, "inFlight.acquire", s.inFlight.acquire(t.Context(), 10))
	if err := s.apply(t.Context(), batchOf(s.p, 1, 1)); err != nil || s.pipe.limit.Load() != 0 {
		t.Errorf("the loop does not look at the level: %v", err)
	}
	if err := s.close(); err != nil {
		t.Errorf("s.close: %v, want no error", err)
	}
}

// TestSnapshotIsBehindAnswers: a snapshot is taken when every entry before it has its answer in the
// log, and not at all when one cannot be stored. An entry that only asks is not applied again.
func TestSnapshotIsBehindAnswers(t *testing.T) {
	d := launches.Host(t)
	for _, fail := range []error{nil, errors.New("no server")} {
		s := newTestLoop(t, d, &ledger{waits: true}, 0, nil)
		s.out.enter, s.out.leave, s.out.fail = make(chan struct{}), make(chan struct{}), fail
		stored := -1
		s.p.during = func() { stored = len(s.out.entries()) }
		testkit.NoError(t, "inFlight.acquire", s.inFlight.acquire(t.Context(), 1))
		s.answers.put([]pendingAnswer{done(1)})
		<-s.out.enter
		ended := make(chan error)
		var given []state.Answer
		go func() {
			ended <- s.applyOne(t.Context(), &logEntry{Entry: swarms.Entry{Seq: 2, Kind: swarms.EntrySnapshot}}, &given)
		}()
		s.out.leave <- struct{}{}
		if err := <-ended; !errors.Is(err, fail) || fail == nil && (stored != 1 || len(given) != 1) || fail != nil &&
			stored != -1 {
			t.Errorf("%v; %d answers were stored at the snapshot", err, stored)
		}
		if err := s.close(); !errors.Is(err, fail) {
			t.Errorf("s.close: %v, want %v", err, fail)
		}
	}
	s := newTestLoop(t, d, &ledger{waits: true}, 4, nil)
	for _, seq := range []uint64{3, 4, 5} {
		for _, kind := range []string{swarms.EntryQuery, swarms.EntryTick} {
			s.p.seen = nil
			var given []state.Answer
			e := &logEntry{Entry: swarms.Entry{Seq: seq, Kind: kind}}
			testkit.NoError(t, "s.applyOne", s.applyOne(t.Context(), e, &given))
			if applied := kind == swarms.EntryTick || seq > 4; applied != (len(s.p.seen) == 1) ||
				applied != (len(given) == 1) {
				t.Errorf("%s %d behind answers to 4: applied %v, %d answers", kind, seq, s.p.seen, len(given))
			}
		}
	}
	if err := s.close(); err != nil {
		t.Errorf("s.close: %v, want no error", err)
	}
}

// TestReplayedQuestion: a question that has its answer gets none again, and gives back its room.
func TestReplayedQuestion(t *testing.T) {
	s := newTestLoop(t, launches.Host(t), &ledger{waits: true}, 4, nil)
	testkit.NoError(t, "inFlight.acquire", s.inFlight.acquire(t.Context(), 5))
	q := &entryBatch{entries: []logEntry{{Entry: swarms.Entry{Seq: 3, Kind: swarms.EntryQuery}, weight: 5}}}
	if err := s.apply(t.Context(), q); err != nil || s.inFlight.any() {
		t.Errorf("%v; room is taken: %v", err, s.inFlight.any())
	}
	if err := s.close(); err != nil || len(s.out.entries()) != 4 || len(s.p.seen) != 0 {
		t.Errorf("%d answers, applied %v: %v", len(s.out.entries()), s.p.seen, err)
	}
}

// TestSpans: a new entry has a span below the span of its sender, if it has one.
func TestSpans(t *testing.T) {
	s := newTestLoop(t, launches.Host(t), &ledger{waits: true}, 4, nil)
	parent := jobs.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for _, c := range []struct {
		seq    uint64
		trace  jobs.Trace
		tracer bool
		span   bool
	}{{5, parent, true, true}, {4, parent, true, false}, {5, jobs.Trace{}, true, false}, {5, parent, false, false}} {
		tracer := s.server.o.Tracer
		if !c.tracer {
			s.server.o.Tracer = nil
		}
		before := len(s.spans.Started())
		d := s.begin(t.Context(), logEntry{Entry: swarms.Entry{Seq: c.seq, Trace: c.trace}, weight: 7})
		if n := len(s.spans.Started()) - before; (n == 1) != c.span || d.ref != c.seq || d.weight != 7 ||
			c.span != (d.trace.Parent != "") {
			t.Errorf("%+v: %d spans, %+v", c, n, d)
		}
		if c.span && !strings.HasPrefix(d.trace.Parent, "00-0af7651916cd43dd8448eb211c80319c-") {
			t.Errorf("the span is of the trace %s", d.trace.Parent)
		}
		d.span.End()
		s.server.o.Tracer = tracer
	}
	if err := s.close(); err != nil {
		t.Errorf("s.close: %v, want no error", err)
	}
}

// TestSeat: a shard is busy while it applies an entry, and idle while it waits for one.
func TestSeat(t *testing.T) {
	in := ticks(2)
	in.waits = true
	s := newTestLoop(t, launches.Host(t), in, 0, nil)
	idle := func() bool {
		s.open.mu.Lock()
		defer s.open.mu.Unlock()
		return !s.open.since.IsZero()
	}
	s.p.during = func() {
		if idle() {
			t.Error("it is idle while it applies an entry")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.serve(ctx) }()
	testkit.Until(t, "it waits", func() bool { return len(s.out.entries()) == 2 && idle() })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	if err := s.close(); err != nil {
		t.Errorf("s.close: %v, want no error", err)
	}
}

// recording is a State that notes the kinds of entries that come to it, and refuses them.
type recording struct {
	state.State
	kinds []string
}

// apply implements state.State.
func (r *recording) Apply(_ context.Context, e swarms.Entry) (state.Answer, error) {
	r.kinds = append(r.kinds, e.Kind)
	return state.Answer{}, jobs.Errorf(jobs.CodeInvalid, "kind %q", e.Kind)
}

// TestReplaySkips: entries that change nothing and have their answers are not applied again, and
// others are.
func TestReplaySkips(t *testing.T) {
	r := &recording{}
	of := &loop{server: &Server{}, state: r, rounds: &state.Rounds{}, replayed: 9}
	for i, kind := range []string{
		swarms.EntryVote, swarms.EntryFuse, swarms.EntryQuery, swarms.EntrySnapshot, swarms.EntryReset,
		swarms.EntryTick,
	} {
		if err := of.applyOne(t.Context(), &logEntry{Entry: swarms.Entry{Seq: uint64(i + 1), Kind: kind}},
			new([]state.Answer)); err != nil {
			t.Fatalf("of.applyOne: %v, want no error", err)
		}
	}
	if want := []string{swarms.EntryReset, swarms.EntryTick}; !slices.Equal(r.kinds, want) {
		t.Errorf("%v were applied again, want %v", r.kinds, want)
	}
}

// TestReplayWithdrawn: an answered entry whose observations were stored outside the log ends the
// replay. A new one is refused, as all unknown kinds are.
func TestReplayWithdrawn(t *testing.T) {
	of := &loop{server: &Server{}, state: &recording{}, rounds: &state.Rounds{}, replayed: 1}
	apply := func(seq uint64) (logEntry, error) {
		it := logEntry{Entry: swarms.Entry{Seq: seq, Kind: withdrawnKind}}
		err := of.applyOne(t.Context(), &it, new([]state.Answer))
		return it, err
	}
	if _, err := apply(1); !errors.Is(err, errWithdrawn) {
		t.Errorf("an answered entry: %v, want errWithdrawn", err)
	}
	if it, err := apply(2); err != nil || it.refused == nil {
		t.Errorf("a new entry: error %v, refused %v; want no error and a refusal", err, it.refused)
	}
}
