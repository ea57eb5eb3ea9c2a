// Package pagestore keeps fixed-size pages durably in directories: records in segment files, found
// through a small index, committed in epochs.
//
// A page is put into a fresh slot, and everything put since the last commit becomes durable
// together with a note of the caller's choice (a position in a log, say): Commit syncs the
// segments, then makes one atomic index commit, and only then gives the old slots back. After kill
// -9 or power loss, Open returns the pages and the note of the last complete epoch, byte for byte,
// and nothing of a later one.
//
// The promises, each held by a test of this package:
//   - A commit that returned survives kill -9 and power loss byte-exact.
//   - A commit that did not return is all or nothing.
//   - A read returns the right bytes or an error that names the page; never other bytes.
//   - A failing or full directory fails its own pages only.
//   - Two processes cannot open one store.
//   - A failed fsync is never retried as if it had worked: the segment takes nothing more, the pages
//     whose bytes are in doubt are reported by id, and the index starts a new generation.
//   - The files of a tier never take more than its capacity.
//
// A Store consists of the locks of its directories, the records in them, the pageTable, and the
// index. Locks are taken in this order: Store.life, Store.commitMu, pageTable.mu, the lock of a
// dir.
package pagestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
)

// Store is an open store. All methods may be called from several goroutines at once; the caller
// orders calls that write or delete the same page.
type Store struct {
	opts    Options
	locks   locks
	records records
	table   pageTable

	// commitMu lets one commit, rotation or scrub of the index run at a time.
	commitMu sync.Mutex
	index    *index.Index

	// sweepAt is the least number of marks in the index at which sweep drops them, and marks their
	// number.
	sweepAt, marks atomic.Int64

	// Every call holds life shared; Close holds it exclusively, so it waits for all calls.
	life   sync.RWMutex
	closed bool

	healed bool
}

var _ tiers.Store = (*Store)(nil)

type tierDir struct {
	*dir
	name    string
	coders  *coderPool
	chooser chooser
	spec    Codec
}

// Open opens a store or makes a new one. It fails with tiers.ErrLocked while another process has it
// open, and with tiers.ErrMismatch when a directory belongs to something else or the key is
// another. It opens although segments are gone: Lost lists their pages, and reading one returns
// tiers.ErrLost. It also opens without a directory that cannot be read, as long as another one has
// the index: the pages of that directory are lost until the store is opened again with the
// directory in order, and it takes no page. The index is in the first directory, unless that failed
// before.
func Open(opts Options) (s *Store, err error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	st := &Store{
		opts:    opts,
		locks:   locks{fs: opts.FS, tiers: opts.Tiers, unread: map[int]error{}},
		records: records{pageSize: opts.PageSize, failures: make([]atomic.Uint64, len(opts.Tiers))},
		table: pageTable{
			damaged: map[uint64]struct{}{}, pending: map[uint64]change{}, running: map[uint64]index.Void{},
		},
	}
	st.records.bufs.New = func() any { return newBuffer() }
	st.table.records = &st.records
	defer func() {
		if s == nil {
			err = errors.Join(err, st.release())
		}
	}()
	if err := st.locks.lock(); err != nil {
		return nil, err
	}
	damage, err := st.openIndex()
	if err != nil {
		return nil, err
	}
	if err := st.openSegments(damage); err != nil {
		return nil, err
	}
	st.table.next = st.table.epoch + 1
	st.table.lifeID = st.index.Life()
	st.sweepAt.Store(minMarks)
	st.table.pages.Store(int64(st.table.committed.len()))
	st.marks.Store(int64(st.index.Marks()))
	return st, nil
}

// minMarks is the number of marks from which a sweep of stale records is worth its writes: 2 MiB.
const minMarks = 1 << 16

// openIndex reads the index, or makes a new one. damage is the reason to rebuild it, or nil.
func (s *Store) openIndex() (damage, err error) {
	reset, apply := s.takeIn()
	x, st, err := index.Open(s.indexOptions(), reset, apply)
	switch {
	case errors.Is(err, index.ErrNone) && len(s.locks.unread) > 0 && !s.opts.New:
		// The index may be there: a new one would hide it.
		return nil, fmt.Errorf("no index in the directories that can be read: %w", s.locks.unreadable())
	case errors.Is(err, index.ErrNone):
		return nil, s.create()
	case err != nil:
		return nil, err
	}
	s.index, s.table.epoch, s.table.note, s.healed = x, st.Epoch, st.Note, st.Healed
	meta := x.Meta()
	s.records.id = meta.Store
	if meta.PageSize != s.opts.PageSize {
		return nil, fmt.Errorf("store has pages of %d bytes, options say %d: %w", meta.PageSize, s.opts.PageSize,
			tiers.ErrMismatch)
	}
	check, err := s.records.openKey(s.opts.Key)
	if err == nil && check != meta.KeyCheck {
		return nil, fmt.Errorf("store was made with another key, or with none: %w", tiers.ErrMismatch)
	}
	return st.Damaged, err
}

// takeIn is how Open of the index fills the table of pages.
func (s *Store) takeIn() (reset func(index.Meta), apply func(index.Entry)) {
	reset = func(m index.Meta) { s.table.committed.reset(m.Pages) }
	apply = func(e index.Entry) {
		l := loc{Segment: e.Segment, Slot: e.Slot, Blocks: e.Blocks}
		s.table.committed.set(e.Page, pack(int(e.Tier), l, e.Epoch, e.Check))
	}
	return reset, apply
}

func (s *Store) indexOptions() index.Options {
	return index.Options{FS: s.opts.FS, Tables: s.opts.Tables, Dirs: s.locks.paths()}
}

// create makes the index of a new store in directories that hold no segments.
func (s *Store) create() error {
	for _, dir := range s.locks.paths() {
		names, err := s.opts.FS.List(dir)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(names, func(n string) bool { return filepath.Ext(n) == ".seg" }); i >= 0 {
			return fmt.Errorf("%s holds segments and there is no index for them: %w", dir, tiers.ErrCorrupt)
		}
	}
	if _, err := rand.Read(s.records.id[:]); err != nil {
		return fmt.Errorf("store id: %w", err)
	}
	check, err := s.records.openKey(s.opts.Key)
	if err != nil {
		return err
	}
	meta := index.Meta{Store: s.records.id, PageSize: s.opts.PageSize, KeyCheck: check}
	s.index, err = index.Create(s.indexOptions(), meta)
	return err
}

// openSegments opens the directories, rebuilds the index from their records when it is damaged, and
// their accounting from the index.
func (s *Store) openSegments(damage error) error {
	for i, t := range s.opts.Tiers {
		pool, err := newCoderPool(s.opts.PageSize, t.Codec)
		if err != nil {
			return err
		}
		opts := dirOptions{
			FS: s.opts.FS, Path: t.Dir, Store: s.records.id, Tier: uint8(i), PageSize: s.opts.PageSize,
			SegmentBytes: t.SegmentBytes, Capacity: t.Capacity, Reserve: s.indexReserve, Quota: t.Quota,
			DiskReserve: t.DiskReserve,
		}
		var d *dir
		err = s.locks.unread[i]
		if err == nil {
			d, err = openDir(opts)
		}
		switch {
		case err == nil:
		case errors.Is(err, tiers.ErrMismatch), errors.Is(err, tiers.ErrVersion), errors.Is(err, tiers.ErrCorrupt):
			return fmt.Errorf("tier %s: %w", t.Name, err)
		default:
			s.locks.unread[i] = err
			d = downDir(opts, err)
		}
		s.records.dirs = append(s.records.dirs, &tierDir{dir: d, name: t.Name, coders: pool, spec: t.Codec})
	}
	if damage != nil && len(s.locks.unread) > 0 {
		// The records of the other directories may be older than the seal.
		return fmt.Errorf("%w; it cannot be rebuilt without every directory: %w", damage, s.locks.unreadable())
	}
	if damage != nil {
		if err := s.rebuild(); err != nil {
			return fmt.Errorf("%w; rebuild it from the segments: %w", damage, err)
		}
	}
	for page, e := range s.table.committed.all() {
		if e.tier() >= len(s.records.dirs) || s.records.dirs[e.tier()].Claim(e.loc()) != nil {
			s.table.damaged[page] = struct{}{}
		}
	}
	for _, d := range s.records.dirs {
		if err := d.Prune(); err != nil {
			return fmt.Errorf("tier %s: %w", d.name, err)
		}
	}
	return nil
}

// indexReserve returns the bytes of the capacity of a tier that segments leave to the index.
func (s *Store) indexReserve() int64 {
	return index.Reserve(s.opts.Tables, s.table.pages.Load(), s.marks.Load())
}

// Epoch is the last committed epoch, 0 before the first, and Note the note that went with it; the
// caller must not change it.
func (s *Store) Epoch() uint64 {
	s.table.mu.RLock()
	defer s.table.mu.RUnlock()
	return s.table.epoch
}

// Note is the note of the last committed epoch. The caller must not change it.
func (s *Store) Note() []byte {
	s.table.mu.RLock()
	defer s.table.mu.RUnlock()
	return s.table.note
}

// PageSize is the length of every page in bytes.
func (s *Store) PageSize() int { return s.opts.PageSize }

// Tiers is the number of directories.
func (s *Store) Tiers() int { return len(s.opts.Tiers) }

// Close releases the store once the calls that run have returned. Changes since the last commit are
// dropped. A second call does nothing.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.release()
}

// Every call on a tier starts with enter; without an error it holds life, which the caller
// releases.
func (s *Store) enter(ctx context.Context, tier int) error {
	if tier < 0 || tier >= len(s.records.dirs) {
		return fmt.Errorf("tier %d of %d: %w", tier, len(s.records.dirs), tiers.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return tiers.ErrClosed
	}
	return nil
}

// release closes what is open, in the order of dependence, and keeps every error.
func (s *Store) release() error {
	var errs []error
	for _, d := range s.records.dirs {
		errs = append(errs, d.Close())
		d.coders.Close()
	}
	if s.index != nil {
		errs = append(errs, s.index.Close())
	}
	errs = append(errs, s.locks.release())
	return errors.Join(errs...)
}
