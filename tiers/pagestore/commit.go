package pagestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
)

// MaxNote is the longest note in bytes.
const MaxNote = index.MaxNote

// Commit makes every Put, Delete and Move that returned before it durable, together with a note, as
// one epoch, and returns the epoch's number. Concurrent calls go into this epoch or the next one.
//
// After an error nothing is committed and the changes are still pending; a crash at this moment
// would bring back either the old epoch or the new one, whole. When a sync failed, the error is a
// *tiers.LostError that lists the pages whose bytes are in doubt: they read as lost, and no commit
// succeeds until each of them was put again or deleted, or Rollback was called.
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
// free. What was written or deleted since the last commit stays pending. When a sync fails, some of
// these pages may be lost; the error lists them, as the error of Commit does.
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
	epoch, err := s.table.begin(movesOnly)
	if err != nil {
		return 0, err
	}
	if movesOnly {
		note = s.table.note
	}
	if err := s.makeDurable(ctx, epoch, note); err != nil {
		s.table.abandon(err)
		return 0, fmt.Errorf("commit epoch %d: %w", epoch, err)
	}
	s.marks.Store(int64(s.index.Marks()))
	s.table.finish(epoch, append([]byte(nil), note...))
	if movesOnly {
		s.table.mu.RLock()
		gone := lostPages(s.table.pending)
		s.table.mu.RUnlock()
		if len(gone) > 0 { // The moves are settled all the same.
			return epoch, &tiers.LostError{Pages: gone, Cause: tiers.ErrSync}
		}
	}
	for i, d := range s.records.dirs { // Files that stay for now take room, but no page is lost.
		if err := d.Trim(); err != nil {
			s.records.fail(i, err)
		}
	}
	// The epoch is durable. What a sweep that fails leaves is tried again after the next commit.
	if marks := int64(s.index.Marks()); marks > max(s.sweepAt.Load(), s.table.pages.Load()) {
		_ = s.sweep()
	}
	return epoch, nil
}

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
	syncErr := s.records.syncDirs()
	var doubt []uint64
	s.table.mu.Lock()
	for page, c := range s.table.committing {
		switch {
		case !c.holds(), s.records.dirs[c.tier()].Durable(c.loc(), c.write):
		case c.state == moved: // The old place still counts.
			delete(s.table.committing, page)
		default:
			doubt = append(doubt, page)
		}
	}
	if syncErr != nil { // What was put meanwhile, or is not part of a Settle, may be in the same segment.
		for page, c := range s.table.pending {
			s.table.doubt(s.table.pending, page, c)
		}
	}
	s.table.mu.Unlock()
	if len(doubt) > 0 {
		slices.Sort(doubt)
		return &tiers.LostError{Pages: doubt, Cause: errors.Join(syncErr, tiers.ErrSync)}
	}
	// A failed sync that concerns no page of this commit does not fail it.
	if err := ctx.Err(); err != nil {
		return err
	}
	c := index.Commit{Epoch: epoch, Note: note, Changes: s.table.changes(), Voids: s.table.committingVoids}
	if err := s.index.Commit(c); err == nil || !s.index.Broken() { // A broken index takes no commit.
		return err
	}
	return s.index.Renew(c, s.table.entries(s.table.committing))
}

// sweep removes stale records from the segments, so that the index can drop its marks. The caller
// holds commitMu.
func (s *Store) sweep() error {
	all := true
	for i, d := range s.records.dirs {
		complete, err := d.Sweep()
		if err != nil {
			s.records.fail(i, err)
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
	s.table.mu.RLock()
	before := make(map[uint64]change, len(s.table.pending))
	for page, c := range s.table.pending {
		before[page] = c
	}
	s.table.mu.RUnlock()
	syncErr := s.records.syncDirs()
	if syncErr == nil {
		return nil
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for page, c := range before {
		if now, ok := s.table.pending[page]; ok && now == c {
			s.table.doubt(s.table.pending, page, c)
		}
	}
	if gone := lostPages(s.table.pending); len(gone) > 0 {
		return fmt.Errorf("sync: %w", &tiers.LostError{Pages: gone, Cause: syncErr})
	}
	return nil
}

// Rollback drops everything since the last commit: pages read as of the last epoch again.
func (s *Store) Rollback(ctx context.Context) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for _, c := range s.table.pending {
		s.table.drop(c)
	}
	clear(s.table.pending)
	// Records with the next epoch that are on the medium already must not count.
	if err := s.index.NewLife(); err != nil {
		return err
	}
	s.table.lifeID = s.index.Life()
	return nil
}
