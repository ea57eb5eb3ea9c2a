package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type pendingAnswer struct {
	ref    uint64
	answer state.Answer
	span   trace.Span // ended when the answer is stored
	trace  jobs.Trace // trace of the span
	weight int        // released when the answer is stored
}

// appender is the stage after the loop: one goroutine encodes answers and appends all that are
// ready in one call.
type appender struct {
	w        *writer
	inFlight *inFlight
	track    *gpubatch.Track // records spans of appends
	// count is called with each answer before it is encoded, and emit with its decision before it
	// is stored; nil: nothing is.
	count  func(a state.Answer)
	emit   func(ctx context.Context, ref uint64, v *swarms.Voted) error
	queue  chan appendRequest
	failed chan struct{} // closed when a call failed: no later answer is appended
	err    error         // the error of the failed call
	done   chan struct{}
}

// appendRequest is answers, or a channel that is closed when the earlier answers are stored.
type appendRequest struct {
	all    []pendingAnswer
	stored chan struct{}
}

// maxAppended is the approximate number of answers in a call of Append: the size of an atomic
// batch.
const maxAppended = 256

// openAppender appends after what w has written; the goroutine of the appender owns w. ctx only
// carries values.
func openAppender(ctx context.Context, w *writer, bound *inFlight, track *gpubatch.Track,
	count func(a state.Answer), emit func(ctx context.Context, ref uint64, v *swarms.Voted) error,
) *appender {
	// Each element holds an entry in flight at least, or is one of two waits: put never blocks.
	a := &appender{
		w:        w,
		inFlight: bound,
		track:    track,
		count:    count,
		emit:     emit,
		queue:    make(chan appendRequest, inFlightEntries+2),
		failed:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	go func() {
		defer close(a.done)
		a.run(context.WithoutCancel(ctx))
	}()
	return a
}

// put hands on answers, in the order of the entries.
func (a *appender) put(all []pendingAnswer) {
	if len(all) > 0 {
		a.queue <- appendRequest{all: all}
	}
}

// flush waits until all earlier answers are stored.
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

// close appends the answers that were put, and returns the first error. Nothing is put after it.
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
		began := a.track.Now()
		all, err := a.encode(of)
		n, lost := a.emitAll(ctx, of[:len(all)])
		all = all[:n]
		a.err = errors.Join(err, lost, a.w.append(ctx, all...)) // answers before the failed one
		a.appended(all, began)
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

// emitAll emits the decisions of answers, and submits their jobs, before the answers are stored: an
// entry without an answer is applied again, maybe by another process, and emits the same. After an
// error it returns the number of answers before it.
func (a *appender) emitAll(ctx context.Context, of []pendingAnswer) (int, error) {
	if a.emit == nil {
		return len(of), nil
	}
	for i, d := range of {
		if err := a.emit(ctx, d.ref, d.answer.Voted); err != nil {
			return i, fmt.Errorf("log entry %d: %w", d.ref, err)
		}
	}
	return len(of), nil
}

func (a *appender) appended(all []swarms.Entry, began time.Time) {
	if a.track == nil || len(all) == 0 {
		return
	}
	bytes := 0
	for _, e := range all {
		bytes += len(e.Data)
	}
	a.track.Of(all[0].Ref, all[len(all)-1].Ref)
	a.track.End(gpubatch.StageAppend, began, bytes)
}

// encode makes entries of answers on all cores, since encoding takes longer than appending. After
// an error it returns the entries before it.
func (a *appender) encode(of []pendingAnswer) ([]swarms.Entry, error) {
	all, errs := make([]swarms.Entry, len(of)), make([]error, len(of))
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(of)); i = next.Add(1) - 1 {
			if a.count != nil {
				a.count(of[i].answer)
			}
			done, err := of[i].answer.Encoded()
			all[i], errs[i] = swarms.Entry{Kind: done.Kind, Ref: of[i].ref, Data: done.Data, Trace: of[i].trace}, err
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

// end releases answers that are stored, or will not be.
func (a *appender) end(all []pendingAnswer) {
	for _, d := range all {
		if a.err != nil {
			d.span.SetStatus(codes.Error, a.err.Error())
		}
		d.span.End()
		a.inFlight.release(d.weight)
	}
}

// fail releases all answers until close, and appends none.
func (a *appender) fail(stored chan struct{}) {
	close(a.failed)
	for h, more := (appendRequest{stored: stored}), true; more; h, more = <-a.queue {
		a.end(h.all)
		if h.stored != nil {
			close(h.stored)
		}
	}
}
