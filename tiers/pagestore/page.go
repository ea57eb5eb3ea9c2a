package pagestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// minSaving is the part of a page that encoding must save to pay: a sixteenth. Below that, decoding
// costs the reader more than the disk gives back.
const minSaving = 16

// Kind says what a page holds, for the codec.
type Kind = tiers.Kind

// Put writes a page's content into a tier, durable with the next Commit. It replaces content that
// was put since the last commit; committed content stays until the next one. Put does not keep
// content, which must not change before Put returns. Aligned content (vfs.Buffer) that is stored
// raw goes to the medium without a copy. Put fails with tiers.ErrFull when the tier has no room,
// and then the page is as it was.
func (s *Store) Put(ctx context.Context, tier int, page uint64, content []byte, kind Kind) error {
	if err := s.enter(ctx, tier); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if len(content) != s.opts.PageSize || kind.Elem > MaxElem {
		return fmt.Errorf("put page %d: %d bytes of elements of %d, want %d: %w",
			page, len(content), kind.Elem, s.opts.PageSize, tiers.ErrInvalid)
	}
	for {
		w := s.table.startWrite(page)
		c, tried, err := s.records.write(tier, page, w, content, kind)
		switch done, err := s.table.endWrite(ctx, page, w, c, tried, err); {
		case err != nil:
			return fmt.Errorf("put page %d: %w", page, err)
		case done:
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Get reads the newest content of a page, committed or not, into dst, which is one page long. It
// fails with tiers.ErrNotFound, tiers.ErrLost or tiers.ErrCorrupt, or with the medium's error; dst
// may then hold anything. A raw page comes from the medium straight into a dst that is aligned as
// vfs.Buffer is.
func (s *Store) Get(ctx context.Context, page uint64, dst []byte) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if len(dst) != s.opts.PageSize {
		return fmt.Errorf("get page %d into %d bytes, want %d: %w", page, len(dst), s.opts.PageSize, tiers.ErrInvalid)
	}
	_, _, err := s.read(ctx, page, dst)
	if err != nil {
		return fmt.Errorf("get page %d: %w", page, err)
	}
	return nil
}

// read reads the newest content of a page without holding it in place: a slot that was given back
// and written again while it was read fails its identity or checksum, and then the page is
// somewhere else by now.
func (s *Store) read(ctx context.Context, page uint64, dst []byte) (entry, recordHeader, error) {
	for tries := 0; ; tries++ {
		e, err := s.table.lookup(page)
		if err != nil {
			return e, recordHeader{}, err
		}
		h, err := s.records.readAt(page, e, dst)
		if err == nil {
			return e, h, nil
		}
		now, lookupErr := s.table.lookup(page)
		if lookupErr != nil {
			return e, h, lookupErr
		}
		// Within one epoch the page may also have left the slot and come back to it.
		if now == e && (tries > 1 || !errors.Is(err, tiers.ErrCorrupt)) {
			s.records.fail(e.tier(), err)
			return e, h, err
		}
		if err := ctx.Err(); err != nil {
			return e, h, err
		}
	}
}

// Delete removes a page with the next Commit; reading it fails from now on.
func (s *Store) Delete(ctx context.Context, page uint64) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if _, err := s.table.lookup(page); err != nil && !errors.Is(err, tiers.ErrLost) {
		return fmt.Errorf("delete page %d: %w", page, err)
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.replacePending(page, change{state: deleted})
	return nil
}

// Move copies the newest content of a page into another tier. The old place counts until the next
// Commit or Settle. Moving a page to the tier where it is does nothing.
func (s *Store) Move(ctx context.Context, page uint64, tier int) error {
	if err := s.enter(ctx, tier); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if e, err := s.table.lookup(page); err != nil || e.tier() == tier {
		return err
	}
	return s.rewrite(ctx, page, tier)
}

// rewrite copies a page into a fresh slot of a tier. Within a tier the stored bytes stay as they
// are.
func (s *Store) rewrite(ctx context.Context, page uint64, tier int) error {
	buf := s.records.takeBuffer()
	defer s.records.freeBuffer(buf)
	content := buf.room(s.opts.PageSize)[:s.opts.PageSize]
	s.table.mu.RLock()
	before, open := s.table.pending[page], s.table.next
	s.table.mu.RUnlock()
	e, h, err := s.read(ctx, page, content)
	if err != nil {
		return fmt.Errorf("move page %d: %w", page, err)
	}
	// The copy has the time of the original, so a rebuild may find either.
	w := writing{epoch: e.epoch(), Stamp: index.Stamp{Life: h.Life, Seq: h.Seq}}
	var c change
	if e.tier() == tier {
		c, err = s.records.copyRecord(page, e)
		if now, lookupErr := s.table.lookup(page); err != nil && (lookupErr != nil || now != e) {
			return nil // Written or deleted meanwhile, and its slot reused: there is nothing to copy.
		}
	} else {
		c, _, err = s.records.write(tier, page, w, content, Kind{Elem: h.Elem, Class: h.Class})
	}
	if err != nil {
		return fmt.Errorf("move page %d: %w", page, err)
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	c.state = moved
	old, changed := s.table.pending[page]
	_, running := s.table.committing[page]
	switch {
	case ctx.Err() != nil:
		s.records.dirs[tier].Free(c.loc())
		return fmt.Errorf("move page %d: %w", page, ctx.Err())
	case changed && old.holds() && old.entry == e && old.write == before.write && before.entry == e:
		// The same write, not a newer one of this epoch in the same slot.
		c.state = old.state
	case e.epoch() >= open:
		// Its epoch was not closed, so a newer write may be in the same slot by now, and committed.
		s.records.dirs[tier].Free(c.loc())
		return nil
	case changed, running, s.table.committedEntry(page) != e:
		// Written, deleted or committed meanwhile: the copy is not needed.
		s.records.dirs[tier].Free(c.loc())
		return nil
	}
	s.table.replacePending(page, c)
	return nil
}

// Where is the tier that Get would read a page from. It fails with tiers.ErrNotFound or
// tiers.ErrLost.
func (s *Store) Where(page uint64) (tier int, err error) {
	e, err := s.table.lookup(page)
	if err != nil {
		return 0, fmt.Errorf("page %d: %w", page, err)
	}
	return e.tier(), nil
}

// Has reports whether a page is there, lost or not.
func (s *Store) Has(page uint64) bool {
	_, err := s.table.lookup(page)
	return err == nil || errors.Is(err, tiers.ErrLost)
}

// Info is where a page is.
type Info struct {
	// Tier is the tier's number.
	Tier int
	// Epoch is the epoch in which the content was written.
	Epoch uint64
	// Bytes is what the record takes on the medium, in whole blocks.
	Bytes int64
	// The record starts at Offset in File.
	File   string
	Offset int64
}

// Stat finds a page without reading it.
func (s *Store) Stat(page uint64) (Info, error) {
	e, err := s.table.lookup(page)
	if err != nil {
		return Info{}, fmt.Errorf("page %d: %w", page, err)
	}
	in := Info{Tier: e.tier(), Epoch: e.epoch(), Bytes: int64(e.loc().Blocks) * vfs.BlockSize}
	in.File, in.Offset = s.records.dirs[e.tier()].Place(e.loc())
	return in, nil
}

// Pages returns the ids of all pages that are there, lost ones included, in ascending order.
func (s *Store) Pages() []uint64 {
	s.table.mu.RLock()
	ids := make([]uint64, 0, s.table.committed.len()+len(s.table.pending))
	gone := func(page uint64) bool {
		c, ok := s.table.pending[page]
		if !ok {
			c, ok = s.table.committing[page]
		}
		return ok && c.state == deleted
	}
	for page := range s.table.committed.all() {
		if !gone(page) {
			ids = append(ids, page)
		}
	}
	for _, m := range []map[uint64]change{s.table.pending, s.table.committing} {
		for page := range m {
			if !gone(page) {
				ids = append(ids, page)
			}
		}
	}
	s.table.mu.RUnlock()
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Lost returns the ids of pages that cannot be served, in ascending order: pages whose segment is
// gone, or whose sync failed since the last commit.
func (s *Store) Lost() []uint64 {
	s.table.mu.RLock()
	defer s.table.mu.RUnlock()
	var ids []uint64
	for page := range s.table.damaged {
		if _, changed := s.table.pending[page]; !changed {
			ids = append(ids, page)
		}
	}
	for page, c := range s.table.pending {
		if c.state == lost {
			ids = append(ids, page)
		}
	}
	slices.Sort(ids)
	return ids
}
