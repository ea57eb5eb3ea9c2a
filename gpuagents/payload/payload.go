// Package payload gets the bytes of entries that are beside the log (docs/rfcs/0055-bulk-lane.md),
// as long as it takes, and says which entry of a shard waits for them.
package payload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Source fetches payloads. jobs/bulk.Fetcher is one. Its methods may be called from several
// goroutines.
type Source interface {
	// Fetch reads the bytes that b describes into memory of their length, or fails. It never
	// returns other bytes without an error.
	Fetch(ctx context.Context, b swarms.Bulk, into []byte) error
}

// ErrNoSource reports that the agent has nothing that fetches payloads.
var ErrNoSource = errors.New("this agent fetches no bytes of entries beside the log")

// ErrReplaced reports that a snapshot has replaced the entry since it was read, and that its bytes
// are gone. The shard starts again, from the snapshot.
var ErrReplaced = errors.New("a snapshot replaces the entry, whose bytes are gone")

const (
	// most is how many payloads of a shard are fetched at a time. Of the largest ones, the bytes in
	// flight allow four.
	most = 8
	// The pauses between two tries: the first one, and the longest one.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// maxError bounds the text of an error in announcements.
	maxError = 200
)

// Getter gets the payloads of a shard. Its methods may be called from several goroutines.
type Getter struct {
	source  Source
	log     *slog.Logger
	metrics *CellMetrics
	base    func() uint64
	slots   *semaphore.Weighted
	pause   time.Duration

	mu    sync.Mutex
	waits map[uint64]jobs.Waiting // by entry: those whose last try has failed
}

// NewGetter returns a getter. source may be nil: then every try fails. base returns the last entry
// that a snapshot replaces now; nil: none does. metrics may be nil.
func NewGetter(source Source, base func() uint64, log *slog.Logger, metrics *CellMetrics) *Getter {
	return &Getter{
		source: source, base: base, log: log, metrics: metrics, slots: semaphore.NewWeighted(most), pause: firstPause,
		waits: map[uint64]jobs.Waiting{},
	}
}

// WeightOf returns how many bytes of memory the observations of an entry need when they are decoded,
// at least its bytes.
func WeightOf(data []byte) int {
	b, err := swarms.DecodeBulk(data)
	if err != nil {
		return len(data)
	}
	return b.Memory
}

// Begin waits until a call of Get may begin, or ctx ends. It is called in the order of the log: an
// entry that waits for its bytes must not keep an earlier one from being fetched.
func (g *Getter) Begin(ctx context.Context) error {
	if g.slots.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Get returns the bytes of an entry of kind swarms.EntryBulk. It tries until it has them or ctx ends;
// then it fails with the cause. A *jobs.Error refuses the entry: every agent refuses it.
// ErrReplaced means that the bytes will never come. It follows one call of Begin.
func (g *Getter) Get(ctx context.Context, e swarms.Entry) ([]byte, error) {
	defer g.slots.Release(1)
	b, err := swarms.DecodeBulk(e.Data)
	if err != nil {
		return nil, err
	}
	defer g.done(e.Seq)
	data := make([]byte, b.Bytes)
	for pause := g.pause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		if g.source == nil {
			err = ErrNoSource
		} else {
			err = g.source.Fetch(ctx, b, data)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == nil {
			g.metrics.fetched(b.Bytes, time.Since(began))
			return data, swarms.CheckBulk(b, batch.MemoryOf(data))
		}
		if g.base != nil && g.base() >= e.Seq {
			return nil, fmt.Errorf("entry %d: %w (%w)", e.Seq, ErrReplaced, err)
		}
		g.failed(e.Seq, b, began, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// failed notes that an entry waits for its bytes.
func (g *Getter) failed(seq uint64, b swarms.Bulk, began time.Time, err error) {
	text := err.Error()
	text = text[:min(len(text), maxError)]
	g.mu.Lock()
	w, was := g.waits[seq]
	if !was {
		w.Since = began.UTC()
	}
	w.Entry, w.Place, w.Error = seq, b.Place, text
	g.waits[seq] = w
	first := len(g.waits) == 1 && !was
	g.mu.Unlock()
	g.metrics.failed()
	if first {
		g.metrics.waiting(1)
	}
	if !was {
		g.log.Warn("an entry waits for its bytes, and later entries for it", "entry", seq, "place", b.Place, "error",
			err)
	}
}

// done notes that an entry waits no longer.
func (g *Getter) done(seq uint64) {
	g.mu.Lock()
	w, was := g.waits[seq]
	delete(g.waits, seq)
	last := was && len(g.waits) == 0
	g.mu.Unlock()
	if last {
		g.metrics.waiting(-1)
	}
	if was {
		g.log.Info("an entry waits for its bytes no longer", "entry", seq, "place", w.Place, "after",
			time.Since(w.Since).Round(time.Millisecond))
	}
}

// Waiting returns the first entry that waits for its bytes after a failed try, with the key of its
// shard; false: none does.
func (g *Getter) Waiting(key string) (first jobs.Waiting, is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for seq, w := range g.waits {
		if !is || seq < first.Entry {
			first, is = w, true
		}
	}
	first.Shard = key
	return first, is
}
