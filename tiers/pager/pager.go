// Package pager keeps pages in tiers of frames above a durable store, and moves them by policy.
//
// A page is in one frame of one memory tier or in none, and in the store when it was checkpointed
// or evicted. Pin brings it into the tier that the caller names and holds it there; the caller may
// then use the frame, launch kernels on it included, until Unpin. Pages that are not pinned move
// down in the background, by watermark and idle time, and what to evict is chosen by package
// policy.
//
// The promises beside those of the store:
//   - A pinned page does not move, and its frame is nobody else's.
//   - A page that was written is in a frame or in the store at any time; when neither medium can hold
//     it, the call that would have to drop it fails, and nothing is dropped.
//   - Checkpoint makes one consistent epoch: exactly the writes whose pins were given back before it
//     was called.
//   - A failing directory is left alone after three failures, others take its pages, and it is probed
//     again by itself.
package pager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
	"github.com/exoswarm/exoswarm/tiers/prefetch"
)

// shards is the number of parts of the page table, each with its own lock: enough that the pins of
// a few hundred cores seldom meet.
const shards = 256

// MaxMemory is how many memory tiers there may be.
const MaxMemory = 8

// Pager is an open page manager. All methods may be called from several goroutines at once.
type Pager struct {
	opts   Options
	table  [shards]shard
	memory []*memory
	disks  []*disk // the tiers of the store
	recent recent  // the ages of the pages that are in the store only
	moved  migrations

	stages   chan []byte // free staging buffers; nil stands for one that is to be made
	stager   tiers.Stager
	zero     []byte    // a page of zeros, which nobody writes: all Pagers with pages of that size share it
	callPool sync.Pool // *call
	groups   sync.Pool // *group

	// checkpoint is held by the Checkpoint that runs, and by Delete.
	checkpoint sync.Mutex
	// puts is held shared while a dirty page is put, and exclusively while a checkpoint marks its
	// pages.
	puts sync.RWMutex
	// marking forbids putting pages that are dirty, since a checkpoint has marked its pages and not
	// committed them: what was written after the mark must not get into its epoch. Guarded by puts.
	marking bool

	clock  atomic.Int64 // coarse time, in units of tick
	demand atomic.Int64 // misses that are being served now; background work waits for them

	work      sync.WaitGroup
	serving   sync.WaitGroup // the goroutines that a medium may hold up
	stop      context.CancelFunc
	ended     chan struct{} // closed by Close
	wanted    chan want
	sweeping  chan struct{} // a hint that a sweep was announced
	forgotten atomic.Uint64
	guessless atomic.Bool // see Guess
	closed    atomic.Bool
}

// shard is a part of the page table.
type shard struct {
	mu sync.RWMutex
	// pages are the resident ones. moving has the pages that are on their way, resident or not:
	// whoever wants one waits on changed.
	pages   map[uint64]*frame
	moving  map[uint64]struct{}
	changed sync.Cond

	// log takes pins for the policies, without a lock: what comes when it is full is not recorded.
	logged atomic.Uint32
	log    [64]atomic.Uint64 // page+1, 0 for nothing

	// hits counts pins that were served at once, by memory tier.
	hits [MaxMemory]atomic.Uint64
}

// frame is a frame of a memory tier.
type frame struct {
	memory *memory
	number int
	page   atomic.Uint64 // constant while the frame is in the table
	pins   atomic.Int32
	writes atomic.Int32 // pins for writing
	// touched is the clock of the last pin, and heat in how many ticks there were some since the
	// page came.
	touched atomic.Int64
	heat    atomic.Uint32
	// fetched is one more than the Reason for which the page came though nobody had asked for it, 0
	// once somebody has.
	fetched atomic.Uint32
	// dirty: the store does not hold this content. saving: a checkpoint is to put it before anybody
	// writes it again. Both change under the shard's lock only, dirty also under the shared one.
	dirty, saving atomic.Bool
	moving        bool // guarded by the shard's lock
}

// memory is a tier of frames.
type memory struct {
	Memory
	level  int
	frames []frame
	copier tiers.Copier // Frames as one, or nil
	mapped tiers.Mapped // likewise

	mu   sync.Mutex // guards free; taken last
	free []*frame

	policyMu sync.Mutex // guards policy; taken before a shard's lock, never under one
	policy   *policy.Adaptive

	predictMu sync.Mutex // guards what guesses; taken after policyMu, before a shard's lock
	predictor *prefetch.Predictor
	guesses   []prefetch.Guess

	breaker *breaker
	failing atomic.Bool  // the breaker has something to tell
	barren  atomic.Int64 // the clock until which no page makes room for a guess

	waiters atomic.Int32
	freed   chan struct{} // a hint to one waiter
	kick    chan struct{} // a hint to the keeper
	bulk    chan struct{} // held by the PinAll that runs
	counters
}

// tick is the resolution of the clock: pins of one page within a tick are one access to the policy.
const tick = 5 * time.Millisecond

// Open starts a Pager over empty frames. The caller closes it.
func Open(opts Options) (*Pager, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	p := &Pager{
		opts: opts, wanted: make(chan want, wantQueue), sweeping: make(chan struct{}, 1), ended: make(chan struct{}),
		zero: zeroPage(opts.PageSize), stages: make(chan []byte, opts.Staging),
	}
	for i := range p.table {
		s := &p.table[i]
		s.pages, s.moving = map[uint64]*frame{}, map[uint64]struct{}{}
		s.changed.L = &s.mu
	}
	for level, o := range opts.Memory {
		p.memory = append(p.memory, newMemory(level, o, opts))
	}
	for _, m := range p.memory { // The first medium with a preference.
		if s, ok := m.Frames.(tiers.Stager); ok {
			p.stager = s
			break
		}
	}
	for range opts.Staging {
		p.stages <- nil
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if opts.Store != nil {
		for level := range opts.Store.Tiers() {
			d := &disk{
				Disk: opts.Disks[level], level: level, breaker: &breaker{Breaker: opts.Breaker},
				calls: make(chan *call, diskWorkers),
			}
			p.disks = append(p.disks, d)
			for range diskWorkers {
				p.serving.Go(func() { p.serve(d) })
			}
		}
		p.work.Go(func() { p.age(ctx) })
	}
	p.work.Go(func() { p.keepTime(ctx) })
	for _, m := range p.memory {
		p.work.Go(func() { p.keepFree(ctx, m) })
	}
	p.work.Go(func() { p.fetch(ctx) })
	return p, nil
}

// zeroPages has a page of zeros for each size that was used. A process opens thousands of Pagers,
// of a handful of sizes.
var zeroPages sync.Map

// zeroPage returns a page of zeros that must not be written.
func zeroPage(size int) []byte {
	if page, is := zeroPages.Load(size); is {
		return page.([]byte)
	}
	page, _ := zeroPages.LoadOrStore(size, make([]byte, size))
	return page.([]byte)
}

// newMemory is a tier whose frames are all free.
func newMemory(level int, o Memory, opts Options) *memory {
	m := &memory{
		Memory: o, level: level, freed: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		bulk: make(chan struct{}, 1),
	}
	m.copier, _ = o.Frames.(tiers.Copier)
	m.mapped, _ = o.Frames.(tiers.Mapped)
	m.breaker = &breaker{Breaker: opts.Breaker}
	n := o.Frames.Count()
	m.frames = make([]frame, n)
	m.policy = policy.NewAdaptive(n-o.High, o.Policy)
	if !opts.NoPrefetch {
		m.predictor = prefetch.New(opts.Prefetch)
	}
	for i := n - 1; i >= 0; i-- {
		m.frames[i].memory, m.frames[i].number = m, i
		m.free = append(m.free, &m.frames[i])
	}
	return m
}

// shard finds a page's part of the table.
func (p *Pager) shard(page uint64) *shard {
	return &p.table[page*0x9e3779b97f4a7c15>>56]
}

// tier finds a memory tier by number.
func (p *Pager) tier(n int) (*memory, error) {
	if p.closed.Load() {
		return nil, tiers.ErrClosed
	}
	if n < 0 || n >= len(p.memory) {
		return nil, fmt.Errorf("memory tier %d of %d: %w", n, len(p.memory), tiers.ErrInvalid)
	}
	return p.memory[n], nil
}

// Close stops the background work and reports pages that are still pinned as tiers.ErrLeak. It does
// not checkpoint: what was written since the last Checkpoint is dropped, and the store goes on from
// there. A second call does nothing.
func (p *Pager) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	p.stop()
	close(p.ended)
	var errs []error
	if err := p.waitEnd(); err != nil {
		errs = append(errs, err)
	}
	for i := range p.table {
		s := &p.table[i]
		s.mu.RLock()
		for page, f := range s.pages {
			if n := f.pins.Load(); n != 0 {
				errs = append(errs, fmt.Errorf("page %d has %d pins: %w", page, n, tiers.ErrLeak))
			}
		}
		s.mu.RUnlock()
	}
	return errors.Join(errs...)
}

// waitEnd waits for the goroutines of the Pager. One that a medium holds up is left to it after the
// time of a stall.
func (p *Pager) waitEnd() error {
	done := make(chan struct{})
	go func() {
		p.work.Wait()
		p.serving.Wait()
		close(done)
	}()
	t := time.NewTimer(p.opts.Breaker.Stall)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("calls to a medium have not returned for %v: %w", p.opts.Breaker.Stall, tiers.ErrLeak)
	}
}
