package pagestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
)

// pageTable knows where the content of every page is: committed, or changed since the last commit.
// It also numbers epochs and writes, so that a record says when it was written. mu guards all
// fields but records and pages. Nothing does I/O under it; slots of a directory are freed under it,
// so a dir's lock is taken after it.
type pageTable struct {
	records *records

	mu        sync.RWMutex
	committed pageMap
	// damaged are committed pages whose place does not exist: their entries stay, in case the
	// segment comes back, but they are served as lost and hold no slot.
	damaged map[uint64]struct{}
	// pending changes go with the next commit; committing ones are with the commit that runs.
	pending, committing map[uint64]change
	// quarantined are slots that a failed commit may have made durable.
	quarantined []entry
	epoch       uint64 // committed
	next        uint64 // of present writes
	note        []byte
	// seq numbers the records that are written in this life of the index, and running has the
	// records that are being written.
	seq     uint64
	lifeID  uint64
	running map[uint64]index.Void
	// voids are records that must not count in the next epoch, committingVoids in the one that is
	// being committed.
	voids, committingVoids []index.Void

	// pages is about the number of pages, for indexReserve, which runs under the lock of a dir and
	// so cannot take mu.
	pages atomic.Int64
}

// writing is a Put that has not returned: the epoch and the stamp of its record.
type writing struct {
	epoch uint64
	index.Stamp
}

// begin starts a commit: it moves the changes of the commit from pending to committing and returns
// the epoch. With movesOnly these are the moves, and the epoch is the committed one.
func (t *pageTable) begin(movesOnly bool) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if movesOnly {
		t.committing = map[uint64]change{}
		for page, c := range t.pending {
			if c.state == moved {
				t.committing[page] = c
				delete(t.pending, page)
			}
		}
		return t.epoch, nil
	}
	if gone := lostPages(t.pending); len(gone) > 0 {
		return 0, &tiers.LostError{Pages: gone, Cause: tiers.ErrSync}
	}
	if t.next > maxEpoch {
		return 0, fmt.Errorf("epoch %d: %w", t.next, tiers.ErrInvalid)
	}
	epoch := t.next
	t.committing, t.pending = t.pending, map[uint64]change{}
	t.next++
	t.committingVoids, t.voids = t.voids, nil
	for _, v := range t.running {
		t.committingVoids = append(t.committingVoids, v)
	}
	return epoch, nil
}

// doubt replaces a change of m whose sync failed: new content is lost, and a copy of committed
// content is forgotten, because the old place still counts. The slot stays taken, since its content
// is unknown. The caller holds mu.
func (t *pageTable) doubt(m map[uint64]change, page uint64, c change) {
	if !c.holds() {
		return
	}
	d := t.records.dirs[c.tier()]
	if !d.Retired(c.loc().Segment) || d.Durable(c.loc(), c.write) {
		return
	}
	if c.state == moved {
		delete(m, page)
		return
	}
	m[page] = change{state: lost}
}

// abandon puts the changes of a failed commit back into pending.
func (t *pageTable) abandon(err error) {
	// Until the index was reached, nothing of the commit can be durable.
	tried := !errors.Is(err, tiers.ErrLost) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded)
	t.mu.Lock()
	defer t.mu.Unlock()
	for page, c := range t.committing {
		t.doubt(t.committing, page, c)
	}
	for page, c := range t.committing {
		c.tried = c.tried || (tried && c.holds())
		if _, newer := t.pending[page]; newer {
			t.drop(c)
		} else {
			t.pending[page] = c
		}
	}
	t.committing = nil
	t.voids = append(t.voids, t.committingVoids...)
	t.committingVoids = nil
}

// finish ends a commit that succeeded: it makes the committing changes the committed ones and gives
// the old slots back.
func (t *pageTable) finish(epoch uint64, note []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for page, c := range t.committing {
		if old, ok := t.committed.get(page); ok {
			if _, gone := t.damaged[page]; gone {
				delete(t.damaged, page)
			} else {
				t.records.dirs[old.tier()].Free(old.loc())
			}
		}
		if c.state == deleted {
			t.committed.remove(page)
		} else {
			t.committed.set(page, c.entry)
		}
	}
	for _, e := range t.quarantined {
		t.records.dirs[e.tier()].Free(e.loc())
	}
	t.committing, t.committingVoids, t.quarantined = nil, nil, t.quarantined[:0]
	t.epoch, t.note = epoch, note
	t.pages.Store(int64(t.committed.len() + len(t.pending)))
}

// changes yields the changes that the running commit makes to the index. It reads committed and
// committing without mu, because only the holder of Store.commitMu changes them, which is the
// caller.
func (t *pageTable) changes() iter.Seq[index.Change] {
	return func(yield func(index.Change) bool) {
		for page, c := range t.committing {
			ch := index.Change{Page: page, HasNew: c.holds()}
			if ch.HasNew {
				ch.New = c.indexEntry(page)
			}
			if old, ok := t.committed.get(page); ok {
				ch.Old, ch.HadOld = old.indexEntry(page), true
			}
			if !yield(ch) {
				return
			}
		}
	}
}

// entries yields an index entry for every page as it will be after the changes of over are
// committed. The caller holds Store.commitMu, or opens the store.
func (t *pageTable) entries(over map[uint64]change) iter.Seq[index.Entry] {
	return func(yield func(index.Entry) bool) {
		for page, e := range t.committed.all() {
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

// startWrite numbers a write and records it as running, until endWrite.
func (t *pageTable) startWrite(page uint64) writing {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	w := writing{epoch: t.next, Stamp: index.Stamp{Life: t.lifeID, Seq: t.seq}}
	t.running[t.seq] = index.Void{Page: page, Epoch: w.epoch, Seq: w.Seq}
	return w
}

// endWrite makes what was written the page's pending content. A record whose epoch a commit has
// closed meanwhile is not part of that commit: the commit has made it void, and it is written
// again.
//
// The end of ctx counts up to here: a caller that gave up on a stalled medium may have put the page
// elsewhere since, and a late write must not replace that.
func (t *pageTable) endWrite(ctx context.Context, page uint64, w writing, c change, tried bool, err error) (done bool,
	_ error,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, w.Seq)
	if err == nil && ctx.Err() != nil {
		t.records.dirs[c.tier()].Free(c.loc())
		err, tried = ctx.Err(), w.epoch == t.next && w.Life == t.lifeID
	}
	if err != nil {
		if tried {
			t.voids = append(t.voids, index.Void{Page: page, Epoch: w.epoch, Seq: w.Seq})
		}
		return false, err
	}
	if w.epoch != t.next || w.Life != t.lifeID {
		t.records.dirs[c.tier()].Free(c.loc())
		return false, nil
	}
	c.state = written
	t.replacePending(page, c)
	return true, nil
}

// replacePending sets the change of a page that goes with the next commit, and gives back the slot
// of the change that it replaces. The caller holds mu.
func (t *pageTable) replacePending(page uint64, c change) {
	if old, ok := t.pending[page]; ok {
		t.drop(old)
	}
	t.pending[page] = c
	t.pages.Store(int64(t.committed.len() + len(t.committing) + len(t.pending)))
}

// drop gives back the slot of a change that will not be committed, or quarantines the slot if a
// failed commit may have made the change durable. The caller holds mu.
func (t *pageTable) drop(c change) {
	switch {
	case !c.holds():
	case c.tried:
		t.quarantined = append(t.quarantined, c.entry)
	default:
		t.records.dirs[c.tier()].Free(c.loc())
	}
}

// committedEntry returns the committed entry of a page, zero without one. The caller holds mu.
func (t *pageTable) committedEntry(page uint64) entry {
	e, _ := t.committed.get(page)
	return e
}

// lookup returns where the newest content of a page is. It fails with tiers.ErrNotFound or
// tiers.ErrLost.
func (t *pageTable) lookup(page uint64) (entry, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.pending[page]
	if !ok {
		c, ok = t.committing[page]
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
	e, ok := t.committed.get(page)
	if !ok {
		return entry{}, tiers.ErrNotFound
	}
	if _, gone := t.damaged[page]; gone {
		return entry{}, fmt.Errorf("its segment is missing or damaged: %w", tiers.ErrLost)
	}
	return e, nil
}
