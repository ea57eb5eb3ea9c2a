package generation

import (
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// patience is how long the generator waits for a server that is away before it asks again.
const patience = 200 * time.Millisecond

// again repeats a call while the server is away, until the generator ends.
func (g *Generator) again(do func() error) error {
	for {
		err := do()
		if !errors.Is(err, jobs.ErrUnavailable) {
			return err
		}
		if err := retry.Sleep(g.ctx, patience); err != nil {
			return err
		}
	}
}

// read follows the answers from number next on, until the generator ends.
func (g *Generator) read(next uint64) {
	defer g.done.Done()
	for g.ctx.Err() == nil {
		err := g.again(func() error {
			r, err := g.o.Out.Read(g.ctx, next)
			if err != nil {
				return err
			}
			defer r.Close()
			for {
				a, err := r.Next(g.ctx)
				if err != nil {
					return err
				}
				if err := g.answered(a); err != nil {
					return err
				}
				next++
			}
		})
		if err != nil {
			g.fail(err)
		}
	}
}

// answered follows an answer. An answer to an own entry waits until append has said where it is.
func (g *Generator) answered(a swarms.Entry) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for a.Ref > g.appended && g.appending != nil {
		busy := g.appending
		g.mu.Unlock()
		<-busy // append ends with the generator
		g.mu.Lock()
	}
	own := g.waiting[a.Ref]
	delete(g.waiting, a.Ref)
	if own == nil || own.about == nil {
		if own != nil {
			g.ticks--
			g.wake()
			if a.Kind == swarms.EntryRejected {
				g.broken(refusal(a))
			}
		}
		return g.follow(a)
	}
	if err := g.apply(own, a); err != nil {
		return err
	}
	own.answer = a
	own.about.waiting--
	g.touch(own.about)
	if own.frees != nil {
		own.frees.release()
	}
	close(own.done)
	return nil
}

// broken ends the streams of all active agents: a tick has failed.
func (g *Generator) broken(err error) {
	for _, p := range g.places {
		if p.stream != nil && p.active {
			p.stream.failed = err
			g.touch(p)
		}
	}
}
