package pager

import (
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// Stats are a Pager's counters since Open.
type Stats struct {
	Memory []MemoryStats
	Store  []StoreStats
	// Migrations counts the moves by tiers and reason; pairs without a move are left out.
	Migrations []Migration
	// Queue is the number of pages that wait to be fetched. Forgotten counts pages that found the
	// queue full.
	Queue     int
	Forgotten uint64
	// AgeBytes is the memory that the ages of the pages in the store take.
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

// MemoryStats are the counters of a memory tier.
type MemoryStats struct {
	Name string
	// Policy is the expert that the tier follows now.
	Policy string
	// Frames and Free count frames.
	Frames, Free int
	// Hits and Misses count pins by whether the page was there.
	Hits, Misses uint64
	// In and Out count pages moved into and out of the tier; Idle is the part of Out that left
	// because of age, and Prefetched the part of In that came before a pin.
	In, Out, Idle, Prefetched uint64
	// Used and Wasted count the prefetched pages that were pinned, and that left before.
	Used, Wasted uint64
	// Guesses are the measures of the predictor, by the source of the guesses.
	Guesses map[string]policy.PredictorStats
	// Errors counts copies that failed, Trips how often the breaker opened, and Open reports
	// whether it is open.
	Errors, Trips uint64
	Open          bool
	// Wait has the times of pins that were not served at once, Copy the times in which a page was
	// copied into the tier from another memory tier, as a share of its batch.
	Wait, Copy tiers.Counts
	// WaitTime and CopyTime are the sums of the durations of Wait and Copy.
	WaitTime, CopyTime time.Duration
}

// StoreStats are the counters of a tier of the store.
type StoreStats struct {
	Name string
	// Queue is the number of calls that run or wait.
	Queue int
	// Errors counts calls that failed or stalled, Trips how often the breaker opened, and Open
	// reports whether no call has succeeded since, also after the pause of the breaker.
	Errors, Trips uint64
	Open          bool
	// Read has the times of reads, Write of writes and moves into the tier.
	Read, Write tiers.Counts
	// ReadTime and WriteTime are the sums of the durations of Read and Write.
	ReadTime, WriteTime time.Duration
}

// Stats returns the counters. They are read one by one while the Pager is in use, so they may not
// fit each other exactly.
func (p *Pager) Stats() Stats {
	st := Stats{Queue: len(p.guesses.wanted), Forgotten: p.guesses.forgotten.Load()}
	_, st.AgeBytes = p.ages.Size()
	now := time.Now()
	var names []string
	for _, m := range p.memory {
		names = append(names, m.Name)
		st.Memory = append(st.Memory, p.memoryStats(m, now))
	}
	for _, d := range p.calls.Disks {
		names = append(names, d.Name)
		st.Store = append(st.Store, StoreStats{
			Name: d.Name, Queue: int(d.Depth.Load()), Errors: d.Failed.Load(), Trips: d.Breaker.Trips(),
			Open: d.Breaker.Tripped(), Read: d.Gets.Read(), Write: d.Puts.Read(),
			ReadTime: d.Gets.Sum(), WriteTime: d.Puts.Sum(),
		})
	}
	for from, a := range names {
		for to, b := range names {
			for why := range reasons {
				if n := p.move.moved[from][to][why].Load(); n > 0 {
					st.Migrations = append(st.Migrations,
						Migration{From: a, To: b, Up: to < from, Reason: why.String(), Pages: n})
				}
			}
		}
	}
	return st
}

func (p *Pager) memoryStats(m *memory, now time.Time) MemoryStats {
	frames, free := m.size()
	ms := MemoryStats{
		Name: m.Name, Frames: frames, Free: free, Misses: m.misses.Load(),
		In: m.in.Load(), Out: m.out.Load(), Idle: m.idle.Load(), Prefetched: m.prefetched.Load(),
		Used: m.used.Load(), Wasted: m.wasted.Load(), Errors: m.failed.Load(), Trips: m.breaker.Trips(),
		Open: m.breaker.Open(now), Wait: m.wait.Read(), Copy: m.copies.Read(),
		WaitTime: m.wait.Sum(), CopyTime: m.copies.Sum(),
	}
	for i := range p.table.shards {
		ms.Hits += p.table.shards[i].hits[m.level].Load()
	}
	ms.Hits -= min(ms.Misses, ms.Hits) // A pin after a page fault counts as a hit, too.
	m.policyMu.Lock()
	ms.Policy = m.policy.Name()
	m.policyMu.Unlock()
	if m.predictor != nil {
		ms.Guesses = map[string]policy.PredictorStats{}
		m.predictMu.Lock()
		for s := range policy.GuessSources {
			ms.Guesses[policy.GuessSource(s).String()] = m.predictor.Stats(policy.GuessSource(s))
		}
		m.predictMu.Unlock()
	}
	return ms
}

// Reason is why a page moved.
type Reason uint8

// The reasons.
const (
	ByDemand      Reason = iota // a pin asked for it
	ByRoom                      // a pin asked for its frame
	ByWatermark                 // few frames were free, or a tier of the store was full
	ByAge                       // it was idle for its tier's threshold
	ByShare                     // Resize has taken frames from its tier
	ByHeat                      // it was in use again and again, or read again soon
	ByHint                      // WillNeed or DoneWith
	ByRun                       // it comes next in a run
	ByCorrelation               // it followed the last time
	reasons
)

// String returns the name that metrics use.
func (r Reason) String() string {
	return [...]string{"demand", "room", "watermark", "age", "share", "heat", "hint", "run", "correlation"}[r]
}

// guessed reports whether the page moved without a call of the user that needs it now.
func (r Reason) guessed() bool { return r >= ByHeat }

// maxPlaces is the most tiers of memory and store together.
const maxPlaces = MaxMemory + 16

// migrations counts moves between tiers, all numbered from the top down, by reason.
type migrations [maxPlaces][maxPlaces][reasons]atomic.Uint64

func (m *migrations) count(from, to int, why Reason) { m[from][to][why].Add(1) }
