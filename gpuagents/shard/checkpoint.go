package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
)

// positionVersion is the version of the note and of the pages.
const positionVersion = 2

// position is the note of a checkpoint: the position of the pages in the log.
type position struct {
	Version int `json:"v"`
	// State is the digest of the state: state.Info.Digest.
	State string `json:"state"`
	// Swarm is swarms.Swarm.Identity. The log alone does not identify a swarm: two swarms of one id
	// may have equal entries.
	Swarm string `json:"swarm"`
	// Entry is the last applied entry of the log, and Digest the SHA-256 of that entry. A log that
	// was restored to an earlier state, as from a backup, has another entry there or none.
	Entry  uint64 `json:"entry"`
	Digest string `json:"digest"`
	// Round is the last round of votes up to Entry; 0: there was none.
	Round uint64 `json:"round,omitempty"`
	// Outcome is the decision of the last round that was concluded up to Entry; nil: there was
	// none.
	Outcome *swarms.Voted `json:"outcome,omitempty"`
	// Model is the model that was adopted last up to Entry; nil: the agents have the weights of the
	// specification.
	Model *swarms.ModelRef `json:"model,omitempty"`
}

func digestOf(e swarms.Entry) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d %s %d %d\n", e.Seq, e.Kind, e.Ref, len(e.Data))
	h.Write(e.Data)
	return hex.EncodeToString(h.Sum(nil))
}

// costShare bounds the time of checkpoints: after a checkpoint that took t the next one waits for
// costShare times t, so that checkpoints take at most a twentieth of the time of an agent.
const costShare = 20

// checkpoint keeps the state of one shard. The goroutine that serves the shard uses it. Failures
// end no service: they are logged, and the next process replays more of the log. A nil checkpoint
// keeps nothing.
type checkpoint struct {
	open           func() (pages.Store, error)
	drop           func() error
	store          pages.Store // nil: there is no usable store
	log            *slog.Logger
	saved          func(err error, took time.Duration) // called after every checkpoint
	readFailed     func() (times int)                  // counts a failed read since the last checkpoint
	forgetFailures func()                              // forgets the failed reads
	swarm          string                              // its identity
	digest         string                              // state.Info.Digest
	base           uint64                              // entries up to it may be removed
	rounds         *state.Rounds                       // rounds of the shard; nil: they are not kept

	entries uint64
	ticker  *time.Ticker

	patience time.Duration // see shortPatience

	// answered waits until all applied entries have their answers in the log; nil: they have.
	answered func(ctx context.Context) error

	last   swarms.Entry // applied
	stored uint64       // the entry of the last checkpoint
	ended  time.Time    // end of the last checkpoint
	cost   time.Duration
}

// openCheckpoint opens the store of a shard. It removes a store that cannot be read.
func (a *Server) openCheckpoint(
	s swarms.Swarm, shard int, st state.State, votes *state.Rounds, log *slog.Logger,
) *checkpoint {
	if a.o.Checkpoints == nil {
		return nil
	}
	of, m := st.Info(), st.Memory()
	k := &checkpoint{
		open: func() (pages.Store, error) {
			return a.o.Checkpoints.Open(s.Key(), shard, m.PageBytes(), m.Count())
		},
		drop:           func() error { return a.o.Checkpoints.Remove(s.Key(), shard) },
		saved:          func(err error, took time.Duration) { a.o.Metrics.saved(of.Cell, err, took) },
		readFailed:     func() int { return a.readFailures.add(ID{s.Key(), shard}) },
		forgetFailures: func() { a.readFailures.forget(ID{s.Key(), shard}) },
		swarm:          s.Identity(),
		digest:         of.Digest,
		rounds:         votes,
		log:            log,
		entries:        uint64(of.Checkpoint.Entries),
		ticker:         time.NewTicker(time.Duration(of.Checkpoint.Interval)),
		ended:          time.Now(),

		patience: shortPatience,
	}
	if base := s.BaseOf(shard); base != nil {
		k.base = base.Entry
	}
	var err error
	if k.store, err = k.open(); errors.Is(err, tiers.ErrLocked) {
		log.Warn("no checkpoints of this shard: give every agent a data folder of its own", "error", err)
	} else if err != nil {
		k.discard(err)
	}
	if s, ok := k.store.(pages.Layered); ok {
		for i, d := range s.Disks() {
			if why := s.Holds(i).Unavailable; why != nil {
				log.Error("a tier cannot be used, the shard does without it", "tier", d.Name, "error", why)
			}
		}
	}
	return k
}

// discard removes the store, and opens an empty one.
func (k *checkpoint) discard(why error) {
	k.log.Warn("checkpoint not used, the shard starts from its log", "reason", why)
	if k.store != nil {
		if err := k.store.Close(); err != nil {
			k.log.Warn("closing a checkpoint", "error", err)
		}
		k.store = nil
	}
	k.forgetFailures()
	// A medium that fails to remove it must not block the shard on other media.
	if err := k.drop(); err != nil {
		k.log.Warn("removing a checkpoint", "error", err)
	}
	var err error
	if k.store, err = k.open(); err == nil && len(k.store.Pages()) > 0 {
		err = errors.Join(errors.New("it cannot be removed"), k.store.Close())
	}
	if err != nil {
		k.store = nil
		k.log.Error("no checkpoints of this shard", "error", err)
	}
}

// unusable reports whether an error makes the checkpoint useless: it is damaged, or could not be
// read several times.
func (k *checkpoint) unusable(err error) bool {
	switch {
	case errors.Is(err, gpubatch.ErrDevice):
		return false
	case damaged(err):
		return true
	}
	return errors.Is(err, tiers.ErrMedium) && k.readFailed() >= maxReadFailures
}

// restore opens the pages of the last checkpoint and returns a reader of the later entries. Without
// a checkpoint of this log and this swarm, it resets the state and returns a reader from the start.
// w.answered is the last answered entry; later entries are applied again, for their answers. The
// error is an error of the queue or of the device.
func (k *checkpoint) restore(ctx context.Context, st state.State, in swarms.Log, w *writer) (swarms.Reader, error) {
	if k == nil || k.store == nil || len(k.store.Note()) == 0 {
		return k.start(ctx, st, in)
	}
	var p position
	if err := json.Unmarshal(k.store.Note(), &p); err != nil {
		k.discard(fmt.Errorf("its position is not JSON: %w", err))
		return k.start(ctx, st, in)
	}
	last, err := k.ends(ctx, in, w, p.Entry)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Version != positionVersion:
		err = fmt.Errorf("it is of version %d, this program writes %d", p.Version, positionVersion)
	case p.Swarm != k.swarm:
		err = fmt.Errorf("it is of another swarm of the same name, %.200s", p.Swarm)
	case p.State != k.digest:
		err = errors.New("it is of another spec, or of another version of the cell")
	case p.Entry < k.base:
		err = fmt.Errorf("it is of log entry %d, and the log was trimmed to %d", p.Entry, k.base)
	case p.Entry == 0 || p.Entry > w.answered || p.Entry > last.Seq:
		// A server lost acknowledged messages in a power failure, or the log was created again.
		err = fmt.Errorf("it is of log entry %d; the log has %d, and answers to %d", p.Entry, last.Seq, w.answered)
	}
	if err != nil {
		k.discard(err)
		return k.start(ctx, st, in)
	}
	r, err := in.Read(ctx, p.Entry)
	if err != nil {
		return nil, err
	}
	e, err := r.Next(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	err = errors.New("the log has another entry there than the one that it holds")
	if digestOf(e) == p.Digest {
		if err = st.Memory().Open(ctx, k.store); err == nil {
			err = st.Restored(ctx)
		}
	}
	if err == nil {
		k.last, k.stored = e, e.Seq
		k.rounds.Restore(p.Round, p.Outcome)
		k.rounds.Adopt(p.Model)
		k.log.Info("shard resumed from its checkpoint", "entry", e.Seq, "answered", w.answered, "last", last.Seq)
		return r, nil
	}
	r.Close()
	switch {
	case ctx.Err() != nil: // a drain, or the loss of the shard, is no failure of the checkpoint
		return nil, context.Cause(ctx)
	case errors.Is(err, gpubatch.ErrDevice), errors.Is(err, tiers.ErrMedium) && !k.unusable(err):
		return nil, err
	}
	if err := st.Memory().Shut(); err != nil {
		return nil, err
	}
	k.discard(err)
	return k.start(ctx, st, in)
}

// shortPatience is how long restore reads the ends of logs that end before the checkpoint. A new
// leader of a log returns an earlier end until it has applied every entry, which takes it seconds
// at most. A log that is still too short then was restored to an earlier state.
const (
	shortPatience = 10 * time.Second
	shortPause    = 100 * time.Millisecond
)

// ends returns the last entry of in. While a log ends before entry at, it reads both ends again.
func (k *checkpoint) ends(ctx context.Context, in swarms.Log, w *writer, at uint64) (swarms.Entry, error) {
	for began := time.Now(); ; {
		last, err := in.Last(ctx)
		if err != nil || last.Seq >= at && w.answered >= at || time.Since(began) >= k.patience {
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-time.After(shortPause):
		}
		if err := w.refresh(ctx); err != nil {
			return last, err
		}
	}
}

// start resets the state, over a store without pages, and returns a reader from the start.
func (k *checkpoint) start(ctx context.Context, st state.State, in swarms.Log) (swarms.Reader, error) {
	var store pages.Store
	if k != nil {
		store = k.store
	}
	if err := st.Memory().Open(ctx, store); err != nil {
		return nil, err
	}
	if err := st.Reset(ctx); err != nil {
		return nil, err
	}
	return in.Read(ctx, 1)
}

// endDamaged discards the checkpoint if the error makes it useless. The shard then starts again.
func (k *checkpoint) endDamaged(st state.State, err error) error {
	if k == nil || k.store == nil || err == nil || !k.unusable(err) {
		return err
	}
	if serr := st.Memory().Shut(); serr != nil {
		return errors.Join(err, serr)
	}
	k.discard(err)
	return err
}

// due returns a channel that is ready when tick should be called.
func (k *checkpoint) due() <-chan time.Time {
	if k == nil || k.store == nil {
		return nil
	}
	return k.ticker.C
}

// applied records an applied entry whose answer is handed on.
func (k *checkpoint) applied(ctx context.Context, st state.State, e swarms.Entry) error {
	if k == nil || k.store == nil {
		return nil
	}
	k.last = e
	if e.Seq-k.stored < k.entries {
		return nil
	}
	return k.tick(ctx, st)
}

// tick saves the state, unless the last checkpoint was too recent for its cost.
func (k *checkpoint) tick(ctx context.Context, st state.State) error {
	if time.Since(k.ended) < costShare*k.cost {
		return nil
	}
	return k.save(ctx, st)
}

// save stores the changed pages and the position, after the answers are stored: otherwise an answer
// before the position would be lost. The error is an error of the device, or of the answers.
func (k *checkpoint) save(ctx context.Context, st state.State) error {
	if k == nil || k.store == nil || k.last.Seq == k.stored {
		return nil
	}
	if k.answered != nil {
		if err := k.answered(ctx); err != nil {
			return err
		}
	}
	begun := time.Now()
	defer func() { k.ended = time.Now(); k.cost = k.ended.Sub(begun) }()
	pages := 0
	for _, dirty := range st.Memory().Dirty() {
		if dirty {
			pages++
		}
	}
	note, err := json.Marshal(position{
		Version: positionVersion, Swarm: k.swarm, State: k.digest, Entry: k.last.Seq, Digest: digestOf(k.last),
		Round: k.rounds.Last(), Outcome: k.rounds.Outcome(), Model: k.rounds.Adopted(),
	})
	if err == nil {
		err = st.Memory().Checkpoint(ctx, note)
	}
	if errors.Is(err, gpubatch.ErrDevice) {
		return fmt.Errorf("checkpoint: %w", err)
	}
	k.saved(err, time.Since(begun))
	if err != nil { // the pages stay dirty, and the last checkpoint stays valid
		k.log.Warn("checkpoint not stored", "entry", k.last.Seq, "error", err)
		return nil
	}
	k.stored = k.last.Seq
	k.forgetFailures()
	k.log.Debug("checkpoint stored", "entry", k.stored, "pages", pages, "took", time.Since(begun))
	return nil
}

func (k *checkpoint) close() {
	if k == nil {
		return
	}
	k.ticker.Stop()
	if k.store != nil {
		if err := k.store.Close(); err != nil {
			k.log.Warn("closing a checkpoint", "error", err)
		}
		k.store = nil
	}
}

func (k *checkpoint) resumed() bool { return k != nil && k.stored > 0 }

// Checkpoints keeps the state of shards across processes. Its methods may be called from several
// goroutines. Checkpoints only save time: an agent without one, or with an old one, replays the
// log.
type Checkpoints interface {
	// Open opens the store of a shard, or creates one for pages pages of pageSize bytes. It fails
	// with tiers.ErrLocked while another process has it open. The caller closes it. It may return a
	// pages.Layered.
	Open(swarm string, shard, pageSize, pages int) (pages.Store, error)
	// Remove removes the store of a shard, which is not open, from every tier that it can reach. A
	// missing store is no error.
	Remove(swarm string, shard int) error
	// Shards lists the shards with a store. The list is valid together with an error, which says
	// what could not be read.
	Shards() ([]ID, error)
}

// ID identifies a shard. Swarm is the key of its swarm, see swarms.Swarm.Key, so a store never
// belongs to a later swarm of the same id.
type ID struct {
	Swarm string
	Shard int
}

// readFailures counts, by shard, the failed reads of pages since its last checkpoint. Its methods
// may be called from several goroutines.
type readFailures struct {
	mu sync.Mutex
	of map[ID]int
}

func (s *readFailures) add(id ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[ID]int{}
	}
	s.of[id]++
	return s.of[id]
}

func (s *readFailures) forget(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// maxReadFailures is the number of failed reads, a second apart, after which a shard starts from
// its log instead of its checkpoint. It is the number of failures after which the pager opens the
// circuit of a disk.
const maxReadFailures = 3
