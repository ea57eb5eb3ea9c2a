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
)

// frame is a frame of a memory tier. It is free, owned by the goroutine that took it, or in the
// page table. Its atomic fields may be read by any goroutine; the comments say who writes them.
type frame struct {
	memory *memory
	number int
	page   atomic.Uint64 // constant while the frame is in the table
	pins   atomic.Int32
	writes atomic.Int32 // pins for writing
	// touched is the clock of the last pin, and heat the number of ticks with pins since the page
	// came. Pins write both without a lock, so heat may miss some.
	touched atomic.Int64
	heat    atomic.Uint32
	// fetched is one more than the Reason of a page that was fetched before its first pin, and 0
	// after that pin.
	fetched atomic.Uint32
	// dirty: the store does not hold this content. saving: a checkpoint is to put it, and until
	// then no pin for writing is given. Both change under the shard's lock only, dirty also under
	// the shared one.
	dirty, saving atomic.Bool
	moving        bool // guarded by the shard's lock
}

// Release gives a frame back to its tier, empty; see callFrame.
func (f *frame) Release() { f.memory.release(f) }

// memory is a tier of frames: who owns which frame, the policy that chooses pages to evict, the
// predictor that chooses pages to fetch, and the circuit breaker of the medium.
type memory struct {
	Memory
	level  int
	frames []frame
	copier tiers.Copier // Frames as one, or nil
	mapped tiers.Mapped // Frames as one, or nil

	mu   sync.Mutex // guards free, and frames against Stats; taken last
	free []*frame

	policyMu sync.Mutex // guards policy; taken before a shard's lock, never under one
	policy   *policy.Adaptive

	predictMu sync.Mutex // guards predictor and guesses; taken after policyMu, before a shard's lock
	predictor *policy.Predictor
	guesses   []policy.Guess

	breaker *breaker
	failing atomic.Bool // the last copy failed, so that the breaker is to be asked
	// noGuessUntil is the clock until which no page is evicted for a guess.
	noGuessUntil atomic.Int64

	// leaving is the number of frames whose pages have left the tier and which are not free yet.
	leaving atomic.Int32

	waiters atomic.Int32
	freed   chan struct{} // a hint to one waiter
	keeps   rounds        // of the keeper
	looked  int64         // the clock of the last look for idle pages; used by the keeper
	pause   int64         // ticks between two rounds of the keeper; likewise
	bulk    chan struct{} // held by the PinAll that runs
	counters
}

// newMemory returns a tier whose frames are all free. The options are valid.
func newMemory(level int, o Memory, opts Options) *memory {
	m := &memory{
		Memory: o, level: level, freed: make(chan struct{}, 1),
		bulk: make(chan struct{}, 1),
	}
	m.copier, _ = o.Frames.(tiers.Copier)
	m.mapped, _ = o.Frames.(tiers.Mapped)
	m.breaker = newBreaker(opts.Breaker)
	n := o.Frames.Count()
	m.setFrames(n)
	m.policy = policy.NewAdaptive(n-o.High, o.Policy)
	if !opts.NoPrefetch {
		m.predictor = policy.NewPredictor(opts.Prefetch)
	}
	return m
}

// setFrames gives the tier n free frames. The first is the last to be taken.
func (m *memory) setFrames(n int) {
	m.frames, m.free = make([]frame, n), make([]*frame, 0, n)
	for i := n - 1; i >= 0; i-- {
		m.frames[i].memory, m.frames[i].number = m, i
		m.free = append(m.free, &m.frames[i])
	}
}

// takeFree returns a free frame if more than keep are free, else nil. The frame is the caller's
// until settle puts it into the table or release gives it back.
func (m *memory) takeFree(keep int) *frame {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.free)
	if n <= keep {
		return nil
	}
	f := m.free[n-1]
	m.free = m.free[:n-1]
	if n-1 < m.Low {
		m.kickKeeper()
	}
	return f
}

// release gives a frame back. It is in no table, and no call to a medium uses it any more.
func (m *memory) release(f *frame) {
	f.dirty.Store(false)
	f.saving.Store(false)
	f.fetched.Store(0)
	m.mu.Lock()
	m.free = append(m.free, f)
	m.mu.Unlock()
	if m.waiters.Load() > 0 {
		m.hint()
	}
}

// hint wakes one goroutine that waits for a frame. It may wake none in time, so waiters look again
// after a while.
func (m *memory) hint() {
	select {
	case m.freed <- struct{}{}:
	default:
	}
}

func (m *memory) kickKeeper() {
	if m.keeps.begun != nil {
		m.keeps.kick()
	}
}

func (m *memory) freeFrames() int {
	_, free := m.size()
	return free
}

func (m *memory) size() (frames, free int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.frames), len(m.free)
}

// outcome reports how a copy from or to the tier ended to its breaker, and returns err with the
// name of the tier. A copy that its caller gave up does not count as a failure.
func (m *memory) outcome(ctx context.Context, err error) error {
	if err == nil {
		if m.failing.Load() { // The lock and the clock are needed after a failure only.
			m.breaker.Report(true, time.Now())
			m.failing.Store(m.breaker.Open(time.Now()))
		}
		return nil
	}
	if ctx.Err() == nil {
		m.failed.Add(1)
		m.failing.Store(true)
		m.breaker.Report(false, time.Now())
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

// outcomeOfAccess is outcome for a part of a page. A range that does not fit the page is a mistake
// of the caller, not a failure of the medium.
func (m *memory) outcomeOfAccess(err error) error {
	if errors.Is(err, tiers.ErrInvalid) {
		return err
	}
	return m.outcome(context.Background(), err)
}

func (m *memory) down() bool { return m.failing.Load() && m.breaker.Open(time.Now()) }

// tell reports a page to the policy: call is Access of a page fault, Added, Evicted when the page
// left for another tier or the store, or Removed of a deleted page.
func (m *memory) tell(call func(*policy.Adaptive, uint64), page uint64) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	call(m.policy, page)
}

// outcomeOf tells the predictor whether a page that was fetched for a reason was pinned before it
// left its frame.
func (m *memory) outcomeOf(why Reason, used bool) {
	if used {
		m.used.Add(1)
	} else {
		m.wasted.Add(1)
	}
	if m.predictor == nil || why != ByRun && why != ByCorrelation {
		return
	}
	source := policy.Run
	if why == ByCorrelation {
		source = policy.Correlation
	}
	m.predictMu.Lock()
	defer m.predictMu.Unlock()
	m.predictor.Outcome(source, used)
}

func errGone(m *memory, err error) error {
	return fmt.Errorf("its newest content is in %s, which fails: %w", m.Name, errors.Join(tiers.ErrLost, err))
}

type counters struct {
	misses, in, out, idle, prefetched, used, wasted, failed atomic.Uint64
	wait, copies                                            tiers.Histogram
}
