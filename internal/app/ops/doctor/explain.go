package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// AskServers asks the servers for their report within half of ExplainPatience, which leaves time
// for further questions. An error is a fact: ServerFacts has it.
func AskServers(ctx context.Context, c *natsq.Conn) ServerFacts {
	ctx, cancel := context.WithTimeout(ctx, ExplainPatience/2)
	defer cancel()
	r, err := c.Servers.Report(ctx)
	if err != nil {
		return ServerFacts{Error: err}
	}
	return ServerFacts{Report: r}
}

// ExplainJob returns why a job does not progress. It fails if a question fails although the servers
// answer. It takes no longer than ExplainPatience and changes nothing. It asks the servers first:
// without them no other question has an answer.
func ExplainJob(ctx context.Context, c *natsq.Conn, id string) (Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, ExplainPatience)
	defer cancel()
	f := JobFacts{ID: id, Now: time.Now(), Servers: AskServers(ctx, c)}
	f.Pool.Pool = jobs.PoolCPU
	if f.Servers.Error != nil {
		return JobReason(f), nil
	}
	err := jobFacts(ctx, c, &f)
	if err != nil || f.Listed == nil && f.Result == nil && f.Dead == nil {
		// A stream without a leader answers nothing: that is the cause, and not an error. It may have
		// lost its leader meanwhile.
		f.Servers = AskServers(context.WithoutCancel(ctx), c)
	}
	if err != nil {
		if f.Servers.Troubled() {
			return JobReason(f), nil
		}
		return Reason{}, fmt.Errorf("explain job %s: %w", id, err)
	}
	return JobReason(f), nil
}

// jobFacts fills in everything about a job but the servers. The order of the questions matters: a
// result is final, then comes the queue, and last the dead letters, which are read from the
// beginning. After it returns nil, exactly one of Result, Listed and Dead is set, or none for an
// unknown id. Agents, limits and counts are read only for a job that is listed.
func jobFacts(ctx context.Context, c *natsq.Conn, f *JobFacts) error {
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

// rateOver is the time over which ExplainSwarm measures the rate of a shard.
const rateOver = time.Second

// ExplainSwarm returns why the swarm of a name or id does not progress. It polls twice, a second
// apart, to see whether entries are answered. Several swarms may share a name while one of them
// ends; the last in the order of names and ids wins, and shards of all are listed. A rejection is
// reported only if it is the newest answer of a shard.
func ExplainSwarm(ctx context.Context, c *natsq.Conn, name string) (Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, ExplainPatience)
	defer cancel()
	f := SwarmFacts{Name: name, Now: time.Now(), Servers: AskServers(ctx, c)}
	if f.Servers.Error != nil {
		return SwarmReason(f), nil
	}
	l := cluster.NewPoller(c)
	var s *cluster.State
	for look := range 2 {
		if look == 1 {
			select {
			case <-time.After(rateOver):
			case <-ctx.Done():
				return Reason{}, context.Cause(ctx)
			}
		}
		next, err := l.Poll(ctx, false)
		if err != nil {
			if f.Servers = AskServers(context.WithoutCancel(ctx), c); f.Servers.Troubled() {
				return SwarmReason(f), nil
			}
			return Reason{}, fmt.Errorf("explain swarm %s: %w", name, err)
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
				f.Shards = append(f.Shards, ShardFacts{
					Shard: sh.Shard, Holder: sh.Holder, Entries: sh.Entries, Answered: sh.Answered,
					Rate: sh.EntriesPerSecond, Recovering: sh.Recovering, LostHolder: sh.LostHolder,
					LostSince: sh.LostSince, Leaderless: sh.Leaderless,
				})
				if e, err := c.Swarms.Log(sw.Key, sh.Shard, swarms.Out).Last(ctx); err == nil &&
					e.Kind == swarms.EntryRejected {
					if m, err := cluster.Rejection(e.Data); err == nil {
						f.Rejected = m
					}
				}
			}
		}
	}
	return SwarmReason(f), nil
}

// ExplainPatience bounds the collection of facts: a server that does not answer is a fact too.
const ExplainPatience = 3 * time.Second

// endStored is how long after the end of an attempt its worker has stored that.
const endStored = 600 * time.Millisecond

// last adds the newest attempt in the log of the job to the facts: its worker, and how it ended. A
// job without a log leaves them empty.
func last(ctx context.Context, logs func(context.Context, string, bool, func(jobs.LogLines) error) error,
	f *JobFacts,
) {
	f.Worker, f.Attempt, f.Ended = "", 0, nil
	_ = logs(ctx, f.ID, false, func(l jobs.LogLines) error { // without a log the attempt is not known
		if l.Attempt < f.Attempt || l.Worker == "" {
			return nil
		}
		if l.Attempt > f.Attempt {
			f.Ended = nil
		}
		f.Worker, f.Attempt = l.Worker, l.Attempt
		for _, raw := range l.Lines {
			var line struct {
				jobs.LogLine
				Pause time.Duration `json:"pause"`
				Error string        `json:"error"`
			}
			if json.Unmarshal(raw, &line) != nil ||
				line.Message != jobs.LogNextAttempt && line.Message != jobs.LogGivenBack {
				continue
			}
			f.Ended = &AttemptEnd{
				Worker: l.Worker, Attempt: l.Attempt, At: line.Time, Pause: line.Pause, Error: line.Error,
			}
		}
		return nil
	})
}
