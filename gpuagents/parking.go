package gpuagents

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// answered returns the rest of a shard that need not be served now: it was not served yet, all its
// entries are answered, and as many other shards are open as the bound allows. Otherwise it returns
// nil.
func (a *Agent) answered(ctx context.Context, p *assignment) *shard.Rest {
	a.mu.Lock()
	look := !p.served && p.rest == nil && a.openShards.Full()
	a.mu.Unlock()
	if !look {
		return nil
	}
	in, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, swarms.In).Last(ctx)
	if err != nil || in.Seq == 0 { // a new shard gets its first entry soon
		return nil
	}
	out, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, swarms.Out).Last(ctx)
	if err != nil || out.Ref < in.Seq {
		return nil
	}
	return &shard.Rest{Entry: in.Seq, Stored: true}
}

// park leaves a shard without a goroutine until its log has a new entry.
func (a *Agent) park(ctx context.Context, p *assignment, r *shard.Rest) {
	a.mu.Lock()
	if p.of.gone || ctx.Err() != nil || p.lostLease() {
		p.cancel = nil
		a.enqueue(p)
		a.mu.Unlock()
		return
	}
	p.state, p.cancel, p.served = stateParked, nil, true
	if !r.Stored {
		p.rest = r
		a.parkedBytes += r.Bytes()
	}
	a.mu.Unlock()
	if err := a.wakes.Add(ctx, p.key(), a.o.Queue.Log(p.id.Swarm, p.id.Shard, swarms.In), r.Entry); err != nil {
		if ctx.Err() == nil {
			p.log.Warn("parked shard not watched, serving it again", "error", err)
		}
		a.wake(p.key())
	}
}

func (a *Agent) wake(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.assignments[key]; p != nil && p.state == stateParked {
		a.enqueue(p)
	}
}

func (a *Agent) listen(ctx context.Context) {
	for {
		key, err := a.wakes.Next(ctx)
		if err != nil {
			return
		}
		a.wake(key)
	}
}

// hasParkedMemory reports whether the rest of a shard fits into the memory of parked shards. It
// reserves nothing, so shards that park at the same time may exceed the bound.
func (a *Agent) hasParkedMemory(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.parkedBytes+bytes <= a.o.ParkedMemory
}
