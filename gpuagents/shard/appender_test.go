package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// TestWriterAppends: a writer follows its own entries, appends nothing for nothing, and stays where
// it is when the log refuses.
func TestWriterAppends(t *testing.T) {
	l := &ledger{all: []swarms.Entry{{Seq: 1, Ref: 4}}}
	w := &writer{out: l, last: 1, answered: 4}
	at := func(last, answered uint64) {
		t.Helper()
		if w.last != last || w.answered != answered || uint64(len(l.all)) != last {
			t.Errorf("the writer is at %d with answers to %d, and the log has %d; want %d and %d", w.last, w.answered,
				len(l.all), last, answered)
		}
	}
	if err := w.append(t.Context()); err != nil || len(l.appends) != 0 {
		t.Errorf("%d calls for nothing: %v", len(l.appends), err)
	}
	at(1, 4)
	if err := w.append(t.Context(), swarms.Entry{Ref: 5}); err != nil {
		t.Fatalf("w.append: %v, want no error", err)
	}
	at(2, 5)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// What was applied is answered also when the agent drains.
	if err := w.append(ended, swarms.Entry{Ref: 6}, swarms.Entry{Ref: 7}, swarms.Entry{Ref: 9}); err != nil {
		t.Fatalf("w.append: %v, want no error", err)
	}
	at(5, 9)
	l.fail = jobs.ErrFenced
	if err := w.append(t.Context(), swarms.Entry{Ref: 10}); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("a log that refuses: %v", err)
	}
	at(5, 9)
	if !slices.Equal(l.appends, []int{1, 3}) {
		t.Errorf("calls of %v entries", l.appends)
	}
}

// TestWriterRejects: an entry is rejected once, with the reason as its owner reads it, and the next
// entry of a shard that cannot be served, unless one ahead of the log was rejected before.
func TestWriterRejects(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	why := jobs.Errorf(jobs.CodeInvalid, "not so")
	for _, c := range []struct {
		answered, in uint64 // the last entry with an answer, and of in
		ref          uint64 // 0: nothing is appended
	}{{0, 0, 1}, {0, 5, 1}, {1, 0, 0}, {1, 1, 2}, {1, 2, 2}, {4, 3, 0}, {4, 4, 5}} {
		in, out := &ledger{}, &ledger{}
		for range c.in {
			if err := in.Append(t.Context(), uint64(len(in.all)), swarms.Entry{}); err != nil {
				t.Fatalf("in.Append: %v, want no error", err)
			}
		}
		w := &writer{out: out, answered: c.answered}
		testkit.NoError(t, "w.refuse", w.refuse(t.Context(), in, log, why))
		if c.ref == 0 {
			if len(out.all) != 0 || w.answered != c.answered {
				t.Errorf("%+v: entries %+v, answered %d; want none, answered %d", c, out.all, w.answered, c.answered)
			}
			continue
		}
		if len(out.all) != 1 || out.all[0].Ref != c.ref || out.all[0].Kind != swarms.EntryRejected ||
			w.answered != c.ref {
			t.Fatalf("%+v: %+v, answers to %d", c, out.all, w.answered)
		}
		var e jobs.Error
		if err := json.Unmarshal(out.all[0].Data, &e); err != nil || e.Code != jobs.CodeInvalid ||
			e.Message != "not so" {
			t.Errorf("%s, error %v; want code %v with %q", out.all[0].Data, err, jobs.CodeInvalid, "not so")
		}
		for _, ref := range []uint64{c.ref - 1, c.ref, c.ref + 1} {
			before := len(out.all)
			if err := w.reject(t.Context(), ref, why); err != nil ||
				len(out.all) != before+map[bool]int{true: 1}[ref > c.ref] {
				t.Errorf("entry %d rejected behind %d: %d entries: %v", ref, c.ref, len(out.all), err)
			}
		}
	}
	gone := &ledger{gone: jobs.ErrNotFound}
	out := &ledger{}
	if err := (&writer{out: out}).refuse(t.Context(), gone, log, why); !errors.Is(err, jobs.ErrNotFound) ||
		len(out.all) != 0 {
		t.Errorf("a log that is gone: %v, %d answers", err, len(out.all))
	}
	full := &ledger{fail: jobs.ErrUnavailable}
	if err := (&writer{out: full}).refuse(t.Context(), &ledger{}, log, why); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("an answer that is not stored: %v", err)
	}
}

// done is an answer to an entry that takes a byte of the room.
func done(ref uint64) pendingAnswer {
	return pendingAnswer{ref: ref, weight: 1, span: tracing.NoSpan, answer: state.Answer{
		Kind: swarms.EntryTicked,
		Data: fmt.Append(nil, ref),
	}}
}

// flightOf returns a bound with n bytes in flight.
func flightOf(t *testing.T, n int) *inFlight {
	t.Helper()
	r := newInFlight()
	testkit.NoError(t, "r.acquire", r.acquire(t.Context(), n))
	return r
}

// TestAnswersAreGathered: answers are appended in their order. Answers that come during an append
// go into the next call, up to a bound, and each releases its weight.
func TestAnswersAreGathered(t *testing.T) {
	const batches, each = 6, 100
	l := &ledger{enter: make(chan struct{}), leave: make(chan struct{})}
	flight := flightOf(t, 1+batches*each)
	a := openAppender(t.Context(), &writer{out: l}, flight, nil, nil, nil)
	a.put(nil)
	a.put([]pendingAnswer{done(1)})
	<-l.enter // It appends the first, and what follows waits.
	a.put(nil)
	for b := range batches {
		var all []pendingAnswer
		for i := range each {
			all = append(all, done(uint64(2+b*each+i)))
		}
		a.put(all)
	}
	if n := len(a.queue); n != batches {
		t.Errorf("%d calls of put wait, want %d", n, batches)
	}
	flushed := make(chan error)
	go func() { flushed <- a.flush(t.Context()) }()
	testkit.Until(t, "the flush stands behind them", func() bool { return len(a.queue) == batches+1 })
	go func() {
		for range l.enter {
			l.leave <- struct{}{}
		}
	}()
	l.leave <- struct{}{}
	testkit.NoError(t, "flush", <-flushed)
	all := l.entries()
	if len(all) != 1+batches*each {
		t.Fatalf("%d answers are stored after a flush", len(all))
	}
	for i, e := range all {
		if e.Ref != uint64(i+1) || string(e.Data) != fmt.Sprint(e.Ref) || e.Kind != swarms.EntryTicked {
			t.Fatalf("answer %d is %+v", i, e)
		}
	}
	if want := []int{1, 300, 300}; !slices.Equal(l.appends, want) {
		t.Errorf("calls of %v answers, want %v", l.appends, want)
	}
	if flight.any() {
		t.Error("room is not given back")
	}
	if err := errors.Join(a.flush(t.Context()), a.close()); err != nil {
		t.Errorf("joined errors: %v, want no error", err)
	}
	close(l.enter)
}

// TestGatheredAtTheBound: a call of Append has more than mostAnswers answers only if a single put
// has.
func TestGatheredAtTheBound(t *testing.T) {
	for _, c := range []struct{ puts, want []int }{
		{[]int{maxAppended - 1, 1, 1}, []int{1, maxAppended, 1}},
		{[]int{maxAppended, 1}, []int{1, maxAppended, 1}},
		{[]int{maxAppended - 1, 2, 1}, []int{1, maxAppended + 1, 1}},
	} {
		l := &ledger{enter: make(chan struct{}), leave: make(chan struct{})}
		a := openAppender(t.Context(), &writer{out: l}, newInFlight(), nil, nil, nil)
		next := uint64(1)
		put := func(n int) {
			var all []pendingAnswer
			for range n {
				d := done(next)
				d.weight = 0
				all = append(all, d)
				next++
			}
			a.put(all)
		}
		put(1)
		<-l.enter
		for _, n := range c.puts {
			put(n)
		}
		go func() {
			for range l.enter {
				l.leave <- struct{}{}
			}
		}()
		l.leave <- struct{}{}
		if err := a.close(); err != nil || !slices.Equal(l.appends, c.want) {
			t.Errorf("puts of %v: calls of %v, want %v: %v", c.puts, l.appends, c.want, err)
		}
		close(l.enter)
	}
}

// TestAnswersFail: of the first call that fails on, nothing is appended, whatever waits learns why,
// the room is given back, and spans end with the error.
func TestAnswersFail(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	broken := pendingAnswer{ref: 3, weight: 1, span: tracing.NoSpan, answer: state.Answer{
		Kind: swarms.EntryDecide,
		Body: &batch.Decisions{Candidates: 0},
	}}
	for name, c := range map[string]struct {
		fail   error
		second pendingAnswer
		stored int
		says   string
	}{
		"append":      {jobs.ErrFenced, done(3), 0, jobs.ErrFenced.Error()},
		"not encoded": {nil, broken, 1, "log entry 3: "},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{enter: make(chan struct{}), leave: make(chan struct{}), fail: c.fail}
			flight := flightOf(t, 4)
			a := openAppender(t.Context(), &writer{out: l, answered: 1}, flight, nil, nil, nil)
			first := done(2)
			_, first.span = tracer.Start(t.Context(), name)
			a.put([]pendingAnswer{first, c.second})
			<-l.enter
			a.put([]pendingAnswer{done(4)})
			flushed := make(chan error)
			go func() { flushed <- a.flush(t.Context()) }()
			l.leave <- struct{}{}
			if err := <-flushed; err == nil || !strings.Contains(err.Error(), c.says) || c.fail != nil &&
				!errors.Is(err, c.fail) {
				t.Errorf("flush: %v", err)
			}
			<-a.failed
			a.put([]pendingAnswer{done(5)})
			if err := a.flush(t.Context()); err == nil {
				t.Error("a flush behind a failure succeeds")
			}
			if err := a.close(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("close: %v", err)
			}
			if n := len(l.entries()); n != c.stored || flight.any() {
				t.Errorf("%d answers are stored, want %d; room is taken: %v", n, c.stored, flight.any())
			}
			ended := spans.Ended()
			if len(ended) == 0 || ended[len(ended)-1].Name() != name ||
				ended[len(ended)-1].Status().Code != codes.Error ||
				!strings.Contains(ended[len(ended)-1].Status().Description, c.says) {
				t.Errorf("spans %v", ended)
			}
		})
	}
	l := &ledger{}
	a := openAppender(t.Context(), &writer{out: l}, flightOf(t, 1), nil, nil, nil)
	good := done(1)
	_, good.span = tracer.Start(t.Context(), "good")
	a.put([]pendingAnswer{good})
	testkit.NoError(t, "a.close", a.close())
	ended := spans.Ended()
	if last := ended[len(ended)-1]; last.Name() != "good" || last.Status().Code != codes.Unset {
		t.Errorf("the span of a stored answer: %+v", last)
	}
}

// TestFlushIsGivenUp: a flush whose caller gives up returns why, before and after its turn in the
// queue.
func TestFlushIsGivenUp(t *testing.T) {
	l := &ledger{enter: make(chan struct{}), leave: make(chan struct{})}
	a := openAppender(t.Context(), &writer{out: l}, flightOf(t, 1), nil, nil, nil)
	a.put([]pendingAnswer{done(1)})
	<-l.enter
	why := errors.New("the caller is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := a.flush(ctx); !errors.Is(err, why) {
		t.Errorf("flush: %v", err)
	}
	l.leave <- struct{}{}
	if err := a.close(); err != nil || len(l.entries()) != 1 {
		t.Errorf("%d answers: %v", len(l.entries()), err)
	}
}
