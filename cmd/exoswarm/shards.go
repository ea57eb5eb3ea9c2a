package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// shard is one of the logs of a swarm, as those see it who write into it.
type shard struct {
	of     *simulation
	number int
}

// String names it in errors: a swarm of one shard by itself.
func (k shard) String() string {
	n := k.of.record.ShardCount()
	if n == 1 {
		return "swarm " + k.of.name
	}
	first, end := k.agents()
	return fmt.Sprintf("swarm %s, shard %d of %d (agents %d to %d)", k.of.name, k.number, n, first, end-1)
}

// agents are those of the shard: from first on and before end.
func (k shard) agents() (first, end int64) {
	a, b := k.of.record.ShardGroups(k.number)
	return int64(a) * int64(k.of.spec.AgentsPerGroup), int64(b) * int64(k.of.spec.AgentsPerGroup)
}

func (k shard) log(d swarms.Direction) swarms.Log {
	return k.of.conn.Swarms.Log(k.of.record.Key(), k.number, d)
}

// late says that an entry has no answer yet.
func (k shard) late(seq uint64) error {
	return jobs.Errorf(jobs.CodeDeadline, "%v: entry %d of its log has no answer after %v, and stays there until it "+
		"has one: see that a GPU agent runs (exoswarm agent list), or wait longer with --timeout", k, seq, k.of.timeout)
}

// ask appends an entry and returns the data of its answer, which is of the kind want, until the
// deadline. An entry that is refused is a *jobs.Error.
func (k shard) ask(ctx context.Context, deadline time.Time, kind string, data []byte, want string) ([]byte, error) {
	from, seq, err := k.append(ctx, deadline, kind, data)
	if err != nil {
		return nil, k.of.over(err)
	}
	wait, cancel := context.WithDeadlineCause(ctx, deadline, k.late(seq))
	defer cancel()
	e, err := k.answer(wait, from, seq)
	if err != nil {
		return nil, k.of.over(err)
	}
	if e.Kind != want {
		return nil, jobs.Errorf(jobs.CodeInternal, "%v: entry %d, a %s, was answered with a %.100q", k, seq, kind,
			e.Kind)
	}
	return e.Data, nil
}

// append puts an entry into the log. It is number seq there, and its answer is not before number
// from of the log of answers.
func (k shard) append(ctx context.Context, deadline time.Time, kind string, data []byte) (from, seq uint64, err error) {
	in, out := k.log(swarms.In), k.log(swarms.Out)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, jobs.Errorf(jobs.CodeDeadline, "%v: its log could not "+
		"be written within %v", k, k.of.timeout))
	defer cancel()
	for {
		answered, err := out.Last(ctx) // what is before it is not for the entry
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		last, err := in.Last(ctx)
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		if err := k.mayTake(kind, last); err != nil {
			return 0, 0, err
		}
		err = in.Append(ctx, last.Seq, swarms.Entry{Kind: kind, Ref: last.Ref + 1, Data: data})
		if errors.Is(err, jobs.ErrFenced) && ctx.Err() == nil { // somebody else has written meanwhile
			continue
		}
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		return answered.Seq + 1, last.Seq + 1, nil
	}
}

// ended says why a call ended that its context may have ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// answer waits for the answer to an entry, which is not before number from of the log of answers.
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

// each deals with the shards that has says, with nil all, side by side, and waits for all of them.
// The error is that of the first that failed, with which others failed too, and which did not.
func (s *simulation) each(has func(k int) bool, do func(k shard) error) error {
	n := s.record.ShardCount()
	errs := make([]error, n)
	var all sync.WaitGroup
	for k := range n {
		if has == nil || has(k) {
			all.Go(func() { errs[k] = do(shard{s, k}) })
		}
	}
	all.Wait()
	var failed, done []int
	for k, err := range errs {
		switch {
		case err != nil:
			failed = append(failed, k)
		case has == nil || has(k):
			done = append(done, k)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	err := errs[failed[0]]
	if n == 1 {
		return err
	}
	if len(failed) > 1 {
		err = fmt.Errorf("%w; %s failed too", err, shardList(failed[1:]))
	}
	switch len(done) {
	case 0:
		return fmt.Errorf("%w; no shard has answered", err)
	case 1:
		return fmt.Errorf("%w; %s has answered", err, shardList(done))
	}
	return fmt.Errorf("%w; %s have answered", err, shardList(done))
}

// shardList names shards: shard 2, shards 0, 1, 5.
func shardList(all []int) string {
	var names []string
	for _, k := range all {
		names = append(names, strconv.Itoa(k))
	}
	if len(names) == 1 {
		return "shard " + names[0]
	}
	return "shards " + strings.Join(names, ", ")
}

// ask is askUntil with the patience of the swarm.
func ask[T any](ctx context.Context, s *simulation, kind string, has func(k int) bool, data func(k int) ([]byte, error),
	want string, decode func([]byte) (T, error),
) ([]T, error) {
	return askUntil(ctx, s, time.Now().Add(s.timeout), kind, has, data, want, decode)
}

// askUntil appends an entry to the log of each shard that has says, with nil all, whose data is by
// shard, and decodes the answers, until one deadline. They are by shard; that of one that was not
// asked is a zero.
func askUntil[T any](ctx context.Context, s *simulation, deadline time.Time, kind string, has func(k int) bool,
	data func(k int) ([]byte, error), want string, decode func([]byte) (T, error),
) ([]T, error) {
	all := make([]T, s.record.ShardCount())
	return all, s.each(has, func(k shard) error {
		d, err := data(k.number)
		if err != nil {
			return fmt.Errorf("encode a %s: %w", kind, err)
		}
		if d, err = k.ask(ctx, deadline, kind, d, want); err != nil {
			return err
		}
		all[k.number], err = decode(d)
		return err
	})
}

// askAll is ask of all shards for the same.
func askAll[T any](ctx context.Context, s *simulation, kind string, entry any, want string,
	decode func([]byte) (T, error),
) ([]T, error) {
	return ask(ctx, s, kind, nil, func(int) ([]byte, error) { return json.Marshal(entry) }, want, decode)
}
