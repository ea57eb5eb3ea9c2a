package pager

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers/prefetch"
)

// Reason says why a page moved.
type Reason uint8

// The reasons.
const (
	ByDemand      Reason = iota // a pin asked for it
	ByRoom                      // a pin asked for its frame
	ByWatermark                 // few frames were free, or a tier of the store was full
	ByAge                       // it was idle for its tier's threshold
	ByHeat                      // it was in use again and again, or read again soon
	ByHint                      // WillNeed or DoneWith
	BySweep                     // WillSweep
	ByRun                       // it comes next in a run
	ByCorrelation               // it followed the last time
	reasons
)

// String is the name that metrics use.
func (r Reason) String() string {
	return [...]string{"demand", "room", "watermark", "age", "heat", "hint", "sweep", "run", "correlation"}[r]
}

// guessed says that nobody had asked for the page.
func (r Reason) guessed() bool { return r >= ByHeat }

// maxPlaces is how many tiers there may be: memory tiers and those of a pagestore.
const maxPlaces = MaxMemory + 16

// migrations counts moves between tiers, all numbered from the top down, by reason.
type migrations [maxPlaces][maxPlaces][reasons]atomic.Uint64

// count counts a move.
func (p *Pager) count(from, to int, why Reason) { p.moved[from][to][why].Add(1) }

// counters are a memory tier's.
type counters struct {
	misses, in, out, idle, prefetched, used, wasted, failed atomic.Uint64
	wait, copies                                            histogram
}

// Buckets is the number of buckets of a Histogram.
const Buckets = 40

// histogram counts durations by power of two.
type histogram struct{ buckets [Buckets]atomic.Uint64 }

// add counts a duration in nanoseconds.
func (h *histogram) add(ns int64) {
	h.buckets[min(bits.Len64(uint64(max(ns, 0))), Buckets-1)].Add(1)
}

// read copies the counters.
func (h *histogram) read() (out Histogram) {
	for i := range out {
		out[i] = h.buckets[i].Load()
	}
	return out
}

// Histogram counts durations: bucket i those under 1<<i nanoseconds that are not in a bucket
// before.
type Histogram [Buckets]uint64

// Count is the number of durations.
func (h Histogram) Count() (n uint64) {
	for _, v := range h {
		n += v
	}
	return n
}

// Quantile is an upper bound of the q-quantile, 0 <= q <= 1; 0 without durations.
func (h Histogram) Quantile(q float64) time.Duration {
	total, seen := h.Count(), uint64(0)
	for i, n := range h {
		seen += n
		if n > 0 && float64(seen) >= q*float64(total) {
			return time.Duration(int64(1) << i)
		}
	}
	return 0
}

// Stats are a Pager's counters since Open.
type Stats struct {
	Memory []MemoryStats
	Store  []StoreStats
	// Migrations are the moves that there were.
	Migrations []Migration
	// Queue is the number of pages waiting to be fetched, Forgotten how many found no place in the
	// queue.
	Queue     int
	Forgotten uint64
	// AgeBytes is what the ages of the pages in the store take of memory.
	AgeBytes int64
}

// Migration counts the moves from one tier to another for one reason. A page that the store held
// already when it left memory counts as moved to where it is.
type Migration struct {
	From, To string
	Up       bool
	Reason   string
	Pages    uint64
}

// MemoryStats are a memory tier's.
type MemoryStats struct {
	Name string
	// Policy is the expert that the tier follows now.
	Policy string
	// Frames and Free count frames.
	Frames, Free int
	// Hits and Misses count pins by whether the page was there.
	Hits, Misses uint64
	// In and Out count pages moved into and out of the tier; Idle those of Out that went for their
	// idle time, and Prefetched those of In that nobody had asked for.
	In, Out, Idle, Prefetched uint64
	// Used and Wasted count the prefetched pages that were asked for, and that left before.
	Used, Wasted uint64
	// Guesses are what the predictor's were worth, by their source.
	Guesses map[string]prefetch.Stats
	// Errors counts copies that failed, Trips how often the breaker opened, and Open says that it
	// is.
	Errors, Trips uint64
	Open          bool
	// Wait is how long pins took that were not served at once, Copy how long a page took to be
	// copied into the tier from another memory tier, as a share of its batch.
	Wait, Copy Histogram
}

// StoreStats are those of a tier of the store.
type StoreStats struct {
	Name string
	// Queue is the number of calls that run or wait.
	Queue int
	// Errors counts calls that failed or stalled, Trips how often the breaker opened, and Open says
	// that it is.
	Errors, Trips uint64
	Open          bool
	// Read is how long reads took, Write how long writes and moves into the tier did.
	Read, Write Histogram
}

// Stats reads the counters.
func (p *Pager) Stats() Stats {
	st := Stats{Queue: len(p.wanted), Forgotten: p.forgotten.Load()}
	_, st.AgeBytes = p.recent.size()
	now := time.Now()
	var names []string
	for _, m := range p.memory {
		names = append(names, m.Name)
		st.Memory = append(st.Memory, p.memoryStats(m, now))
	}
	for _, d := range p.disks {
		names = append(names, d.Name)
		d.breaker.mu.Lock()
		trips := d.breaker.trips
		d.breaker.mu.Unlock()
		st.Store = append(st.Store, StoreStats{
			Name: d.Name, Queue: int(d.depth.Load()), Errors: d.failed.Load(), Trips: trips, Open: d.breaker.open(now),
			Read: d.gets.read(), Write: d.puts.read(),
		})
	}
	for from, a := range names {
		for to, b := range names {
			for why := range reasons {
				if n := p.moved[from][to][why].Load(); n > 0 {
					st.Migrations = append(st.Migrations,
						Migration{From: a, To: b, Up: to < from, Reason: why.String(), Pages: n})
				}
			}
		}
	}
	return st
}

// memoryStats reads those of one tier.
func (p *Pager) memoryStats(m *memory, now time.Time) MemoryStats {
	ms := MemoryStats{
		Name: m.Name, Frames: len(m.frames), Free: m.freeFrames(), Misses: m.misses.Load(),
		In: m.in.Load(), Out: m.out.Load(), Idle: m.idle.Load(), Prefetched: m.prefetched.Load(),
		Used: m.used.Load(), Wasted: m.wasted.Load(), Errors: m.failed.Load(), Open: m.breaker.open(now),
		Wait: m.wait.read(), Copy: m.copies.read(),
	}
	m.breaker.mu.Lock()
	ms.Trips = m.breaker.trips
	m.breaker.mu.Unlock()
	for i := range p.table {
		ms.Hits += p.table[i].hits[m.level].Load()
	}
	ms.Hits -= min(ms.Misses, ms.Hits) // A pin that missed is served at once in the end.
	m.policyMu.Lock()
	ms.Policy = m.policy.Name()
	m.policyMu.Unlock()
	if m.predictor != nil {
		ms.Guesses = map[string]prefetch.Stats{}
		m.predictMu.Lock()
		for s := range prefetch.Sources {
			ms.Guesses[prefetch.Source(s).String()] = m.predictor.Stats(prefetch.Source(s))
		}
		m.predictMu.Unlock()
	}
	return ms
}

// start is the origin of nanotime.
var start = time.Now()

// nanotime is a monotonic clock in nanoseconds.
func nanotime() int64 { return int64(time.Since(start)) }
