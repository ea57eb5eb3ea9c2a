package pagestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
)

// MaxNote is the longest note in bytes.
const MaxNote = index.MaxNote

// Commit makes every Put, Delete and Move that returned before it durable, together with a note, as
// one epoch, and returns the epoch's number. Calls that run beside it go into this epoch or the
// next.
//
// After an error nothing is committed and the changes are still pending; whether a crash at this
// moment would bring back the old epoch or the new one is not known, but it is one of them, whole.
// When a sync failed, the error is a *tiers.LostError that lists the pages whose bytes are in
// doubt: they read as lost, and no commit succeeds until each of them was put again or deleted, or
// Rollback was called.
func (s *Store) Commit(ctx context.Context, note []byte) (epoch uint64, err error) {
	if len(note) > MaxNote {
		return 0, fmt.Errorf("commit: note of %d bytes, at most %d: %w", len(note), MaxNote, tiers.ErrInvalid)
	}
	if err := s.enter(ctx, 0); err != nil {
		return 0, err
	}
	defer s.life.RUnlock()
	return s.commit(ctx, note, false)
}

// Settle makes moves of committed pages durable without a new epoch, so that their old slots come
// free. What was written or deleted since the last commit stays pending. When a sync fails, pages
// among that may be lost, which the error lists as that of Commit does.
func (s *Store) Settle(ctx context.Context) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	_, err := s.commit(ctx, nil, true)
	return err
}

// commit is Commit, or Settle when movesOnly. The caller holds life.
func (s *Store) commit(ctx context.Context, note []byte, movesOnly bool) (uint64, error) {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	epoch, err := s.begin(movesOnly)
	if err != nil {
		return 0, err
	}
	if movesOnly {
		note = s.note
	}
	if err := s.makeDurable(ctx, epoch, note); err != nil {
		s.abandon(err)
		return 0, fmt.Errorf("commit epoch %d: %w", epoch, err)
	}
	s.finish(epoch, append([]byte(nil), note...))
	if movesOnly {
		s.mu.RLock()
		gone := lostPages(s.pending)
		s.mu.RUnlock()
		if len(gone) > 0 { // The moves are settled all the same.
			return epoch, &tiers.LostError{Pages: gone, Cause: tiers.ErrSync}
		}
	}
	for i, d := range s.dirs { // Files that stay for now take room, and cost nobody a page.
		if err := d.Trim(); err != nil {
			s.fail(i, err)
		}
	}
	// The epoch is durable. What a sweep that fails leaves is tried again after the next commit.
	if marks := int64(s.index.Marks()); marks > max(s.sweepAt.Load(), s.pages.Load()) {
		_ = s.sweep()
	}
	return epoch, nil
}

// begin takes the changes of the commit out of pending and returns its epoch.
func (s *Store) begin(movesOnly bool) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if movesOnly {
		s.committing = map[uint64]change{}
		for page, c := range s.pending {
			if c.state == moved {
				s.committing[page] = c
				delete(s.pending, page)
			}
		}
		return s.epoch, nil
	}
	if gone := lostPages(s.pending); len(gone) > 0 {
		return 0, &tiers.LostError{Pages: gone, Cause: tiers.ErrSync}
	}
	if s.next > maxEpoch {
		return 0, fmt.Errorf("epoch %d: %w", s.next, tiers.ErrInvalid)
	}
	epoch := s.next
	s.committing, s.pending = s.pending, map[uint64]change{}
	s.next++
	s.committingVoids, s.voids = s.voids, nil
	for _, v := range s.running {
		s.committingVoids = append(s.committingVoids, v)
	}
	return epoch, nil
}

// lostPages lists the lost ones among changes.
func lostPages(m map[uint64]change) []uint64 {
	var ids []uint64
	for page, c := range m {
		if c.state == lost {
			ids = append(ids, page)
		}
	}
	slices.Sort(ids)
	return ids
}

// makeDurable syncs the segments and then commits the index. committing does not change while it
// runs.
func (s *Store) makeDurable(ctx context.Context, epoch uint64, note []byte) error {
	syncErr := s.syncDirs()
	var doubt []uint64
	s.mu.Lock()
	for page, c := range s.committing {
		switch {
		case !c.holds(), s.dirs[c.tier()].Durable(c.loc(), c.write):
		case c.state == moved: // The old place still counts.
			delete(s.committing, page)
		default:
			doubt = append(doubt, page)
		}
	}
	if syncErr != nil { // What was put meanwhile, or is not part of a Settle, may be in the same segment.
		for page, c := range s.pending {
			s.doubt(s.pending, page, c)
		}
	}
	s.mu.Unlock()
	if len(doubt) > 0 {
		slices.Sort(doubt)
		return &tiers.LostError{Pages: doubt, Cause: errors.Join(syncErr, tiers.ErrSync)}
	}
	// A sync that failed and concerns no page of this commit is its tier's affair.
	if err := ctx.Err(); err != nil {
		return err
	}
	c := index.Commit{Epoch: epoch, Note: note, Changes: s.changes(), Voids: s.committingVoids}
	if err := s.index.Commit(c); err == nil || !s.index.Broken() { // A broken index takes no commit.
		return err
	}
	return s.index.Renew(c, s.entries(s.committing))
}

// sweep removes what is left of stale records from the segments, so that the index need not
// remember it any more. The caller holds commitMu.
func (s *Store) sweep() error {
	all := true
	for i, d := range s.dirs {
		complete, err := d.Sweep()
		if err != nil {
			s.fail(i, err)
			return fmt.Errorf("tier %s: %w", d.name, err)
		}
		all = all && complete
	}
	if !all {
		return nil
	}
	err := s.index.Forget()
	s.marks.Store(int64(s.index.Marks()))
	return err
}

// Sync makes the content of every Put and Move that returned before it durable in its segment, so
// that the caller may drop its own copy: it is lost then only with the crash that loses everything
// since the last commit. It fails like Commit when a sync fails.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.mu.RLock()
	before := make(map[uint64]change, len(s.pending))
	for page, c := range s.pending {
		before[page] = c
	}
	s.mu.RUnlock()
	syncErr := s.syncDirs()
	if syncErr == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for page, c := range before {
		if now, ok := s.pending[page]; ok && now == c {
			s.doubt(s.pending, page, c)
		}
	}
	if gone := lostPages(s.pending); len(gone) > 0 {
		return fmt.Errorf("sync: %w", &tiers.LostError{Pages: gone, Cause: syncErr})
	}
	return nil
}

// syncDirs syncs every tier that has something to sync, and counts failures against it.
func (s *Store) syncDirs() error {
	var errs []error
	for i, d := range s.dirs {
		if err := d.Sync(); err != nil {
			s.fail(i, err)
			errs = append(errs, fmt.Errorf("tier %s: %w", d.name, err))
		}
	}
	return errors.Join(errs...)
}

// doubt turns a change whose sync failed into what the caller must know: new content is lost, and a
// copy of committed content is forgotten, as the old place still counts. The slot stays taken,
// since nobody knows what is in it. The caller holds mu.
func (s *Store) doubt(m map[uint64]change, page uint64, c change) {
	if !c.holds() {
		return
	}
	d := s.dirs[c.tier()]
	if !d.Retired(c.loc().Segment) || d.Durable(c.loc(), c.write) {
		return
	}
	if c.state == moved {
		delete(m, page)
		return
	}
	m[page] = change{state: lost}
}

// abandon puts the changes of a failed commit back.
func (s *Store) abandon(err error) {
	// Until the index was reached, nothing of the commit can be durable.
	tried := !errors.Is(err, tiers.ErrLost) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded)
	s.mu.Lock()
	defer s.mu.Unlock()
	for page, c := range s.committing {
		s.doubt(s.committing, page, c)
	}
	for page, c := range s.committing {
		c.tried = c.tried || (tried && c.holds())
		if _, newer := s.pending[page]; newer {
			s.drop(c)
		} else {
			s.pending[page] = c
		}
	}
	s.committing = nil
	s.voids = append(s.voids, s.committingVoids...)
	s.committingVoids = nil
}

// finish makes the committing changes the committed ones and gives the old slots back.
func (s *Store) finish(epoch uint64, note []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for page, c := range s.committing {
		if old, ok := s.committed.get(page); ok {
			if _, gone := s.damaged[page]; gone {
				delete(s.damaged, page)
			} else {
				s.dirs[old.tier()].Free(old.loc())
			}
		}
		if c.state == deleted {
			s.committed.remove(page)
		} else {
			s.committed.set(page, c.entry)
		}
	}
	for _, e := range s.limbo {
		s.dirs[e.tier()].Free(e.loc())
	}
	s.committing, s.committingVoids, s.limbo = nil, nil, s.limbo[:0]
	s.marks.Store(int64(s.index.Marks()))
	s.epoch, s.note = epoch, note
	s.pages.Store(int64(s.committed.len() + len(s.pending)))
}

// Rollback drops everything since the last commit: pages read as of the last epoch again.
func (s *Store) Rollback(ctx context.Context) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.pending {
		s.drop(c)
	}
	clear(s.pending)
	// What was written with the epoch that comes next does not count, should it ever be found.
	if err := s.index.NewLife(); err != nil {
		return err
	}
	s.lifeID = s.index.Life()
	return nil
}

// changes yields what the commit that runs does to the index. Only the holder of commitMu changes
// committed, so it is read here without mu.
func (s *Store) changes() iter.Seq[index.Change] {
	return func(yield func(index.Change) bool) {
		for page, c := range s.committing {
			ch := index.Change{Page: page, HasNew: c.holds()}
			if ch.HasNew {
				ch.New = c.indexEntry(page)
			}
			if old, ok := s.committed.get(page); ok {
				ch.Old, ch.HadOld = old.indexEntry(page), true
			}
			if !yield(ch) {
				return
			}
		}
	}
}

// entries yields an index entry for every page as it is committed, with changes laid over it.
func (s *Store) entries(over map[uint64]change) iter.Seq[index.Entry] {
	return func(yield func(index.Entry) bool) {
		for page, e := range s.committed.all() {
			if _, changed := over[page]; !changed && !yield(e.indexEntry(page)) {
				return
			}
		}
		for page, c := range over {
			if c.holds() && !yield(c.indexEntry(page)) {
				return
			}
		}
	}
}
