package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// answered is an entry that is done with.
type pendingAnswer struct {
	ref    uint64
	answer state.Answer
	span   trace.Span // ended when the answer is stored
	trace  jobs.Trace // of the span
	weight int        // given back to the room then
}

// answers is the part of a shard behind its loop: a goroutine that encodes answers and appends them, as many at a time as are there.
type appender struct {
	w        *writer
	inFlight *inFlight
	queue    chan appendRequest
	failed   chan struct{} // closed when one could not be appended: none behind it is
	err      error         // why
	done     chan struct{}
}

// handed is what the loop hands on: answers, or a channel to close when those before it are stored.
type appendRequest struct {
	all    []pendingAnswer
	stored chan struct{}
}

// mostAnswers are gathered for a call of Append, about: an atomic batch of it.
const maxAppended = 256

// openAnswers begins to append behind what w has written, which is the goroutine's from now on. ctx only carries values.
func openAppender(ctx context.Context, w *writer, bound *inFlight) *appender {
	// Each element holds an entry of the room at least, or is one of two waits: put never has to wait.
	a := &appender{w: w, inFlight: bound, queue: make(chan appendRequest, inFlightEntries+2), failed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.run(context.WithoutCancel(ctx))
	}()
	return a
}

// put hands answers to entries on, which are behind all those before.
func (a *appender) put(all []pendingAnswer) {
	if len(all) > 0 {
		a.queue <- appendRequest{all: all}
	}
}

// flush waits until all answers are stored that were put.
func (a *appender) flush(ctx context.Context) error {
	stored := make(chan struct{})
	select {
	case a.queue <- appendRequest{stored: stored}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-stored:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-a.failed:
		return a.err
	default:
		return nil
	}
}

// close appends what was put, and returns why that failed. Nothing is put any more.
func (a *appender) close() error {
	close(a.queue)
	<-a.done
	return a.err
}

func (a *appender) run(ctx context.Context) {
	for h := range a.queue {
		of := h.all
		for more := true; more && h.stored == nil && len(of) < maxAppended; {
			select {
			case h, more = <-a.queue:
				of = append(of, h.all...)
			default:
				more = false
			}
		}
		all, err := encodeAll(of)
		a.err = errors.Join(err, a.w.append(ctx, all...)) // those before one that cannot be encoded
		a.end(of)
		if a.err != nil {
			a.fail(h.stored)
			return
		}
		if h.stored != nil {
			close(h.stored)
		}
	}
}

// encodeAll makes entries of answers, on as many cores as there are: it takes longer than to append them. Of an error it returns those before.
func encodeAll(of []pendingAnswer) ([]jobs.Entry, error) {
	all, errs := make([]jobs.Entry, len(of)), make([]error, len(of))
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(of)); i = next.Add(1) - 1 {
			done, err := of[i].answer.Encoded()
			all[i], errs[i] = jobs.Entry{Kind: done.Kind, Ref: of[i].ref, Data: done.Data, Trace: of[i].trace}, err
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(of)) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	for i, err := range errs {
		if err != nil {
			return all[:i], fmt.Errorf("log entry %d: %w", of[i].ref, err)
		}
	}
	return all, nil
}

// end lets go of what has been answered, or will not be.
func (a *appender) end(all []pendingAnswer) {
	for _, d := range all {
		if a.err != nil {
			d.span.SetStatus(codes.Error, a.err.Error())
		}
		d.span.End()
		a.inFlight.release(d.weight)
	}
}

// fail says that nothing is appended any more, and lets go of what comes until close.
func (a *appender) fail(stored chan struct{}) {
	close(a.failed)
	for h, more := (appendRequest{stored: stored}), true; more; h, more = <-a.queue {
		a.end(h.all)
		if h.stored != nil {
			close(h.stored)
		}
	}
}
