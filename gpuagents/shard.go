package gpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
)

// work serves one shard. The state of the agents is a function of the log, so an agent that takes over builds it again by
// reading from its own last checkpoint, or from the start of the log when it has none, and writes nothing until it is past
// what its predecessor has answered. It returns nil when the log says that nothing follows.
func (a *Agent) work(ctx context.Context, on *berth, s jobs.Swarm, shard int, log *slog.Logger) error {
	in, out := a.o.Queue.Log(s.ID, shard, jobs.In), a.o.Queue.Log(s.ID, shard, jobs.Out)
	last, err := out.Last(ctx)
	if err != nil {
		return err
	}
	w := &writer{out: out, last: last.Seq, answered: last.Ref}
	spec, err := swarm.FromJSON(s.Spec)
	if err == nil {
		err = a.permit(spec)
	}
	if err != nil {
		return w.reject(ctx, w.answered+1, err)
	}
	state, err := newPopulation(on.dev, on.budget, spec, s.Groups)
	if err != nil {
		err = fmt.Errorf("swarm %s: %w", s.Name, err)
		switch {
		case !hopeless(err): // it may be made another time
			return classed(err)
		case noRoom(err) && (w.answered > 0 || on.which == hostSeat): // it was served where there was room, or will be; the device is well
			return errors.New(err.Error() + ": waiting for room, or for an agent that has it") // no failure of the device: its class goes
		}
		if record := (*jobs.Error)(nil); !errors.As(err, &record) {
			err = jobs.Errorf(jobs.CodeDevice, "%v", err)
		}
		if answer := w.reject(ctx, w.answered+1, err); answer != nil {
			return answer
		}
		return nil // the swarm cannot run here; its owner has been told
	}
	var keep *checkpoint
	defer func() { // pages are in memory above the store
		if cerr := state.close(); cerr != nil {
			log.Error("releasing the shard's memory", "error", cerr)
		}
		keep.close()
	}()
	kept := &keeping{state, s, spec, a.o.Snapshots}
	state = kept
	a.shards.Add(1)
	defer a.shards.Add(-1)
	of := state.about()
	defer a.o.Metrics.serving(of.cell)()
	log.Info("serving shard", "shard", shard, "groups", s.Groups, "agents", of.agents, "pages", len(state.pages().dirty),
		"device", on.dev.Properties().Name, "answered", last.Ref)
	state.pages().counts = a.o.Metrics.ofPages()
	keep = a.openCheckpoint(s, shard, state, log)
	reader, err := keep.restore(ctx, state, in, w.answered)
	if room := (errRoom{}); errors.As(err, &room) && keep == nil && w.answered == 0 && on.which != hostSeat { // a store that is not there now may be there later
		return w.reject(ctx, w.answered+1, room.refused())
	}
	if err != nil {
		return err
	}
	if !keep.resumed() {
		base, told, err := kept.begin(ctx, w, log)
		if told || err != nil {
			reader.Close()
			return err
		}
		if base > 0 {
			reader.Close()
			if reader, err = in.Read(ctx, base+1); err != nil {
				return err
			}
		}
	}
	entries := follow(ctx, reader)
	defer entries.stop()
	for {
		select {
		case <-keep.due():
			err = keep.tick(context.WithoutCancel(ctx), state)
		case e := <-entries.next:
			state.reduce(on.of.level() >= Reduced)
			if err = a.apply(ctx, on, of.cell, state, w, e); err == nil {
				err = keep.applied(context.WithoutCancel(ctx), state, e)
			}
			if err == nil && e.Kind == jobs.EntryEnd {
				log.Info("shard finished", "entries", e.Seq)
				return keep.save(context.WithoutCancel(ctx), state)
			}
		case err = <-entries.failed:
			if errors.Is(err, jobs.ErrDrain) || errors.Is(err, errMoved) { // what is applied need not be replayed by whoever is next
				err = errors.Join(err, keep.save(context.WithoutCancel(ctx), state))
			}
			return err
		}
		if err != nil {
			return keep.spoiled(state, err)
		}
	}
}

// entries are read ahead, one of them, by a goroutine.
type entries struct {
	next   chan jobs.Entry
	failed chan error // takes the one error that ends the reading
	cancel context.CancelFunc
	ended  chan struct{}
}

// follow reads until stop is called or reading fails. It closes the reader.
func follow(ctx context.Context, r jobs.Reader) *entries {
	ctx, cancel := context.WithCancel(ctx)
	f := &entries{next: make(chan jobs.Entry), failed: make(chan error, 1), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		defer r.Close()
		for {
			e, err := r.Next(ctx)
			if err != nil {
				f.failed <- err
				return
			}
			select {
			case f.next <- e:
			case <-ctx.Done():
				f.failed <- context.Cause(ctx)
				return
			}
		}
	}()
	return f
}

// stop ends the reading and waits for it.
func (f *entries) stop() {
	f.cancel()
	<-f.ended
}

// apply brings an entry into the state and answers it.
func (a *Agent) apply(ctx context.Context, on *berth, cell string, st population, w *writer, e jobs.Entry) (err error) {
	if a.tracer != nil && e.Trace.Parent != "" && e.Seq > w.answered { // a replay was traced when it was new
		var span trace.Span
		ctx, span = a.tracer.Start(telemetry.With(ctx, e.Trace), "process EXO_LOG_{swarm}_{shard}_in", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
			attribute.String("messaging.system", "nats"), attribute.String("messaging.operation.name", "process"), attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.template", "EXO_LOG_{swarm}_{shard}_in"), attribute.String("exoswarm.cell", cell),
			attribute.String("exoswarm.log.kind", e.Kind), attribute.Int64("exoswarm.log.seq", int64(e.Seq)), attribute.Int("messaging.message.body.size", len(e.Data))))
		defer func() {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}()
	}
	switch {
	case e.Kind == jobs.EntryEnd:
		return w.write(ctx, e.Seq, jobs.EntryEnd, e.Data)
	case e.Seq <= w.answered && changesNothing(e.Kind): // and has its answer
		return nil
	}
	began := time.Now()
	done, err := st.apply(ctx, e)
	var refused *jobs.Error
	switch {
	case errors.As(err, &refused): // it has changed nothing, and is answered with the reason
		a.o.Metrics.refused(cell)
		return w.reject(ctx, e.Seq, fmt.Errorf("log entry %d: %w", e.Seq, err))
	case err != nil: // the shard starts again from its checkpoint
		return fmt.Errorf("log entry %d: %w", e.Seq, err)
	}
	on.of.did(done.halved)
	a.o.Metrics.applied(cell, done.observations, time.Since(began))
	return w.write(ctx, e.Seq, done.kind, done.data)
}

// changesNothing says that agents are what they were before an entry.
func changesNothing(kind string) bool {
	switch kind {
	case jobs.EntryQuery, jobs.EntryVote, jobs.EntryFuse, jobs.EntrySnapshot:
		return true
	}
	return false
}

// unknownKind refuses an entry that a population has no use for.
func unknownKind(e jobs.Entry) error {
	return jobs.Errorf(jobs.CodeInvalid, "kind %.100q: this swarm does not take it", e.Kind)
}

// writer appends the answers of a shard, each once.
type writer struct {
	out      jobs.Log
	last     uint64 // the last entry of out
	answered uint64 // the last entry of in that out has an answer to
}

func (w *writer) write(ctx context.Context, ref uint64, kind string, data []byte) error {
	if ref <= w.answered {
		return nil
	}
	if err := w.out.Append(context.WithoutCancel(ctx), w.last, jobs.Entry{Kind: kind, Ref: ref, Data: data}); err != nil {
		return err
	}
	w.last++
	w.answered = ref
	return nil
}

func (w *writer) reject(ctx context.Context, ref uint64, err error) error {
	trace.SpanFromContext(ctx).SetStatus(codes.Error, err.Error())
	data, merr := json.Marshal(jobs.AsError(err))
	if merr != nil {
		return errors.Join(err, merr)
	}
	return w.write(ctx, ref, jobs.EntryRejected, data)
}
