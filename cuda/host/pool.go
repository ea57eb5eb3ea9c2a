package host

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
)

// pool is the cores of the host device: workers that live as long as the device and take blocks of
// the launches that are offered to them. The goroutine of the stream that launches takes blocks,
// too, so a pool of n workers has n-1 goroutines.
type pool struct {
	offers  chan *grid // launches that have blocks left; a worker may receive one twice
	workers int
	wg      sync.WaitGroup // of the workers
}

// newPool starts the workers. The caller ends them with close.
func newPool(workers int) *pool {
	// The queue holds a full set of offers for a few launches at once, so that a stream rarely
	// waits to make them.
	p := &pool{offers: make(chan *grid, 4*workers), workers: workers}
	for range workers - 1 {
		p.wg.Go(func() {
			for g := range p.offers {
				g.work()
			}
		})
	}
	return p
}

// close ends the workers and waits for them. No launch may be running.
func (p *pool) close() {
	close(p.offers)
	p.wg.Wait()
}

// run makes all blocks of a launch and returns when they are done: nil, or the first failure.
// Blocks that begin after a failure are left out.
func (p *pool) run(g *grid) *failure {
	g.finished = make(chan struct{})
	// Several chunks a worker even out blocks of unequal length; large chunks keep the shared
	// counter off the hot path when blocks are tiny.
	g.chunk = min(max(int64(g.blocks)/int64(p.workers*16), 1), 1024)
	for range min(p.workers-1, g.blocks-1) {
		select {
		case p.offers <- g:
		default: // enough launches wait for the workers already
		}
	}
	g.work()
	<-g.finished
	return g.failure.Load()
}

// grid is one launch in progress. Workers take chunks of blocks by next and count them in done; the
// launch is over when done has reached blocks.
type grid struct {
	kernel          string // the name, for errors
	launch          twins.Launch
	blocks, threads int

	chunk    int64         // how many blocks a worker takes at a time
	next     atomic.Int64  // the first block that no worker has taken
	done     atomic.Int64  // blocks that are over
	finished chan struct{} // closed by the worker that ends the last block
	failure  atomic.Pointer[failure]
}

// failure is the error of a launch that panicked, and the stack at the panic.
type failure struct {
	err   error
	stack []byte
}

// work takes blocks until none is left. A worker that gets the offer after the end of the launch
// finds none and returns.
func (g *grid) work() {
	total := int64(g.blocks)
	for {
		first := g.next.Add(g.chunk) - g.chunk
		if first >= total {
			return
		}
		end := min(first+g.chunk, total)
		// After a failure the blocks that are left count as done without a run, so that the launch
		// ends.
		if g.failure.Load() == nil {
			g.blocksOf(first, end)
		}
		if g.done.Add(end-first) == total {
			close(g.finished)
			return
		}
	}
}

// blocksOf runs the blocks [first, end). A panic of the twin becomes the failure of the launch. The
// first failure of a launch counts, and blocks that run at that time still end.
func (g *grid) blocksOf(first, end int64) {
	b := twins.Block{Grid: g.blocks, Threads: g.threads}
	defer func() {
		if r := recover(); r != nil {
			err := fmt.Errorf("kernel %s: block %d of %d: %v: %w", g.kernel, b.Index, g.blocks, r, device.ErrSticky)
			if cause, ok := r.(error); ok {
				err = fmt.Errorf("kernel %s: block %d of %d: %w: %w", g.kernel, b.Index, g.blocks, cause,
					device.ErrSticky)
			}
			g.failure.CompareAndSwap(nil, &failure{err: err, stack: debug.Stack()})
		}
	}()
	for i := first; i < end; i++ {
		b.Index = int(i)
		g.launch.Run(&b)
	}
}
