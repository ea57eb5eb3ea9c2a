package pager

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// beat is the heartbeat of the open Pagers of a process: one goroutine, which sets their clocks and
// begins the rounds of background work that are due. It runs while there is a Pager, so an idle
// Pager has no goroutine and no timer of its own.
type beat struct {
	mu     sync.Mutex
	pagers map[*Pager]struct{}
	stop   chan struct{} // ends the goroutine; nil: it does not run
	ended  chan struct{} // closed by it
}

var heart = beat{pagers: map[*Pager]struct{}{}}

func (b *beat) join(p *Pager) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pagers[p] = struct{}{}
	if b.stop == nil {
		b.stop, b.ended = make(chan struct{}), make(chan struct{})
		go b.run(b.stop, b.ended)
	}
}

// leave removes a Pager. No round of it begins any more.
func (b *beat) leave(p *Pager) {
	b.mu.Lock()
	delete(b.pagers, p)
	ended := (chan struct{})(nil)
	if len(b.pagers) == 0 && b.stop != nil {
		close(b.stop)
		ended, b.stop = b.ended, nil
	}
	b.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

func (b *beat) run(stop, ended chan struct{}) {
	defer close(ended)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			b.mu.Lock()
			for p := range b.pagers {
				p.beat(now)
			}
			b.mu.Unlock()
		case <-stop:
			return
		}
	}
}

func (p *Pager) beat(now time.Time) {
	p.clock.ticks.Store(int64(now.Sub(p.opened) / tick)) // A ticker drops ticks on a busy machine.
	at := p.clock.now()
	for _, m := range p.memory {
		m.keeps.begin(at)
	}
	if p.ageing != nil {
		p.ageing.rounds.begin(at)
	}
}

// rounds is background work that runs round by round, in a goroutine while there is something to
// do.
type rounds struct {
	round func(ctx context.Context)
	begun func(func(ctx context.Context)) // runs a function in a goroutine, unless the Pager is closed
	state atomic.Int32                    // by the constants below
	next  atomic.Int64                    // the clock of the next round
}

// The states of rounds.
const (
	resting = iota
	running
	again // a further round follows the one that runs
)

// begin begins a round if it is due.
func (r *rounds) begin(now int64) {
	if now >= r.next.Load() && r.state.Load() == resting {
		r.kick()
	}
}

// kick begins a round now, or has another one follow the one that runs.
func (r *rounds) kick() {
	for {
		switch s := r.state.Load(); {
		case s == again || s == running && r.state.CompareAndSwap(running, again):
			return
		case s == resting && r.state.CompareAndSwap(resting, running):
			r.begun(r.run)
			return
		}
	}
}

// run makes rounds until no further one is requested.
func (r *rounds) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.round(ctx)
		if r.state.CompareAndSwap(running, resting) {
			return
		}
		r.state.Store(running)
	}
}

// background runs f in a goroutine that Close waits for, or not at all once the Pager is closed.
func (p *Pager) background(f func(ctx context.Context)) {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.ctx.Err() == nil {
		p.work.Go(func() { f(p.ctx) })
	}
}
