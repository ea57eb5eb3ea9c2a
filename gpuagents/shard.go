package gpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// work serves one shard from the start of its log. The state of the agents is a function of the log, so an agent that
// takes over builds it again by reading, and writes nothing until it is past what its predecessor has answered.
// It returns nil when the log says that nothing follows.
func (a *Agent) work(ctx context.Context, s jobs.Swarm, shard int, log *slog.Logger) error {
	in, out := a.o.Queue.Log(s.ID, shard, jobs.In), a.o.Queue.Log(s.ID, shard, jobs.Out)
	last, err := out.Last(ctx)
	if err != nil {
		return err
	}
	w := &writer{out: out, last: last.Seq, answered: last.Ref}
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return w.reject(ctx, w.answered+1, err)
	}
	state, err := newState(a.o.Device, spec, s.Groups)
	if err != nil {
		if answer := w.reject(ctx, w.answered+1, jobs.Errorf(jobs.CodeDevice, "swarm %s: %v", s.Name, err)); answer != nil {
			return answer
		}
		return nil // the swarm cannot run here; its owner has been told
	}
	defer func() {
		if cerr := state.close(); cerr != nil {
			log.Error("releasing the shard's memory", "error", cerr)
		}
	}()
	log.Info("serving shard", "shard", shard, "groups", s.Groups, "agents", s.Groups*spec.AgentsPerGroup, "pages", state.pages,
		"device", a.o.Device.Properties().Name, "answered", last.Ref)
	reader, err := in.Read(ctx, 1)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		e, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		switch e.Kind {
		case jobs.EntryObserve:
			err = a.observe(ctx, state, w, e)
		case jobs.EntryEnd:
			if err = w.write(ctx, e.Seq, jobs.EntryEnd, e.Data); err == nil {
				log.Info("shard finished", "entries", e.Seq)
				return nil
			}
		default:
			err = w.reject(ctx, e.Seq, jobs.Errorf(jobs.CodeInvalid, "log entry %d is of unknown kind %q", e.Seq, e.Kind))
		}
		if err != nil {
			return err
		}
	}
}

// observe applies one batch. A batch that is not valid changes nothing and is answered with the reason; a device that
// fails ends the shard.
func (a *Agent) observe(ctx context.Context, state *state, w *writer, e jobs.Entry) error {
	obs, err := batch.DecodeObservations(e.Data)
	if err == nil {
		err = state.check(obs)
	}
	if err != nil {
		return w.reject(ctx, e.Seq, fmt.Errorf("log entry %d: %w", e.Seq, err))
	}
	// A batch in hand is finished even when the agent drains: its state and its answer belong together.
	dec, err := state.observe(context.WithoutCancel(ctx), obs)
	if err != nil {
		return fmt.Errorf("log entry %d: %w", e.Seq, err)
	}
	data, err := dec.Encode()
	if err != nil {
		return fmt.Errorf("log entry %d: %w", e.Seq, err)
	}
	return w.write(ctx, e.Seq, jobs.EntryDecide, data)
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
	data, merr := json.Marshal(jobs.AsError(err))
	if merr != nil {
		return errors.Join(err, merr)
	}
	return w.write(ctx, ref, jobs.EntryRejected, data)
}
