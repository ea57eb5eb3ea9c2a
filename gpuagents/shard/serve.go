package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Serve serves one shard until ctx ends, the shard is parked, or the log ends. The state is a
// function of the log: an agent that takes over rebuilds it from its own last checkpoint, or from
// the start of the log, and appends nothing until it has passed the answers of its predecessor.
// Serve returns a *Rest for a parked shard, and nil at the end of the log.
func (a *Server) Serve(ctx context.Context, do Task) (err error) {
	on, s, shard, from, open, log := do.On, do.Swarm, do.Shard, do.From, do.Open, do.Log
	in, out := a.o.Queue.Log(s.Key(), shard, swarms.In), a.o.Queue.Log(s.Key(), shard, swarms.Out)
	w := &writer{out: out, following: open.follow != nil}
	if err := w.refresh(ctx); err != nil {
		return err
	}
	spec, err := swarm.FromJSON(s.Spec)
	if err == nil {
		err = errors.Join(a.permit(spec), a.permitReactions(spec))
	}
	if err != nil {
		return w.refuse(ctx, in, log, err)
	}
	if err := state.Attach(ctx, a.o.Snapshots, spec); err != nil {
		if record := (*jobs.Error)(nil); errors.As(err, &record) {
			return w.refuse(ctx, in, log, err)
		}
		return err
	}
	if m := state.HoldLanguage(ctx, on.Weights(), a.o.Snapshots, a.o.Models, spec); m != nil {
		defer func() {
			if rerr := m.Release(); rerr != nil {
				log.Error("releasing the shard's model", "error", rerr)
			}
		}()
	}
	has := state.RangeOf(s, shard)
	st, err := newState(ctx, on, spec, has, do.Members, log)
	if ctx.Err() != nil && st == nil {
		return context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("swarm %s: %w", s.Name, err)
		switch {
		case !permanent(err): // another attempt may succeed
			return gpubatch.Mark(err)
		case outOfMemory(err) && (w.answered > 0 || on.OnHost()):
			// An agent with room has served it, or will. The error is without its class, because
			// the device has not failed.
			return errors.New(err.Error() + ": waiting for room, or for an agent that has it")
		}
		if record := (*jobs.Error)(nil); !errors.As(err, &record) {
			err = jobs.Errorf(jobs.CodeDevice, "%v", err)
		}
		if answer := w.refuse(ctx, in, log, err); answer != nil {
			return answer
		}
		return nil // the swarm cannot run here, and its owner is told
	}
	var keep *checkpoint
	large := st.Memory().Bytes() >= returnBytes
	defer func() { // before the store: pages are in memory above it
		if cerr := st.Close(); cerr != nil {
			log.Error("releasing the shard's memory", "error", cerr)
		}
		keep.close()
		if large {
			a.o.Freed()
		}
	}()
	if names := state.DevicesOf(st); names != nil {
		log.Log(ctx, open.level(), "several devices make the ticks of the shard", "devices", names)
		open.team.Store(&names)
		defer open.team.Store(nil)
	}
	kept := state.NewSnapshotter(st, s, spec, has, a.o.Snapshots)
	kept.UseLanguages(on.Weights(), a.o.Models)
	st = kept
	of := st.Info()
	defer a.o.Metrics.serving(of, has.Groups)()
	log.Log(ctx, open.level(), "serving shard", "groups", has.Groups, "agents", of.Agents, "pages", st.Memory().Count(),
		"device", on.Device().Properties().Name, "answered", w.answered)
	st.Memory().SetMetrics(a.o.PageMetrics)
	keep = a.openCheckpoint(s, shard, st, kept.Rounds(), log)
	var reader swarms.Reader
	at := uint64(0) // the last entry that the state includes
	switch {
	case from != nil && (keep == nil || keep.store == nil):
		reader, err = from.unpark(ctx, st, in)
		at = from.Entry
		kept.Rounds().Restore(from.Round, from.Outcome)
		kept.Rounds().Adopt(from.Model)
	default:
		from = nil
		if reader, err = keep.restore(ctx, st, in, w); keep.resumed() {
			at = keep.stored
		}
	}
	// A store that is missing now may be there later.
	if room := (pages.MemoryError{}); errors.As(err, &room) && keep == nil && w.answered == 0 && !on.OnHost() {
		return w.reject(ctx, w.answered+1, room.Refusal())
	}
	if err != nil {
		return err
	}
	if from == nil && !keep.resumed() {
		base, told, err := startFromSnapshot(ctx, kept, s, shard, w, log)
		if told || err != nil {
			reader.Close()
			return err
		}
		if at = base; base > 0 {
			reader.Close()
			if reader, err = in.Read(ctx, base+1); err != nil {
				return err
			}
		}
	}
	if err := kept.Equip(ctx); err != nil {
		reader.Close()
		err = fmt.Errorf("swarm %s: %w", s.Name, err)
		// A shard with answers was served by an agent that has read the model.
		if errors.As(err, new(*jobs.Error)) && w.answered == 0 {
			return w.reject(ctx, w.answered+1, err)
		}
		return err
	}
	t := a.openLoop(ctx, ID{s.Key(), shard}, on, w, reader, kept, spec.Vote.Candidates, a.emitter(s, spec),
		keep, log)
	t.open, t.at, t.follow, t.rounds = open, at, open.follow, kept.Rounds()
	if st.Memory().Claimed() {
		open.fixed.Store(true) // a parked shard has nothing on the device
		look := time.NewTicker(a.o.ResidencyCheck)
		defer look.Stop()
		t.checks = look.C
	}
	t.beginReplay(ctx)
	defer func() { // before the state is closed
		t.endReplay()
		switch cerr := t.close(); {
		case cerr != nil && errors.Is(err, errParked): // an answer is missing: the shard is not parked
			err = cerr
		case cerr != nil && !errors.Is(err, cerr):
			err = errors.Join(err, cerr)
		}
	}()
	return keep.endDamaged(st, t.serve(ctx))
}

// newState creates the state of a shard. If the device lacks memory that other shards may give, it
// waits for them.
func newState(
	ctx context.Context, on Slot, spec *swarm.Spec, has state.GroupRange, members []field.Peer, log *slog.Logger,
) (state.State, error) {
	for b := on.Budget(); ; {
		st, err := state.New(on.Device(), b, spec, has, members...)
		var short *pages.Shortage
		if !errors.As(err, &short) {
			return st, err
		}
		log.Debug("waiting for frames of other shards", "lacks", short)
		if b, err = b.Await(ctx, short); err != nil {
			return nil, err
		}
	}
}

// permit refuses a swarm with a custom step unless the operator allows it: the step runs with all
// rights of the process.
func (a *Server) permit(spec *swarm.Spec) error {
	if !spec.Custom() || a.o.CustomCells {
		return nil
	}
	return jobs.Errorf(jobs.CodeInvalid, "swarm %s has a custom cell, and this agent, %s, runs none: code of a spec "+
		"runs with all rights of the agent, so its operator must allow it: start the GPU agents of the cluster with "+
		"--allow-custom-cells", spec.Name, a.o.Name)
}

// returnBytes is the minimum size of the pages for which Options.Freed is called.
const returnBytes = 16 << 20

// startFromSnapshot restores the snapshot from which a shard without a checkpoint starts, if there
// is one. The snapshot includes the entries up to entry. If the snapshot is unusable and nothing is
// answered yet, it rejects the next entry, and told is true. A shard with answers was served by an
// agent that could load the snapshot, so the error lets this agent try again.
func startFromSnapshot(
	ctx context.Context, k *state.Snapshotter, s swarms.Swarm, shard int, w *writer, log *slog.Logger,
) (entry uint64, told bool, err error) {
	var from swarms.SnapshotRef
	switch {
	case s.BaseOf(shard) != nil:
		base := s.BaseOf(shard)
		from, entry = base.SnapshotRef, base.Entry
	case s.From != nil:
		from = *s.From
	default:
		return 0, false, nil
	}
	began := time.Now()
	err = k.Load(ctx, from)
	if err == nil {
		if entry == 0 { // rounds of another swarm do not count
			k.Rounds().Forget()
		}
		log.Info("swarm begins as a snapshot", "snapshot", from.Name, "entry", entry, "took", time.Since(began))
		return entry, false, nil
	}
	err = fmt.Errorf("swarm %s: %w", s.Name, err)
	if wrong := (*jobs.Error)(nil); !errors.As(err, &wrong) || w.answered > 0 {
		return 0, false, err
	}
	return 0, true, w.reject(ctx, w.answered+1, err)
}
