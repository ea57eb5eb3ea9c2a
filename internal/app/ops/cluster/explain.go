package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// facts asks the servers for their report within half of explainPatience, so that there is time
// left for the other questions. An error is a fact, and not a failure: explain.Facts has it.
func facts(ctx context.Context, c *natsq.Conn) explain.Facts {
	ctx, cancel := context.WithTimeout(ctx, explainPatience/2)
	defer cancel()
	r, err := c.Servers.Report(ctx)
	if err != nil {
		return explain.Facts{Error: err}
	}
	return explain.Facts{Report: r}
}

// ExplainJob returns why a job does not progress. The error is that of a question that failed
// although the servers answer. ExplainJob takes no longer than explainPatience and changes nothing.
// It asks the servers first: without them no other question has an answer.
func ExplainJob(ctx context.Context, c *natsq.Conn, id string) (explain.Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, explainPatience)
	defer cancel()
	f := explain.JobFacts{ID: id, Now: time.Now(), Servers: facts(ctx, c)}
	f.Pool.Pool = jobs.PoolCPU
	if f.Servers.Error != nil {
		return explain.Job(f), nil
	}
	err := jobFacts(ctx, c, &f)
	if err != nil || f.Listed == nil && f.Result == nil && f.Dead == nil {
		// A stream without a leader answers nothing: that is the cause, and not an error. It may have
		// lost its leader meanwhile.
		f.Servers = facts(context.WithoutCancel(ctx), c)
	}
	if err != nil {
		if f.Servers.Troubled() {
			return explain.Job(f), nil
		}
		return explain.Reason{}, fmt.Errorf("explain job %s: %w", id, err)
	}
	return explain.Job(f), nil
}

// jobFacts fills in everything about a job but the servers. The order of the questions matters: a
// result is final, then comes the queue, and last the dead letters, which are read from the
// beginning. After it returns nil, exactly one of Result, Listed and Dead is set, or none for an
// unknown id. Agents, limits and counts are read only for a job that is listed.
func jobFacts(ctx context.Context, c *natsq.Conn, f *explain.JobFacts) error {
	for look := range 2 { // it may end between the two questions
		r, err := c.Results.Lookup(ctx, f.ID)
		if err == nil {
			f.Result = &r
			return nil
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		j, seen, err := c.Queue.LocateIn(ctx, f.ID)
		if err == nil {
			f.Listed, f.Silent = &j, seen.Silent()
			last(ctx, c.Logs.Logs, f)
			if j.State == queue.StateRetrying && f.Ended == nil && look == 0 {
				// Workers store the end of an attempt some 200 ms after it, and a job that is handed over runs
				// by then.
				f.Listed, f.Silent = nil, nil
				select {
				case <-time.After(endStored):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				continue
			}
			break
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		if look == 1 {
			return c.Letters.List(ctx, jobs.DeadFilter{ID: f.ID}, func(d jobs.DeadLetter) bool {
				f.Dead = &d
				return false
			})
		}
	}
	var err error
	if f.Pool, err = c.Queue.Stats(ctx, f.Listed.Pool); err != nil {
		return err
	}
	if f.Agents, err = c.Registry.Agents(ctx); err != nil {
		return err
	}
	if f.Limits, err = c.Control.Tenants(ctx); err != nil {
		return err
	}
	// The limit of a tenant counts its running jobs of all pools and kinds.
	tenant := f.Listed.WithDefaults().Tenant
	for _, p := range wire.Pools() {
		st := f.Pool
		if p != st.Pool {
			if st, err = c.Queue.Stats(ctx, p); err != nil {
				return err
			}
		}
		for _, s := range st.Sources {
			if s.Tenant == tenant {
				f.Running += s.Running
			}
		}
	}
	f.Now = time.Now()
	return nil
}

// ExplainSwarm returns why a swarm does not progress. It makes looks of its own and does not use
// State, whose rates may be a second old.
func (w *Watcher) ExplainSwarm(ctx context.Context, name string) (explain.Reason, error) {
	return ExplainSwarm(ctx, w.conn, name)
}

// rateOver is the time over which ExplainSwarm measures the rate of a shard.
const rateOver = time.Second

// ExplainSwarm returns why the swarm of a name or id does not progress. It looks twice, a second
// apart, to see whether entries are answered. Several swarms may share a name while one of them
// ends; the last in the order of names and ids wins, and shards of all are listed. A rejection is
// reported only if it is the newest answer of a shard.
func ExplainSwarm(ctx context.Context, c *natsq.Conn, name string) (explain.Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, explainPatience)
	defer cancel()
	f := explain.SwarmFacts{Name: name, Now: time.Now(), Servers: facts(ctx, c)}
	if f.Servers.Error != nil {
		return explain.Swarm(f), nil
	}
	l := &looker{conn: c}
	var s *State
	for look := range 2 {
		if look == 1 {
			select {
			case <-time.After(rateOver):
			case <-ctx.Done():
				return explain.Reason{}, context.Cause(ctx)
			}
		}
		next, err := l.look(ctx, false)
		if err != nil {
			if f.Servers = facts(context.WithoutCancel(ctx), c); f.Servers.Troubled() {
				return explain.Swarm(f), nil
			}
			return explain.Reason{}, fmt.Errorf("explain swarm %s: %w", name, err)
		}
		s = next
	}
	for _, a := range s.Agents {
		f.Agents = append(f.Agents, a.Agent)
	}
	for _, sw := range s.Swarms {
		if sw.Name == name || sw.ID == name {
			f.Found, f.Ending, f.Error, f.Owner = true, sw.Ending, sw.Error, sw.Owner
			for _, sh := range sw.Shards {
				f.Shards = append(f.Shards, explain.ShardFacts{
					Shard: sh.Shard, Holder: sh.Holder, Entries: sh.Entries, Answered: sh.Answered,
					Rate: sh.EntriesPerSecond, Recovering: sh.Recovering, LostHolder: sh.LostHolder,
					LostSince: sh.LostSince, Leaderless: sh.Leaderless,
				})
				if e, err := c.Swarms.Log(sw.Key, sh.Shard, swarms.Out).Last(ctx); err == nil &&
					e.Kind == swarms.EntryRejected {
					if m, err := rejection(e.Data); err == nil {
						f.Rejected = m
					}
				}
			}
		}
	}
	return explain.Swarm(f), nil
}
