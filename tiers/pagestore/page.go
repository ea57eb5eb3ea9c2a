package pagestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/codec"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/segment"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// minSaving is the part of a page that encoding must save to pay: a sixteenth. Below that, decoding
// costs the reader more than the disk gives back.
const minSaving = 16

// Kind says what a page holds, for the codec.
type Kind = tiers.Kind

// Put writes a page's content into a tier, durable with the next Commit. It replaces what was put
// since the last commit; what is committed stays until then. content is not kept, and must not
// change before Put returns; aligned as vfs.Buffer is, it goes to the medium without a copy where
// it is stored raw. Put fails with tiers.ErrFull when the tier has no room, and then the page is as
// it was.
func (s *Store) Put(ctx context.Context, tier int, page uint64, content []byte, kind Kind) error {
	if err := s.enter(ctx, tier); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if len(content) != s.opts.PageSize || kind.Elem > codec.MaxElem {
		return fmt.Errorf("put page %d: %d bytes of elements of %d, want %d: %w",
			page, len(content), kind.Elem, s.opts.PageSize, tiers.ErrInvalid)
	}
	for {
		w := s.startWrite(page)
		c, tried, err := s.write(tier, page, w, content, kind)
		switch done, err := s.endWrite(ctx, page, w, c, tried, err); {
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

// writing is a Put that has not returned: what its record says of when it was written.
type writing struct {
	epoch uint64
	index.Stamp
}

// startWrite numbers a write.
func (s *Store) startWrite(page uint64) writing {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	w := writing{epoch: s.next, Stamp: index.Stamp{Life: s.lifeID, Seq: s.seq}}
	s.running[s.seq] = index.Void{Page: page, Epoch: w.epoch, Seq: w.Seq}
	return w
}

// endWrite makes what was written the page's pending content. A record whose epoch a commit has
// closed meanwhile is not part of that commit, so it must not look as if it were: it was made void
// by the commit, and is written again.
//
// The end of ctx counts up to here: a caller that gave up on a medium that stalls may have put the
// page elsewhere since, and what comes late must not take the place of that.
func (s *Store) endWrite(ctx context.Context, page uint64, w writing, c change, tried bool, err error) (done bool,
	_ error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, w.Seq)
	if err == nil && ctx.Err() != nil {
		s.dirs[c.tier()].Free(c.loc())
		err, tried = ctx.Err(), w.epoch == s.next && w.Life == s.lifeID
	}
	if err != nil {
		if tried {
			s.voids = append(s.voids, index.Void{Page: page, Epoch: w.epoch, Seq: w.Seq})
		}
		return false, err
	}
	if w.epoch != s.next || w.Life != s.lifeID {
		s.dirs[c.tier()].Free(c.loc())
		return false, nil
	}
	c.state = written
	s.replacePending(page, c)
	return true, nil
}

// write encodes a page into a fresh slot of a tier. tried says that the medium may hold some of the
// record.
func (s *Store) write(tier int, page uint64, w writing, content []byte, kind Kind) (_ change, tried bool, err error) {
	d := s.dirs[tier]
	buf := s.buffer()
	defer s.freeBuffer(buf)
	h, body, err := s.encode(d, buf, content, kind)
	if err != nil {
		return change{}, false, err
	}
	h.Life, h.Seq = w.Life, w.Seq
	return s.place(d, tier, page, w.epoch, h, buf, body)
}

// place writes a body as a page's record of an epoch into a fresh slot.
func (s *Store) place(d *tierDir, tier int, page, epoch uint64, h segment.Header, buf *buffer, body []byte) (_ change,
	tried bool, err error,
) {
	l, err := d.Alloc(h.Blocks())
	if err != nil {
		s.fail(tier, err)
		return change{}, false, fmt.Errorf("tier %s: %w", d.name, err)
	}
	body, err = segment.Seal(buf.head, body, h, s.identity(l, page, epoch), s.aead)
	if err == nil {
		var n uint64
		if n, err = d.Write(l, buf.record(body)); err == nil {
			return change{entry: pack(tier, l, epoch, index.Stamp{Life: h.Life, Seq: h.Seq}.Check()), write: n}, true,
				nil
		}
	}
	d.Free(l)
	s.fail(tier, err)
	return change{}, true, fmt.Errorf("tier %s: %w", d.name, err)
}

// copyRecord copies the record of a page at a place into a fresh slot of the same tier, in the same
// encoding.
func (s *Store) copyRecord(page uint64, e entry) (change, error) {
	d := s.dirs[e.tier()]
	buf := s.buffer()
	defer s.freeBuffer(buf)
	h, _, err := s.fetch(d, page, e, buf, buf.room(s.opts.PageSize))
	if err != nil {
		return change{}, err
	}
	c, _, err := s.place(d, e.tier(), page, e.epoch(), h, buf, buf.body)
	return c, err
}

// fetch reads the record of a page at a place and checks it. body is aligned and as long as that of
// the record at least; the stored bytes that fetch returns lie in it.
func (s *Store) fetch(d *tierDir, page uint64, e entry, buf *buffer, body []byte) (segment.Header, []byte, error) {
	whole := (int(e.loc().Blocks) - 1) * vfs.BlockSize
	err := d.Read(e.loc(), buf.record(body[:whole]))
	if err != nil {
		err = fmt.Errorf("%w: %w", tiers.ErrMedium, err)
	}
	var h segment.Header
	var stored []byte
	if err == nil {
		h, stored, err = segment.Unseal(buf.head, body[:whole], s.identity(e.loc(), page, e.epoch()), s.aead)
	}
	if err != nil {
		return h, nil, fmt.Errorf("tier %s: %w", d.name, err)
	}
	return h, stored, nil
}

// encode makes the stored form of a page, raw when nothing else pays, and the body of the record
// that holds it: content itself where that is raw, aligned and not to be encrypted, so that nothing
// is copied, else in buf.
func (s *Store) encode(d *tierDir, buf *buffer, content []byte, kind Kind) (segment.Header, []byte, error) {
	h := segment.Header{Elem: kind.Elem, Class: kind.Class}
	if d.spec.ID != codec.Raw && d.chooser.Try(kind.Class) {
		// What does not save a sixteenth, and at least a block, is given up as soon as the room is
		// used up.
		room := (len(content) - max(len(content)/minSaving, vfs.BlockSize)) / vfs.BlockSize * vfs.BlockSize
		body := buf.room(s.opts.PageSize)
		c := d.coders.Get()
		n, id, shuffle, err := c.Encode(body[:room], content, int(kind.Elem))
		d.coders.Put(c)
		if err != nil {
			return h, nil, err
		}
		d.chooser.Learn(kind.Class, n > 0)
		if n > 0 {
			h.Stored, h.Codec, h.Shuffled = n, id, shuffle > 1
			return h, body, nil
		}
	}
	h.Stored = len(content)
	if s.aead == nil && vfs.Aligned(content) {
		return h, content, nil
	}
	body := buf.room(s.opts.PageSize)
	copy(body, content)
	return h, body, nil
}

// identity is what the record of a page at a place must say.
func (s *Store) identity(l segment.Loc, page, epoch uint64) segment.Identity {
	return segment.Identity{
		Store: s.id, PageSize: s.opts.PageSize, Segment: l.Segment, Slot: l.Slot, Page: page, Epoch: epoch,
	}
}

// fail counts an error against its tier; a full tier is no failure.
func (s *Store) fail(tier int, err error) {
	if !errors.Is(err, tiers.ErrFull) {
		s.failures[tier].Add(1)
	}
}

// replacePending sets what happens to a page with the next commit and gives back the slot that it
// takes the place of. The caller holds mu.
func (s *Store) replacePending(page uint64, c change) {
	if old, ok := s.pending[page]; ok {
		s.drop(old)
	}
	s.pending[page] = c
	s.pages.Store(int64(s.committed.len() + len(s.committing) + len(s.pending)))
}

// drop gives back the slot of a change that will not be committed. The caller holds mu.
func (s *Store) drop(c change) {
	switch {
	case !c.holds():
	case c.tried:
		s.limbo = append(s.limbo, c.entry)
	default:
		s.dirs[c.tier()].Free(c.loc())
	}
}

// committedEntry is a page's committed entry, zero without one. The caller holds mu.
func (s *Store) committedEntry(page uint64) entry {
	e, _ := s.committed.get(page)
	return e
}

// lookup finds the newest content of a page.
func (s *Store) lookup(page uint64) (entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := s.pending[page]
	if !ok {
		c, ok = s.committing[page]
	}
	if ok {
		switch c.state {
		case deleted:
			return entry{}, tiers.ErrNotFound
		case lost:
			return entry{}, tiers.ErrLost
		}
		return c.entry, nil
	}
	e, ok := s.committed.get(page)
	if !ok {
		return entry{}, tiers.ErrNotFound
	}
	if _, gone := s.damaged[page]; gone {
		return entry{}, fmt.Errorf("its segment is missing or damaged: %w", tiers.ErrLost)
	}
	return e, nil
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
func (s *Store) read(ctx context.Context, page uint64, dst []byte) (entry, segment.Header, error) {
	for tries := 0; ; tries++ {
		e, err := s.lookup(page)
		if err != nil {
			return e, segment.Header{}, err
		}
		h, err := s.readAt(page, e, dst)
		if err == nil {
			return e, h, nil
		}
		now, lookupErr := s.lookup(page)
		if lookupErr != nil {
			return e, h, lookupErr
		}
		// Within one epoch the page may also have left the slot and come back to it.
		if now == e && (tries > 1 || !errors.Is(err, tiers.ErrCorrupt)) {
			s.fail(e.tier(), err)
			return e, h, err
		}
		if err := ctx.Err(); err != nil {
			return e, h, err
		}
	}
}

// readAt reads the record of a page at a place and decodes it into dst; a nil dst only checks it.
func (s *Store) readAt(page uint64, e entry, dst []byte) (segment.Header, error) {
	d := s.dirs[e.tier()]
	buf := s.buffer()
	defer s.freeBuffer(buf)
	if s.aead == nil && dst != nil && int(e.loc().Blocks) == segment.BlocksFor(len(dst)) && vfs.Aligned(dst) {
		// As long as a raw page, so most likely one: it needs no room but its own.
		h, stored, err := s.fetch(d, page, e, buf, dst)
		if err != nil || h.Codec == codec.Raw && h.Shuffle() == 1 && len(stored) == len(dst) {
			return h, err
		}
	}
	h, stored, err := s.fetch(d, page, e, buf, buf.room(s.opts.PageSize))
	if err != nil || dst == nil {
		return h, err
	}
	c := d.coders.Get()
	defer d.coders.Put(c)
	if err := c.Decode(dst, stored, h.Codec, h.Shuffle()); err != nil {
		return h, fmt.Errorf("tier %s: %w: %w", d.name, tiers.ErrCorrupt, err)
	}
	return h, nil
}

// Delete removes a page with the next Commit; reading it fails from now on.
func (s *Store) Delete(ctx context.Context, page uint64) error {
	if err := s.enter(ctx, 0); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if _, err := s.lookup(page); err != nil && !errors.Is(err, tiers.ErrLost) {
		return fmt.Errorf("delete page %d: %w", page, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replacePending(page, change{state: deleted})
	return nil
}

// Move copies the newest content of a page into another tier. The old place counts until the next
// Commit or Settle. Moving a page to the tier where it is does nothing.
func (s *Store) Move(ctx context.Context, page uint64, tier int) error {
	if err := s.enter(ctx, tier); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if e, err := s.lookup(page); err != nil || e.tier() == tier {
		return err
	}
	return s.rewrite(ctx, page, tier)
}

// rewrite copies a page into a fresh slot of a tier. Within a tier the stored bytes stay as they
// are.
func (s *Store) rewrite(ctx context.Context, page uint64, tier int) error {
	buf := s.buffer()
	defer s.freeBuffer(buf)
	content := buf.room(s.opts.PageSize)[:s.opts.PageSize]
	s.mu.RLock()
	before, open := s.pending[page], s.next
	s.mu.RUnlock()
	e, h, err := s.read(ctx, page, content)
	if err != nil {
		return fmt.Errorf("move page %d: %w", page, err)
	}
	// The copy says of when it was written what the original says: whichever is found counts the
	// same.
	w := writing{epoch: e.epoch(), Stamp: index.Stamp{Life: h.Life, Seq: h.Seq}}
	var c change
	if e.tier() == tier {
		c, err = s.copyRecord(page, e)
		if now, lookupErr := s.lookup(page); err != nil && (lookupErr != nil || now != e) {
			return nil // Written or deleted meanwhile, and its slot with something else: there is nothing to copy.
		}
	} else {
		c, _, err = s.write(tier, page, w, content, Kind{Elem: h.Elem, Class: h.Class})
	}
	if err != nil {
		return fmt.Errorf("move page %d: %w", page, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.state = moved
	old, changed := s.pending[page]
	_, running := s.committing[page]
	switch {
	case ctx.Err() != nil:
		s.dirs[tier].Free(c.loc())
		return fmt.Errorf("move page %d: %w", page, ctx.Err())
	case changed && old.holds() && old.entry == e && old.write == before.write && before.entry == e:
		// The same write, and not a newer one of this epoch that came back to the slot.
		c.state = old.state
	case e.epoch() >= open:
		// Its epoch was not closed, so a newer write may lie in the same slot by now, and may have
		// been committed.
		s.dirs[tier].Free(c.loc())
		return nil
	case changed, running, s.committedEntry(page) != e:
		// Written, deleted or committed meanwhile: the copy is of no use.
		s.dirs[tier].Free(c.loc())
		return nil
	}
	s.replacePending(page, c)
	return nil
}

// Where is the tier that Get would read a page from. It fails with tiers.ErrNotFound or
// tiers.ErrLost.
func (s *Store) Where(page uint64) (tier int, err error) {
	e, err := s.lookup(page)
	if err != nil {
		return 0, fmt.Errorf("page %d: %w", page, err)
	}
	return e.tier(), nil
}

// Has says whether a page is there, lost or not.
func (s *Store) Has(page uint64) bool {
	_, err := s.lookup(page)
	return err == nil || errors.Is(err, tiers.ErrLost)
}

// Info is where a page is.
type Info struct {
	// Tier is the tier's number.
	Tier int
	// Epoch is the one in which the content was written.
	Epoch uint64
	// Bytes is what the record takes on the medium, in whole blocks.
	Bytes int64
	// File and Offset say where it begins.
	File   string
	Offset int64
}

// Stat finds a page without reading it.
func (s *Store) Stat(page uint64) (Info, error) {
	e, err := s.lookup(page)
	if err != nil {
		return Info{}, fmt.Errorf("page %d: %w", page, err)
	}
	in := Info{Tier: e.tier(), Epoch: e.epoch(), Bytes: int64(e.loc().Blocks) * vfs.BlockSize}
	in.File, in.Offset = s.dirs[e.tier()].Place(e.loc())
	return in, nil
}

// Pages returns the ids of all pages that are there, lost ones included, in ascending order.
func (s *Store) Pages() []uint64 {
	s.mu.RLock()
	ids := make([]uint64, 0, s.committed.len()+len(s.pending))
	gone := func(page uint64) bool {
		c, ok := s.pending[page]
		if !ok {
			c, ok = s.committing[page]
		}
		return ok && c.state == deleted
	}
	for page := range s.committed.all() {
		if !gone(page) {
			ids = append(ids, page)
		}
	}
	for _, m := range []map[uint64]change{s.pending, s.committing} {
		for page := range m {
			if !gone(page) {
				ids = append(ids, page)
			}
		}
	}
	s.mu.RUnlock()
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Lost returns the ids of pages that cannot be served, in ascending order: those whose segment is
// gone, and those whose sync failed since the last commit.
func (s *Store) Lost() []uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var ids []uint64
	for page := range s.damaged {
		if _, changed := s.pending[page]; !changed {
			ids = append(ids, page)
		}
	}
	for page, c := range s.pending {
		if c.state == lost {
			ids = append(ids, page)
		}
	}
	slices.Sort(ids)
	return ids
}
