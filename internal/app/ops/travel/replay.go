package travel

// This file computes the state that the agents of a shard had after any entry of its log.
//
// State is a function of the log, and all devices give the same bits. A Replayer therefore applies
// the entries of a log on the host device, with the code of a GPU agent (package state), and gets
// the state of that moment. It changes nothing: it appends no answer and holds no lease.
//
// A replay begins with the latest of these that the log continues: a moment that the Replayer has
// kept, a snapshot, the base of a trimmed log, or the initial state.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Logs reads the logs of entries of shards. Its methods may be called from several goroutines.
type Logs interface {
	// Bounds returns the numbers of the first and the last entry of a log; last is 0 for an empty
	// log. swarm is the key of its swarm, see swarms.Swarm.Key. It fails with jobs.ErrNotFound if
	// there is no such log.
	Bounds(ctx context.Context, swarm string, shard int, d swarms.Direction) (first, last uint64, err error)
	// Scan reads the entries from number first to number last, which both exist. The caller closes
	// the reader.
	Scan(ctx context.Context, swarm string, shard int, d swarms.Direction, first, last uint64) (swarms.Reader, error)
}

// Defaults of Options.
const (
	DefaultMaxBytes   = 256 << 20
	DefaultMaxEntries = 5_000_000
	DefaultKeepBytes  = 128 << 20
)

// ReplayOptions configure a Replayer. Device and Logs are required.
type ReplayOptions struct {
	// Device is a host device. It stays the caller's, who closes it after the Replayer.
	Device device.Device
	Logs   Logs
	// Snapshots is the place where the GPU agents keep snapshots; nil: replays use none.
	Snapshots snapshot.Store
	// Models opens the files of language models in Snapshots; nil: conversations are not replayed.
	Models snapshot.Files
	// MaxBytes bounds the pages of a shard in bytes. A replay holds them twice: the state, and the
	// moment that it returns. 0: DefaultMaxBytes.
	MaxBytes int64
	// MaxEntries bounds the entries of a replay. 0: DefaultMaxEntries.
	MaxEntries uint64
	// KeepBytes bounds the moments that are kept, in bytes. The newest moment is kept even if it is
	// larger. 0: DefaultKeepBytes.
	KeepBytes int64
}

// Replayer replays logs, one at a time. Its methods may be called from several goroutines.
type Replayer struct {
	o    ReplayOptions
	turn chan struct{} // has one element while no replay runs
	done chan struct{} // closed by Close
	once sync.Once     // of Close
	held *weights.Holder
	kept moments
}

// NewReplayer returns a replayer. The caller closes it.
func NewReplayer(o ReplayOptions) (*Replayer, error) {
	if o.Device == nil || o.Logs == nil {
		return nil, errors.New("replay: Options need a Device and Logs")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.KeepBytes <= 0 {
		o.KeepBytes = DefaultKeepBytes
	}
	r := &Replayer{o: o, turn: make(chan struct{}, 1), done: make(chan struct{}), kept: moments{most: o.KeepBytes}}
	r.held = weights.NewHolder(o.Device, nil)
	r.turn <- struct{}{}
	return r, nil
}

// Close waits for the end of the replay in progress, and forgets all moments. The caller ends the
// contexts of calls in progress before. Later calls of At fail with ErrClosed. A second call does
// nothing.
func (r *Replayer) Close() {
	r.once.Do(func() {
		close(r.done)
		<-r.turn // it is never given back
		r.kept.clear()
	})
}

// Bounds limit one call of At.
type Bounds struct {
	// Within is the time after which At returns an *Unfinished, between two entries; 0: none.
	Within time.Duration
	// Progress is called with the last applied entry, at most ten times a second, by the goroutine
	// of At; nil: it is not called.
	Progress func(entry, of uint64)
}

// At returns the state of a shard after an entry of its log, from 1 on. The entry need not be
// answered yet. It waits for the end of other replays, and ends with ctx.
//
// It fails with jobs.ErrNotFound if the log does not have the entry, with ErrTrimmed, ErrTooLarge,
// ErrTooFar or ErrClosed, with an *Unfinished after b.Within, and with a *jobs.Error for a swarm
// that a host device cannot serve.
func (r *Replayer) At(ctx context.Context, s swarms.Swarm, shard int, entry uint64, b Bounds) (*ReplayMoment, error) {
	what := fmt.Sprintf("swarm %s, shard %d", s.ID, shard)
	if shard < 0 || shard >= s.ShardCount() {
		return nil, fmt.Errorf("%s: it has the shards 0 to %d: %w", what, s.ShardCount()-1, jobs.ErrNotFound)
	}
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if n := spec.PageBytes(state.RangeOf(s, shard).Groups) + state.BesideBytes(spec); n > r.o.MaxBytes {
		return nil, fmt.Errorf("%s: %w: its pages take %d MiB, and %d MiB are allowed: query the agents as they are "+
			"now with exoswarm swarm query, or restore a snapshot", what, ErrTooLarge, n>>20, r.o.MaxBytes>>20)
	}
	select {
	case <-r.turn:
	case <-r.done:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { r.turn <- struct{}{} }()
	m, err := r.replay(ctx, s, spec, shard, entry, b)
	if ctx.Err() != nil && err != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return m, nil
}

// replay is At with the turn of the caller.
func (r *Replayer) replay(
	ctx context.Context, s swarms.Swarm, spec *swarm.Spec, shard int, entry uint64, b Bounds,
) (*ReplayMoment, error) {
	began := time.Now()
	first, last, err := r.o.Logs.Bounds(ctx, s.Key(), shard, swarms.In)
	switch {
	case err != nil:
		return nil, err
	case entry == 0 || entry > last:
		return nil, fmt.Errorf("entry %d: its log has the entries %d to %d: %w", entry, max(1, first), last,
			jobs.ErrNotFound)
	}
	for {
		p := &player{r: r, swarm: s, spec: spec, shard: shard, first: first, target: entry, bounds: b, began: began}
		m, err := p.play(ctx)
		if errors.Is(err, errOther) { // the log was put back to an earlier state: kept moments are of another log
			r.kept.drop(s.Identity(), shard)
			continue
		}
		return m, err
	}
}

// errOther reports that a kept moment is of another entry than the log has in its place.
var errOther = errors.New("the log has another entry there")
