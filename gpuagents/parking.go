package gpuagents

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
)

// answered looks whether a shard that was not served yet has nothing to do, while as many others are open as are kept open. It returns where its
// log ends then.
func (a *Agent) answered(ctx context.Context, p *post) *shard.Rest {
	a.mu.Lock()
	look := !p.served && p.rest == nil && a.open.Full()
	a.mu.Unlock()
	if !look {
		return nil
	}
	in, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.In).Last(ctx)
	if err != nil || in.Seq == 0 { // one that is new is about to be asked something
		return nil
	}
	out, err := a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.Out).Last(ctx)
	if err != nil || out.Ref < in.Seq {
		return nil
	}
	return &shard.Rest{Entry: in.Seq, Stored: true}
}

// park gives a post no goroutine until there is something new in its log.
func (a *Agent) park(ctx context.Context, p *post, r *shard.Rest) {
	a.mu.Lock()
	if p.of.gone || ctx.Err() != nil || p.bereft() {
		p.cancel = nil
		a.enqueue(p)
		a.mu.Unlock()
		return
	}
	p.state, p.cancel, p.served = postParked, nil, true
	if !r.Stored {
		p.rest = r
		a.resting += r.Bytes()
	}
	a.mu.Unlock()
	if err := a.wakes.Add(ctx, p.key(), a.o.Queue.Log(p.id.Swarm, p.id.Shard, jobs.In), r.Entry); err != nil {
		if ctx.Err() == nil {
			p.log.Warn("parked shard not watched, serving it again", "error", err)
		}
		a.wake(p.key())
	}
}

// wake serves a parked shard again.
func (a *Agent) wake(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.posts[key]; p != nil && p.state == postParked {
		a.enqueue(p)
	}
}

// listen wakes parked shards until ctx ends.
func (a *Agent) listen(ctx context.Context) {
	for {
		key, err := a.wakes.Next(ctx)
		if err != nil {
			return
		}
		a.wake(key)
	}
}

// rests reports whether there is memory for what a shard leaves.
func (a *Agent) rests(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resting+bytes <= a.o.ParkedMemory
}
