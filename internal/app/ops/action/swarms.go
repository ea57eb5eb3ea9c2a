package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// errAllowed aborts a removal that is allowed, before it starts.
var errAllowed = errors.New("it may be removed")

// swarmEffects are the effects that name a swarm, its shards and the agents that serve them.
func swarmEffects(ctx context.Context, o *Operator, s *swarmclient.Swarm) ([]Effect, error) {
	census, err := o.conn.Swarms.Census(ctx)
	if err != nil {
		return nil, err
	}
	var holders []string
	record := s.Record()
	for k := range record.ShardCount() {
		if h := census.Holders[swarms.LeaseKey(record.Key(), k)]; h != "" && !slices.Contains(holders, h) {
			holders = append(holders, h)
		}
	}
	slices.Sort(holders)
	positions, err := s.Positions(ctx)
	if err != nil {
		return nil, err
	}
	entries := uint64(0)
	for _, p := range positions {
		entries += p.Entries
	}
	spec := s.Spec()
	return []Effect{
		effect("swarm", []string{record.ID}, false),
		{What: "neural agents", Count: int(int64(spec.Groups()) * int64(spec.AgentsPerGroup))},
		{What: "shards", Count: record.ShardCount()},
		effect("GPU agents that serve it", holders, false),
		{What: "entries of its logs", Count: int(entries), Live: true},
	}, nil
}

func previewDelete(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	s, err := o.swarms.Open(ctx, r.Object)
	if err != nil {
		return p, err
	}
	r.Object = s.ID()
	if err := o.swarms.Delete(ctx, r.Object, func() error { return errAllowed }); !errors.Is(err, errAllowed) {
		return p, err
	}
	p.Sentence = fmt.Sprintf("Delete swarm %s, its logs and the state of all its agents. Snapshots stay.", s.ID())
	p.Final = true
	p.mark = fmt.Sprint(s.Record().Nonce)
	p.Affects, err = swarmEffects(ctx, o, s)
	return p, err
}

func doDelete(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	return Outcome{Sentence: "swarm " + r.Object + " is deleted", Count: 1}, o.swarms.Delete(ctx, r.Object, nil)
}

func previewSnapshot(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	s, err := o.swarms.Open(ctx, r.Object)
	if err != nil {
		return p, err
	}
	if r.Object = s.ID(); r.Name == "" {
		r.Name = SnapshotName(s.ID(), time.Now())
	}
	if err := s.CheckSnapshotName(r.Name); err != nil {
		return p, err
	}
	p.Sentence = fmt.Sprintf("Save the state of swarm %s as snapshot %s. The swarm answers nothing else meanwhile.",
		s.ID(), r.Name)
	p.mark = fmt.Sprint(s.Record().Nonce)
	p.Affects, err = swarmEffects(ctx, o, s)
	return p, err
}

// SnapshotName returns the default name of a snapshot: the name of the swarm, and a time.
func SnapshotName(id string, at time.Time) string {
	const stamp = "-20060102T150405Z"
	return id[:min(len(id), 64-len(stamp))] + at.UTC().Format(stamp)
}

func doSnapshot(ctx context.Context, o *Operator, r Request) (out Outcome, err error) {
	s, err := o.swarms.Open(ctx, r.Object)
	if err != nil {
		return out, err
	}
	if r.Wait {
		out.Snapshots, err = s.Snapshot(ctx, r.Name)
		out.Sentence, out.Count = "snapshot "+r.Name+" is complete", uint64(len(out.Snapshots))
		return out, err
	}
	out.Entries, err = s.StartSnapshot(ctx, r.Name)
	out.Sentence, out.Count = "snapshot "+r.Name+" is being written", uint64(len(out.Entries))
	return out, err
}

// previewDrain shows what an agent has: its jobs and its shards.
func previewDrain(ctx context.Context, o *Operator, r *Request) (p Preview, err error) {
	census, err := o.conn.Swarms.Census(ctx)
	if err != nil {
		return p, err
	}
	i := slices.IndexFunc(census.Agents, func(a jobs.Agent) bool { return a.Name == r.Object && a.Lost == nil })
	if i < 0 {
		return p, fmt.Errorf("agent %s is not connected: %w", r.Object, jobs.ErrNotFound)
	}
	a := census.Agents[i]
	others := 0
	for _, b := range census.Agents {
		if b.Pool == a.Pool && b.Name != a.Name && b.Lost == nil && b.State != "draining" {
			others++
		}
	}
	p.Sentence = fmt.Sprintf("Drain agent %s of pool %s: it takes no more work, gives back what it has, and ends.",
		a.Name, a.Pool)
	if others == 0 {
		p.Sentence += " No other agent of its pool is connected: its work waits until one is."
	}
	p.Final = true
	p.mark = strconv.FormatInt(a.Started.UnixNano(), 10)
	var shards, running []string
	for key, holder := range census.Holders {
		if holder == a.Name {
			shards = append(shards, key)
		}
	}
	slices.Sort(shards)
	if len(a.Kinds) > 0 {
		all, err := o.conn.Queue.Running(ctx, a.Pool, "")
		if err != nil {
			return p, err
		}
		for _, j := range all {
			if j.Worker == a.Name {
				running = append(running, j.JobID)
			}
		}
	}
	p.Affects = []Effect{
		effect("agent", []string{a.Name}, false), effect("shards that move to other agents", shards, false),
		effect("running jobs that it gives back", running, true),
		{What: "other agents of its pool", Count: others},
	}
	return p, nil
}

func doDrain(ctx context.Context, o *Operator, r Request) (Outcome, error) {
	return Outcome{Sentence: "agent " + r.Object + " drains", Count: 1}, o.conn.Registry.DrainAgent(ctx, r.Object)
}
