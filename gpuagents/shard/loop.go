package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

const (
	// leastBatch and mostBatch clamp the observations of a batch where its bound allows it. An
	// entry may have leastBatch observations by itself. A device whose batches have mostBatch pays
	// the fixed cost of a batch a few times a second.
	leastBatch = swarms.MaxAddressed
	mostBatch  = 1 << 20
	// defaultBatchLatency is Options.BatchLatency where it is 0: leastBatch observations of random
	// agents of a gru took 65 ms on two cores of the host device (BenchmarkShard, 1.0M a second on
	// an idle machine), and take less than 1 ms on an H200 (docs/performance.md).
	defaultBatchLatency = 100 * time.Millisecond
)

func newBatchSize(bound time.Duration) gpubatch.Size {
	return gpubatch.NewSize(gpubatch.Limits{
		Least: leastBatch, Most: mostBatch, Bound: cmp.Or(bound, defaultBatchLatency),
	}, time.Now())
}

// loop serves a shard once: one goroutine applies its entries, and alone uses its state.
type loop struct {
	server     *Server
	slot       Slot
	cell       string
	stepped    int64  // agents that an observation steps
	device     string // name of the device, in metrics
	state      state.State
	rounds     *state.Rounds
	checkpoint *checkpoint
	log        *slog.Logger
	replayed   uint64 // the last entry that was answered when the loop started
	inFlight   *inFlight
	pipe       *pipeline
	answers    *appender
	size       gpubatch.Size
	open       *OpenShard
	id         ID
	checks     <-chan time.Time // when to compare claims; nil: there are no claims
	at         uint64           // the last applied entry
	replay     *replay          // nil: all entries that were answered before are applied
	gauges     *shardGauges
	waits      *waiting        // the oldest entry that is not applied; nil: nobody counts
	unfollow   func()          // ends waits
	track      *gpubatch.Track // records the stages of batches
	pictures   *raster.Source  // nil before the first picture
	w          *writer
	follow     *Follow // nil: the agent has the lease
}

// openLoop starts to read entries, and to append answers after what w has written. candidates are
// the candidates of the swarm, for metrics. The appender calls emit.
func (a *Server) openLoop(
	ctx context.Context, id ID, on Slot, w *writer, r swarms.Reader, st state.State, candidates []string,
	emit func(context.Context, uint64, *swarms.Voted) error, keep *checkpoint,
	log *slog.Logger,
) *loop {
	t := &loop{
		server:     a,
		id:         id,
		slot:       on,
		cell:       st.Info().Cell,
		stepped:    st.Info().Stepped,
		device:     on.Device().Properties().Name,
		state:      st,
		rounds:     &state.Rounds{},
		w:          w,
		checkpoint: keep,
		log:        log,
		replayed:   w.answered,
		inFlight:   newInFlight(),
		size:       newBatchSize(a.o.BatchLatency),
	}
	t.gauges = a.o.Metrics.gauges(t.cell)
	t.waits, t.unfollow = a.o.Metrics.waiting(t.cell)
	t.track = a.o.Spans.Track(id.Swarm, id.Shard, t.cell)
	st.Trace(t.track)
	t.pipe = openPipeline(ctx, r, st, t.inFlight)
	t.answers = openAppender(ctx, w, t.inFlight, a.o.Spans.Track(id.Swarm, id.Shard, t.cell),
		a.o.Metrics.voting(t.cell, candidates), emit)
	t.resize()
	if keep != nil {
		keep.answered = t.answers.flush
	}
	return t
}

// close stops reading, and appends the answers to the applied entries.
func (t *loop) close() error {
	t.pipe.stop()
	t.gauges.limit(0)
	t.unfollow()
	t.state.Trace(nil)
	return errors.Join(t.answers.close(), t.pictures.Close())
}

func (t *loop) resize() {
	most, reduced := t.size.Most(), t.slot.Reduced()
	if t.state.Reduce(reduced); reduced { // a failure then costs a part of an entry
		most = 0
	}
	t.pipe.limit.Store(int64(most))
	t.gauges.limit(most)
}

// serve applies entries until the log ends; it then returns nil.
func (t *loop) serve(ctx context.Context) error {
	uncut := context.WithoutCancel(ctx)
	for {
		var err error
		t.open.idle()
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-t.answers.failed:
			return nil // close returns the error
		case <-t.checkpoint.due():
			if err = t.checkpoint.tick(uncut, t.state); err != nil {
				return err
			}
			continue
		case <-t.checks:
			if err = t.audit(uncut); err != nil {
				return err
			}
			continue
		case <-t.state.Memory().Asked():
			if err = t.resized(t.state.Memory().Give(uncut)); err != nil {
				return err
			}
			continue
		case v := <-t.open.visits:
			v.done <- v.make(uncut, t)
			continue
		case <-t.following():
			if err = t.refresh(ctx); err == nil {
				continue
			}
		case <-t.open.park:
			switch rest, err := t.park(uncut); {
			case err != nil:
				return err
			case rest != nil:
				return rest
			}
			continue
		case s := <-t.pipe.next:
			t.open.busy()
			last := s.entries[len(s.entries)-1]
			if err = last.ended; err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err == nil {
				err = t.admit(ctx, last.Seq)
			}
			if err != nil {
				break
			}
			t.waits.set(s.entries[0].Time)
			t.updateMetrics()
			end := t.state.Memory().Use()
			if err = t.apply(ctx, s); err == nil {
				err = t.resized(end(uncut))
			}
			if err == nil {
				t.at = last.Seq
				t.caughtUp(last.Time)
				t.progressed(ctx)
				err = t.checkpoint.applied(uncut, t.state, last.Entry)
			}
			if err == nil && last.Kind == swarms.EntryEnd {
				t.log.Info("shard finished", "entries", last.Seq)
				return errors.Join(t.answers.flush(uncut), t.checkpoint.save(uncut, t.state))
			}
			if err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, jobs.ErrDrain) || errors.Is(err, ErrMoved) {
			// The next agent need not replay what is applied.
			err = errors.Join(err, t.checkpoint.save(uncut, t.state))
		}
		return err
	}
}

// resized returns an error of the device. After any other error of a resize the shard keeps its
// frames.
func (t *loop) resized(err error) error {
	if err == nil || errors.Is(err, gpubatch.ErrDevice) {
		return err
	}
	t.log.Warn("the shard keeps the frames that it has", "error", err)
	return nil
}

// apply applies a batch of entries and hands on their answers. After an error the shard starts
// again from its checkpoint.
func (t *loop) apply(ctx context.Context, s *entryBatch) error {
	t.resize()
	t.trace(s.entries)
	done := make([]pendingAnswer, len(s.entries))
	for i, it := range s.entries {
		done[i] = t.begin(ctx, it)
	}
	var given []state.Answer // answers of the entries that are not refused
	began := time.Now()
	var err error
	if s.merged != nil {
		given, err = t.observe(ctx, s)
	} else {
		err = t.applyOne(ctx, &s.entries[0], &given)
	}
	if err != nil {
		for _, d := range done {
			d.span.SetStatus(codes.Error, err.Error())
			d.span.End()
		}
		what := fmt.Sprintf("log entry %d", s.entries[0].Seq)
		if n := len(s.entries); n > 1 {
			what = fmt.Sprintf("log entries %d to %d", s.entries[0].Seq, s.entries[n-1].Seq)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	took := time.Since(began)
	put := done[:0]
	for i := range s.entries {
		it, d := &s.entries[i], done[i]
		switch {
		case it.refused != nil: // it has changed nothing; the answer is the reason
			t.server.o.Metrics.refused(t.cell)
			why := fmt.Errorf("log entry %d: %w", it.Seq, it.refused)
			d.span.SetStatus(codes.Error, why.Error())
			data, err := rejection(why)
			if err != nil {
				return err
			}
			d.answer = state.Answer{Kind: swarms.EntryRejected, Data: data}
		case len(given) > 0:
			d.answer, given = given[0], given[1:]
			if it.Kind != swarms.EntryEnd {
				t.slot.Succeeded(d.answer.Halved)
				t.server.o.Metrics.applied(t.cell, d.answer, t.stepped, took, d.span)
			}
		}
		if it.Seq <= t.replayed {
			d.span.End()
			t.inFlight.release(d.weight)
			continue
		}
		put = append(put, d)
	}
	t.answers.put(put)
	return nil
}

func (t *loop) observe(ctx context.Context, s *entryBatch) (given []state.Answer, err error) {
	if !slices.ContainsFunc(s.entries, func(i logEntry) bool { return i.refused == nil }) {
		return nil, nil
	}
	t.server.o.Metrics.batched(t.cell, s.rows)
	idle := t.server.o.Metrics.working(t.device)
	began := time.Now()
	given, err = s.merged.Observe(context.WithoutCancel(ctx)) // to its end: state and answers belong together
	ended := time.Now()
	idle()
	t.size.Done(began, ended, s.rows, s.full)
	t.resize()
	return given, err
}

// withdrawnKind is the kind of entries whose observations earlier versions stored outside the log.
// Such an entry changed the agents, so a replay without its observations would have another state.
const withdrawnKind = "bulk"

var errWithdrawn = errors.New("its observations are beside the log, which this version cannot read: start " +
	"another swarm from the last snapshot (swarm create --from)")

// applyOne applies an entry that has no observations, unless it is answered and changes no state.
// It marks an entry that the state refuses.
func (t *loop) applyOne(ctx context.Context, it *logEntry, given *[]state.Answer) error {
	switch {
	case it.Kind == swarms.EntryEnd:
		*given = []state.Answer{{Kind: swarms.EntryEnd, Data: it.Data}}
		return nil
	case it.Seq <= t.replayed && t.rounds.Skip(it.Entry): // it is answered and changes nothing
		return nil
	case it.Seq <= t.replayed && it.Kind == withdrawnKind:
		return errWithdrawn
	case it.Seq <= t.replayed && it.Kind == swarms.EntryAdopt: // it depends on the store, not on the log alone
		return t.adoptAgain(ctx, it.Entry)
	case it.Kind == swarms.EntrySnapshot: // a user who has the snapshot may trim the log up to it
		if err := t.answers.flush(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	default:
		defer t.server.o.Metrics.working(t.device)()
	}
	one, err := t.state.Apply(ctx, it.Entry)
	if it.Kind == swarms.EntrySnapshot {
		t.server.o.Metrics.snapshotted(t.cell, one, err)
	}
	var refused *jobs.Error
	switch {
	case errors.As(err, &refused):
		it.refused = err
		return nil
	case err != nil:
		return err
	}
	*given = []state.Answer{one}
	return nil
}

// begin starts the span of a new entry, as a child of the span of its writer.
func (t *loop) begin(ctx context.Context, it logEntry) pendingAnswer {
	d := pendingAnswer{ref: it.Seq, weight: it.weight, span: tracing.NoSpan}
	if t.server.o.Tracer == nil || it.Trace.Parent == "" ||
		it.Seq <= t.replayed { // a replayed entry was traced the first time
		return d
	}
	const destination = "EXO_LOG_{swarm}_{shard}_in"
	ctx, d.span = t.server.o.Tracer.Start(
		tracing.With(ctx, it.Trace), "process "+destination, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "nats"),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.template", destination),
			attribute.String("exoswarm.cell", t.cell),
			attribute.String("exoswarm.log.kind", it.Kind),
			attribute.Int64("exoswarm.log.seq", int64(it.Seq)),
			attribute.Int("messaging.message.body.size", len(it.Data)),
		),
	)
	d.trace = tracing.Of(ctx)
	return d
}

// audit compares claims of the shard. After an error the shard starts again from its checkpoint.
func (t *loop) audit(ctx context.Context) error {
	checked, err := t.state.Memory().Audit(ctx, t.at)
	t.server.o.Metrics.audited(t.cell, checked, errors.Is(err, pages.ErrResidency))
	if errors.Is(err, pages.ErrResidency) {
		t.server.o.Violated(t.id, err)
		t.log.Error("pages are not on the device as claimed, the shard starts again from its checkpoint", "error", err)
	}
	return err
}
