package host

import (
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
)

// blocks is a launch whose blocks call a function with their number.
type blocks func(i int)

func (f blocks) Run(b *twins.Block) { f(b.Index) }

// TestBackground: a worker in a launch of a background stream takes the blocks of another launch
// before the next block of its own. Otherwise this test does not end.
func TestBackground(t *testing.T) {
	p := newPool(2)
	defer p.close()
	var both, all sync.WaitGroup
	both.Add(2)
	free, done := make(chan struct{}), make(chan struct{})
	all.Go(func() {
		p.run(&grid{background: true, blocks: 32, threads: 1, launch: blocks(func(i int) {
			if i < 2 {
				both.Done()
				<-free
				return
			}
			<-done
		})})
	})
	both.Wait() // both workers have a block of the background launch
	all.Go(func() {
		p.run(&grid{blocks: 2, threads: 1, launch: blocks(func(i int) {
			if i == 0 {
				close(free)
				<-done
				return
			}
			close(done)
		})})
	})
	all.Wait()
}

// TestQuiet: a background launch leaves a core free until no other launch has begun for a while.
func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		workers int
		ago     time.Duration
		want    int64
	}{{1, 0, 1}, {2, 0, 1}, {16, 0, 15}, {16, 2 * quiet, 16}} {
		p := &pool{workers: c.workers, began: time.Now().Add(-time.Hour)}
		if got := p.most(); got != int64(c.workers) {
			t.Errorf("%d workers, and no other launch: %d cores", c.workers, got)
		}
		p.last.Store(int64(time.Hour - c.ago))
		if got := p.most(); got != c.want {
			t.Errorf("%d workers, and a launch before %v: %d cores, want %d", c.workers, c.ago, got, c.want)
		}
	}
}
