package host

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
)

// quiet is the time behind the last launch of another stream in which launches of background streams
// leave a core free. Go polls the network where a core has no work, and otherwise every 10 ms, so
// beside a launch on all cores a request waits for 10 ms at each of its steps.
const quiet = time.Second

// pool is the cores of the host device: workers that live as long as the device and take blocks of
// the launches that are offered to them. The goroutine of the stream that launches takes blocks,
// too, so a pool of n workers has n-1 goroutines.
type pool struct {
	offers     chan *grid // launches that have blocks left; a worker may receive one twice
	background chan *grid // the same of background streams; offers go first
	workers    int
	wg         sync.WaitGroup // of the workers
	began      time.Time
	last       atomic.Int64 // when a launch of another stream has begun last, behind began; 0: never
}

// newPool starts the workers. The caller ends them with close.
func newPool(workers int) *pool {
	// The queue holds a full set of offers for a few launches at once, so that a stream rarely
	// waits to make them.
	p := &pool{
		offers: make(chan *grid, 4*workers), background: make(chan *grid, 4*workers), workers: workers,
		began: time.Now(),
	}
	for range workers - 1 {
		p.wg.Go(func() {
			for p.help() {
			}
		})
	}
	return p
}

// help waits for an offer and takes blocks of it. It reports false when the pool is closed.
func (p *pool) help() bool {
	select {
	case g, open := <-p.offers:
		if open {
			g.work()
		}
		return open
	default:
	}
	select {
	case g, open := <-p.offers:
		if open {
			g.work()
		}
		return open
	case g := <-p.background:
		g.workBehind()
		return true
	}
}

// most returns how many cores a launch of a background stream takes now.
func (p *pool) most() int64 {
	last := p.last.Load()
	if n := int64(p.workers); last == 0 || n == 1 || time.Since(p.began)-time.Duration(last) > quiet {
		return n
	}
	return int64(p.workers - 1)
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
	g.pool = p
	offers, workers := p.offers, p.workers
	if g.background {
		offers, workers = p.background, int(p.most())
	} else {
		p.last.Store(max(1, int64(time.Since(p.began))))
	}
	for range min(workers-1, g.blocks-1) {
		select {
		case offers <- g:
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
	background      bool // launches of other streams go first
	pool            *pool
	workers         atomic.Int64 // that take blocks of a background launch

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
	for g.take() {
	}
}

// workBehind is work for a worker of a launch of a background stream: launches of other streams go
// first, and the worker leaves when the launch has more cores than it may take. The goroutine of the
// stream, one of the cores, stays, and takes no blocks of other launches: the system takes its thread
// from the core for a while when others have waited.
func (g *grid) workBehind() {
	defer g.workers.Add(-1)
	for cores := g.workers.Add(1) + 1; cores <= g.pool.most(); cores = g.workers.Load() + 1 {
		select {
		case other, open := <-g.pool.offers:
			if open {
				other.work()
			}
		default:
		}
		if !g.take() {
			return
		}
	}
}

// take makes a chunk of blocks, and reports whether there may be more.
func (g *grid) take() bool {
	total := int64(g.blocks)
	first := g.next.Add(g.chunk) - g.chunk
	if first >= total {
		return false
	}
	end := min(first+g.chunk, total)
	// After a failure the blocks that are left count as done without a run, so that the launch ends.
	if g.failure.Load() == nil {
		g.blocksOf(first, end)
	}
	if g.done.Add(end-first) == total {
		close(g.finished)
		return false
	}
	return true
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
