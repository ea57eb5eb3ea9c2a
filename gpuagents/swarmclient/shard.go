package swarmclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// shard is one shard of a swarm: a log of entries and a log of answers. Several writers may append
// to the first log at once; only the GPU agent that serves the shard writes the second.
type shard struct {
	swarm  *Swarm
	number int // from 0
}

// String names the shard in errors. The only shard of a swarm has the name of the swarm.
func (k shard) String() string {
	n := k.swarm.record.ShardCount()
	if n == 1 {
		return "swarm " + k.swarm.record.ID
	}
	first, end := k.agents()
	return fmt.Sprintf("swarm %s, shard %d of %d (agents %d to %d)", k.swarm.record.ID, k.number, n, first, end-1)
}

// agents returns the range [first, end) of ids of the shard.
func (k shard) agents() (first, end int64) {
	a, b := k.swarm.record.ShardGroups(k.number)
	return int64(a) * int64(k.swarm.spec.AgentsPerGroup), int64(b) * int64(k.swarm.spec.AgentsPerGroup)
}

func (k shard) log(d swarms.Direction) swarms.Log {
	return k.swarm.store.Log(k.swarm.record.Key(), k.number, d)
}

func (k shard) late(seq uint64) error {
	return jobs.Errorf(jobs.CodeDeadline, "%v: entry %d of its log has no answer after %v, and stays there until it "+
		"has one: see that a GPU agent runs (exoswarm agent list), or wait longer with --timeout", k, seq,
		k.swarm.timeout)
}

// ask appends an entry of a kind, waits until the deadline for its answer, and returns the data of
// the answer. An answer of another kind than want is an error. The error for a refused entry is the
// *jobs.Error of the GPU agent.
func (k shard) ask(ctx context.Context, deadline time.Time, kind string, data []byte, want string) ([]byte, error) {
	from, seq, err := k.append(ctx, deadline, kind, data)
	if err != nil {
		return nil, k.swarm.explainEnd(err)
	}
	return k.decided(ctx, deadline, from, seq, kind, want)
}

// decided waits until the deadline for the answer to entry seq, of a kind, and returns its data.
// The answer has number from or a later one in the log of answers, and must be of the kind want.
func (k shard) decided(ctx context.Context, deadline time.Time, from, seq uint64, kind, want string) ([]byte, error) {
	wait, cancel := context.WithDeadlineCause(ctx, deadline, k.late(seq))
	defer cancel()
	e, err := k.answer(wait, from, seq)
	if err != nil {
		return nil, k.swarm.explainEnd(err)
	}
	if e.Kind != want {
		return nil, jobs.Errorf(jobs.CodeInternal, "%v: entry %d, a %s, was answered with a %.100q", k, seq, kind,
			e.Kind)
	}
	return e.Data, nil
}

// append appends an entry to the log as number seq, and retries if another writer was first. The
// answer to the entry has number from or a later one in the log of answers.
func (k shard) append(ctx context.Context, deadline time.Time, kind string, data []byte) (from, seq uint64, err error) {
	in, out := k.log(swarms.In), k.log(swarms.Out)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, jobs.Errorf(jobs.CodeDeadline, "%v: its log could not "+
		"be written within %v", k, k.swarm.timeout))
	defer cancel()
	for {
		answered, err := out.Last(ctx) // answers up to this one belong to earlier entries
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		last, err := in.Last(ctx)
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		if err := k.allows(kind, last); err != nil {
			return 0, 0, err
		}
		err = in.Append(ctx, last.Seq, swarms.Entry{Kind: kind, Ref: last.Ref + 1, Data: data})
		if errors.Is(err, jobs.ErrFenced) && ctx.Err() == nil { // another writer was first
			continue
		}
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		return answered.Seq + 1, last.Seq + 1, nil
	}
}

// ended returns the cause if the context has ended, and otherwise err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// answer waits for the answer to entry seq. It reads the log of answers from number from on.
func (k shard) answer(ctx context.Context, from, seq uint64) (swarms.Entry, error) {
	r, err := k.log(swarms.Out).Read(ctx, from)
	if err != nil {
		return swarms.Entry{}, ended(ctx, err)
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return e, err
		}
		if e.Ref < seq {
			continue
		}
		if e.Kind == swarms.EntryRejected {
			refused := &jobs.Error{}
			if err := json.Unmarshal(e.Data, refused); err != nil {
				return e, jobs.Errorf(jobs.CodeInternal, "%v: entry %d was refused without a reason: %v", k, seq, err)
			}
			return e, refused
		}
		return e, nil
	}
}

// begin creates the logs of a new shard, and asks for the first agent as entry 1: the answer means
// that a GPU agent serves the shard.
func (k shard) begin(ctx context.Context) error {
	data, err := k.firstAgent()
	if err != nil {
		return fmt.Errorf("encode a query: %w", err)
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := k.log(d).Create(ctx, k.swarm.spec.Consistency()); err != nil {
			return err
		}
	}
	return k.log(swarms.In).Append(ctx, 0, swarms.Entry{Kind: swarms.EntryQuery, Ref: 1, Data: data})
}

func (k shard) firstAgent() ([]byte, error) {
	first, _ := k.agents()
	return json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{uint32(first)}})
}

// allows returns an error if the log does not take an entry of a kind after its last entry: the log
// has ended, or only the job of a run may write entries that change agents.
func (k shard) allows(kind string, last swarms.Entry) error {
	switch {
	case last.Kind == swarms.EntryEnd && k.swarm.spec.OfRun():
		return jobs.Errorf(jobs.CodeInvalid, "%v: its run has read all its input and ends: take a snapshot while it "+
			"reads, or run it again", k)
	case last.Kind == swarms.EntryEnd:
		return jobs.Errorf(jobs.CodeInvalid, "%v: its log has ended", k)
	case !k.swarm.spec.OfRun():
		return nil
	case !swarms.Asks(kind):
		return jobs.Errorf(jobs.CodeInvalid, "%v: it is the swarm of a run, whose job alone may change it: it takes "+
			"query, fuse and snapshot; %s is for swarms that were made with exoswarm swarm create", k, kind)
	case last.Seq == 0: // a refused first entry would mean that the swarm cannot be served
		return jobs.Errorf(jobs.CodeInvalid, "%v: its run has read nothing yet: ask again", k)
	}
	return nil
}

// explainEnd replaces the error for a missing log if the swarm belongs to a run: the run has ended
// meanwhile.
func (s *Swarm) explainEnd(err error) error {
	if errors.Is(err, jobs.ErrNotFound) && s.spec.OfRun() {
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s: its run has ended, and its log is gone: run it again, or "+
			"ask while it reads", s.record.ID)
	}
	return err
}
