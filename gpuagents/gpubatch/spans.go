// Package gpubatch has what a batch of work on a device needs: staging buffers, a size, a record of
// the time of its stages, and the classes of device failures.
package gpubatch

import (
	"sync"
	"time"
)

// Stage is a stage of the pipeline through which a batch of entries passes in an agent.
type Stage uint8

// The stages, in the order in which a batch passes them.
const (
	StageFetch    Stage = iota // existing entries of the log are read; excludes the wait for new ones
	StageDecode                // observations are decoded and checked
	StagePage                  // the shard waits for pages that are not on the device
	StageUpload                // observations are copied to the device
	StageKernel                // from the launch of the kernels to their end
	StageReadBack              // votes and decisions are copied to the host
	StageAppend                // answers are encoded and appended
	stages
)

var names = [stages]string{"fetch", "decode", "page", "upload", "kernel", "read back", "append"}

// String returns the name of the stage in documents and traces.
func (s Stage) String() string {
	if s < stages {
		return names[s]
	}
	return "unknown"
}

// Stages returns the names of all stages in their order. The slice is the caller's.
func Stages() []string { return append([]string(nil), names[:]...) }

// MaxSpans is the number of spans that a Ring keeps.
const MaxSpans = 4096

// Span is one stage of one batch.
type Span struct {
	Stage Stage
	// Swarm is the key of the swarm, and Shard the number of its shard.
	Swarm string
	Shard int
	// First and Last are the numbers of the first and the last entry of the batch.
	First, Last uint64
	// Bytes is the number of bytes that the stage moved; 0: it moves none, or they are not counted.
	Bytes int64
	Begin time.Time
	Took  time.Duration
}

// Ring keeps the last MaxSpans spans. Its methods may be called from several goroutines; a nil Ring
// keeps nothing.
type Ring struct {
	mu    sync.Mutex
	spans [MaxSpans]Span
	count uint64                            // spans that were ever added
	took  map[string]*[stages]time.Duration // their time by cell and stage
}

// NewRing returns an empty ring.
func NewRing() *Ring { return &Ring{took: map[string]*[stages]time.Duration{}} }

// add replaces the oldest span, and adds the time to the totals of a cell. It allocates nothing.
func (r *Ring) add(s Span, took *[stages]time.Duration) {
	r.mu.Lock()
	r.spans[r.count%MaxSpans] = s
	r.count++
	if s.Stage < stages {
		took[s.Stage] += s.Took
	}
	r.mu.Unlock()
}

// Totals returns the time of all spans that were ever added, by cell and by stage in the order of
// Stages. A cell has totals as soon as it has a track. Stages of several shards, and of the batches
// of one shard, overlap. The map is the caller's.
func (r *Ring) Totals() map[string][]time.Duration {
	all := map[string][]time.Duration{}
	if r == nil {
		return all
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for cell, took := range r.took {
		all[cell] = append([]time.Duration(nil), took[:]...)
	}
	return all
}

// Since returns the spans that ended after a time, in the order of their ends. The slice is the
// caller's.
func (r *Ring) Since(from time.Time) []Span {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Span
	for i := r.count - min(r.count, MaxSpans); i < r.count; i++ {
		if s := r.spans[i%MaxSpans]; s.Begin.Add(s.Took).After(from) {
			all = append(all, s)
		}
	}
	return all
}

// Track adds the spans of one shard to a ring. A nil Track adds nothing, and reads no clock. One
// goroutine uses it.
type Track struct {
	ring        *Ring
	took        *[stages]time.Duration // totals of the cell; guarded by the mutex of the ring
	swarm       string
	shard       int
	first, last uint64
}

// Track returns a track of a shard of a swarm with a cell; nil for a nil Ring.
func (r *Ring) Track(swarm string, shard int, cell string) *Track {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	took := r.took[cell]
	if took == nil {
		took = &[stages]time.Duration{}
		r.took[cell] = took
	}
	return &Track{ring: r, took: took, swarm: swarm, shard: shard}
}

// Of sets the entries of the spans that are added next.
func (t *Track) Of(first, last uint64) {
	if t != nil {
		t.first, t.last = first, last
	}
}

// Now returns the time at which a span begins, for End.
func (t *Track) Now() (began time.Time) {
	if t != nil {
		began = time.Now()
	}
	return began
}

// End adds a span that ends now, and returns the time at which the next one begins.
func (t *Track) End(stage Stage, began time.Time, bytes int) (now time.Time) {
	if t == nil {
		return now
	}
	now = time.Now()
	t.Add(stage, began, now.Sub(began), bytes)
	return now
}

// Add adds a span.
func (t *Track) Add(stage Stage, began time.Time, took time.Duration, bytes int) {
	if t != nil {
		t.ring.add(Span{stage, t.swarm, t.shard, t.first, t.last, int64(bytes), began, took}, t.took)
	}
}
