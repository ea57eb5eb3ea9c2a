// Package pager keeps pages in tiers of frames above a durable store, and moves them by policy.
//
// A page is in one frame of one memory tier or in none, and in the store when it was checkpointed
// or evicted. Pin brings it into the tier that the caller names and holds it there; the caller may
// then use the frame, launch kernels on it included, until Unpin. Pages that are not pinned move
// down in the background, by watermark and idle time; package policy chooses the page to evict.
//
// The promises beyond the promises of the store:
//   - A pinned page does not move, and no other page uses its frame.
//   - A page that was written is in a frame or in the store at any time; when neither medium can
//     hold it, the call that would have to drop it fails, and nothing is dropped.
//   - Checkpoint makes one consistent epoch: exactly the writes whose pins were given back before
//     it was called.
//   - After three failures in a row the circuit of a directory is open: other directories take its
//     pages, and a probe closes the circuit again.
//
// # Parts
//
// A Pager consists of parts, each with state of its own. Each part calls only those above it in
// this list:
//   - memory: the frames of a tier, its free list, policy, predictor and circuit breaker
//   - table: the frame of each resident page, and the claims of pages that move
//   - storeCaller: the calls to the store; ageTable: the ages of its pages
//   - guesser: the queue of wanted pages
//   - checkpoints: the marks of the checkpoint that runs
//   - mover: moves of groups of claimed pages, up (bring) and down (lower)
//   - pinner: pins and page faults
//   - fetcher, keeper, aging: the background work of wanted pages, of memory tiers, of the store
//
// # Locks
//
// Locks are taken in this order, and a goroutine that holds one takes only later ones:
//  1. checkpoints.running: one Checkpoint, Delete or Resize at a time; then Pager.still
//  2. memory.bulk: one PinAll of a tier at a time
//  3. a claim of a page, see table: only a goroutine without claims waits for one; a goroutine that
//     holds claims and waits for frames saves its marked pages first
//  4. checkpoints.gate: shared to put dirty pages, exclusive to mark them
//  5. memory.policyMu
//  6. memory.predictMu
//  7. shard.mu of the page table; Checkpoint takes all of them, in ascending order
//  8. memory.mu
//
// The locks of a breaker, of an ageTable and of the store are taken last, and under them none of
// these. Nothing is copied and no medium is called under any lock from 5 on. Claims that fail at
// once instead of waiting, claimFrom and claimAbove, are also made under 5.
package pager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// Pager is an open page manager. All methods may be called from several goroutines at once.
type Pager struct {
	opts   Options
	memory []*memory // constant
	store  tiers.Store
	zero   []byte // a page of zeros, never written: all Pagers with pages of that size share it

	table       table
	clock       clock
	demand      demand
	ages        ageTable // of the pages that are in the store only
	calls       *storeCaller
	staging     *stagingBuffers
	groups      *groups
	guesses     guesser
	checkpoints checkpoints
	move        mover
	pins        pinner
	fetches     fetcher

	still    sync.RWMutex // held shared by a round of background work that takes frames, exclusively by Resize
	opened   time.Time
	ageing   *aging          // nil: pages of the store never move
	starting sync.Mutex      // held to begin a round of background work, and to end all
	work     sync.WaitGroup  // the goroutines of the background work
	ctx      context.Context //nolint:containedctx // of the background work
	stop     context.CancelFunc
	ended    chan struct{} // closed by Close
	closed   atomic.Bool
}

// Open starts a Pager over empty frames. The caller closes it.
func Open(opts Options) (*Pager, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	p := &Pager{
		opts: opts, store: opts.Store, ended: make(chan struct{}), zero: zeroPage(opts.PageSize),
	}
	for level, o := range opts.Memory {
		p.memory = append(p.memory, newMemory(level, o, opts))
	}
	p.openStore()
	p.connect()
	p.startWork()
	return p, nil
}

// openStore makes the staging buffers and starts the workers of the store's tiers.
func (p *Pager) openStore() {
	var stager tiers.Stager
	for _, m := range p.memory { // The first medium with a preference.
		if s, ok := m.Frames.(tiers.Stager); ok {
			stager = s
			break
		}
	}
	p.staging = newStaging(p.opts.Staging, p.opts.PageSize, stager)
	calls := callOptions{
		Store: p.store, Kind: p.opts.Kind, Breaker: p.opts.Breaker, Staging: p.staging, Ended: p.ended,
	}
	if p.store != nil {
		for _, d := range p.opts.Disks {
			calls.Names = append(calls.Names, d.Name)
		}
	}
	p.calls = newCaller(calls)
}

func (p *Pager) connect() {
	frames := 0
	for _, m := range p.memory {
		frames += len(m.frames)
	}
	p.table.init(p.store, frames)
	p.groups = newGroups(p.opts.Batch)
	p.guesses = guesser{table: &p.table, wanted: make(chan want, wantQueue)}
	puts := &putter{calls: p.calls, staging: p.staging}
	p.checkpoints = checkpoints{table: &p.table, puts: puts, store: p.store}
	p.move = mover{
		table: &p.table, memory: p.memory, store: p.store, calls: p.calls, staging: p.staging, puts: puts,
		checkpoints: &p.checkpoints, ages: &p.ages, clock: &p.clock, groups: p.groups, disks: p.opts.Disks,
		ended: p.ended,
	}
	p.pins = pinner{
		table: &p.table, memory: p.memory, guesses: &p.guesses, move: &p.move, checkpoints: &p.checkpoints,
		groups: p.groups, clock: &p.clock, demand: &p.demand, closed: &p.closed, ended: p.ended,
	}
	p.fetches = fetcher{
		table: &p.table, memory: p.memory, guesses: &p.guesses, move: &p.move, groups: p.groups, clock: &p.clock,
		demand: &p.demand, batch: p.opts.Batch, stall: p.opts.Breaker.Stall,
		still: &p.still,
	}
}

// startWork prepares the background work, which Close ends.
func (p *Pager) startWork() {
	p.opened = time.Now()
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.ageing = newAging(p)
	k := &keeper{
		table: &p.table, memory: p.memory, store: p.store, guesses: &p.guesses, move: &p.move, groups: p.groups,
		clock: &p.clock, demand: &p.demand, batch: p.opts.Batch, still: &p.still,
	}
	for _, m := range p.memory {
		m.keeps.begun, m.keeps.round = p.background, func(ctx context.Context) { k.round(ctx, m) }
	}
	p.fetches.rounds.begun, p.fetches.rounds.round = p.background, p.fetches.round
	p.guesses.queued = p.fetches.rounds.kick
	heart.join(p)
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

func (p *Pager) tier(n int) (*memory, error) {
	if p.closed.Load() {
		return nil, tiers.ErrClosed
	}
	if n < 0 || n >= len(p.memory) {
		return nil, fmt.Errorf("memory tier %d of %d: %w", n, len(p.memory), tiers.ErrInvalid)
	}
	return p.memory[n], nil
}

// Checkpoint makes every page durable as it is now, with a note, as one epoch, and returns its
// number. Only pages that were written since the last one are put. Pins for writing must have been
// given back: while one is held, Checkpoint fails with tiers.ErrUnavailable and does nothing.
// Others may pin for writing as soon as their page is saved, which they do themselves if it is not
// yet; what they write goes into the next epoch. note is copied.
//
// After an error the pages are still dirty, and the store is where it was.
func (p *Pager) Checkpoint(ctx context.Context, note []byte) (epoch uint64, err error) {
	if p.closed.Load() {
		return 0, tiers.ErrClosed
	}
	if p.store == nil {
		return 0, fmt.Errorf("checkpoint without a store: %w", tiers.ErrInvalid)
	}
	return p.checkpoints.run(ctx, note)
}

// Note returns the note of the last checkpoint, nil without a store. The caller must not change it.
func (p *Pager) Note() []byte {
	if p.store == nil {
		return nil
	}
	return p.store.Note()
}

// Close stops the background work and reports pages that are still pinned as tiers.ErrLeak. It does
// not checkpoint: what was written since the last Checkpoint is dropped, and the store continues
// from there. A second call does nothing.
func (p *Pager) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	heart.leave(p)
	p.starting.Lock()
	p.stop()
	p.starting.Unlock()
	close(p.ended)
	var errs []error
	if err := p.waitEnd(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, p.table.leaks()...)
	return errors.Join(errs...)
}

// waitEnd waits for the goroutines of the Pager, for the time of a stall. It returns tiers.ErrLeak
// if a medium still holds one up then.
func (p *Pager) waitEnd() error {
	done := make(chan struct{})
	go func() {
		p.work.Wait()
		p.calls.Wait()
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

// errPinned is the error of a page that may not move, because it is pinned in another tier.
var errPinned = fmt.Errorf("pinned: %w", tiers.ErrUnavailable)

// errSettle is the error of a page that is in its tier and has to be saved before it is written.
var errSettle = errors.New("page is being saved")

// errMarking is the error of a dirty page that cannot be put because its writes do not belong to
// the checkpoint that runs.
var errMarking = errors.New("a checkpoint is running")
