package pagestore

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Claim marks the slot of a record that the index holds as used. It fails with ErrCorrupt when
// there is no such slot or it is claimed twice. It is called after Open, for each record of the
// index, and before Prune.
func (d *dir) Claim(l loc) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.segments[l.Segment]
	switch {
	case s == nil:
		// Its number is not used again: entries of the index for it must not lead to another file.
		d.next = max(d.next, l.Segment+1)
		return fmt.Errorf("segment %d is missing: %w", l.Segment, tiers.ErrCorrupt)
	case s.slots == 0:
		s.missed = true
		return fmt.Errorf("segment %d has a damaged header: %w", l.Segment, tiers.ErrCorrupt)
	case int(l.Slot) >= s.slots || int(l.Blocks) > s.blocks || l.Blocks == 0:
		return fmt.Errorf("slot %d of %d blocks is not in segment %d: %w", l.Slot, l.Blocks, l.Segment,
			tiers.ErrCorrupt)
	case s.used[l.Slot/64]&(1<<(l.Slot%64)) != 0:
		return fmt.Errorf("slot %d of segment %d is claimed twice: %w", l.Slot, l.Segment, tiers.ErrCorrupt)
	}
	d.take(s, l.Slot, l.Blocks)
	return nil
}

// take marks a free slot as used by a record of blocks. The caller holds mu.
func (d *dir) take(s *segment, slot uint32, blocks uint16) {
	s.used[slot/64] |= 1 << (slot % 64)
	s.free--
	d.used++
	d.live += int64(blocks) * vfs.BlockSize
}

// Prune ends recovery: it removes the files that hold no claimed record and cannot take one, and
// lists the free slots. It is called once, after all records are claimed and before the first
// Alloc.
func (d *dir) Prune() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, s := range d.segments {
		if s.slots == 0 && !s.missed {
			if err := d.removeSegment(n); err != nil {
				return err
			}
			continue
		}
		d.list(s) // Not one without slots: those are retired.
	}
	return nil
}

// list makes a segment available to Alloc if it has a free slot and takes records. The caller holds
// mu.
func (d *dir) list(s *segment) {
	if !s.listed && !s.retired && !s.draining && s.free > 0 {
		s.listed = true
		d.classes[s.blocks] = append(d.classes[s.blocks], s)
	}
}

// unlist undoes list. The caller holds mu.
func (d *dir) unlist(s *segment) {
	if s.listed {
		s.listed = false
		d.classes[s.blocks] = slices.DeleteFunc(d.classes[s.blocks], func(o *segment) bool { return o == s })
	}
}

// Class returns the length in blocks of a slot for a record of blocks: exact up to 8, then in steps
// of an eighth, and never more than a raw page needs. So at most an eighth of a slot is lost, and
// raw pages lose nothing.
func (d *dir) Class(blocks int) int {
	if blocks > 8 {
		step := 1 << (bits.Len(uint(blocks-1)) - 4)
		blocks = (blocks + step - 1) / step * step
	}
	return min(blocks, blocksFor(d.opts.PageSize))
}

// Alloc reserves a slot for a record of blocks. It fails with ErrFull when the cap or the disk has
// no room.
func (d *dir) Alloc(blocks int) (loc, error) {
	if blocks < 1 || blocks > blocksFor(d.opts.PageSize) {
		return loc{}, fmt.Errorf("allocate %d blocks for pages of %d bytes: %w", blocks, d.opts.PageSize,
			tiers.ErrCorrupt)
	}
	if d.down != nil {
		return loc{}, d.down
	}
	class := d.Class(blocks)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.classes[class]) == 0 {
		if err := d.addSegment(class); err != nil {
			if !errors.Is(err, tiers.ErrFull) {
				return loc{}, err
			}
			// Better a longer slot than none.
			full := err
			class = d.longerClass(class)
			if class == 0 {
				return loc{}, full
			}
		}
	}
	list := d.classes[class]
	s := list[len(list)-1]
	slot := s.firstFree()
	d.take(s, slot, uint16(blocks))
	if s.free == 0 {
		d.unlist(s)
	}
	return loc{Segment: s.number, Slot: slot, Blocks: uint16(blocks)}, nil
}

// longerClass returns the shortest class above one that has a free slot; 0 if there is none. The
// caller holds mu.
func (d *dir) longerClass(class int) int {
	best := 0
	for c, list := range d.classes {
		if c > class && len(list) > 0 && (best == 0 || c < best) {
			best = c
		}
	}
	return best
}

// firstFree returns the next free slot, in order from s.from and around the end. The caller has
// checked that there is one.
func (s *segment) firstFree() uint32 {
	for i := range s.slots {
		slot := (s.from + i) % s.slots
		if s.used[slot/64] == ^uint64(0) {
			continue
		}
		if s.used[slot/64]&(1<<(slot%64)) == 0 {
			s.from = slot + 1
			return uint32(slot)
		}
	}
	panic("segment: a listed segment has no free slot")
}

// addSegment makes a file for a class, within the cap. An empty file of another class makes room
// when need be. The caller holds mu.
func (d *dir) addSegment(class int) error {
	slot := int64(class) * vfs.BlockSize
	h := fileHeader{
		store: d.opts.Store, tier: d.opts.Tier, number: d.next, pageSize: d.opts.PageSize, blocks: class,
		slots: int(max((d.opts.SegmentBytes-2*vfs.BlockSize)/slot, 1)),
	}
	if d.next > maxSegment {
		return fmt.Errorf("segment numbers are used up: %w", tiers.ErrFull)
	}
	own := func() int64 { return d.opts.Quota.left(d.opts.Capacity - d.opts.Reserve() - d.bytes) }
	room := own()
	for number, s := range d.segments {
		if room >= h.length() {
			break
		}
		if s.slots > 0 && s.free == s.slots && !s.retired {
			if err := d.removeSegment(number); err != nil {
				return err
			}
			room = own()
		}
	}
	if room < h.length() {
		// The last piece of the cap may be shorter than a whole segment.
		h.slots = int((room - 2*vfs.BlockSize) / slot)
		if h.slots < 1 {
			return fmt.Errorf("%d of %d bytes in use, %d left: %w", d.bytes, d.opts.Capacity, max(room, 0),
				tiers.ErrFull)
		}
	}
	free, err := d.opts.FS.Free(d.opts.Path)
	if err != nil {
		return err
	}
	if free < h.length()+d.opts.DiskReserve {
		return fmt.Errorf("disk has %d bytes free and %d are kept in reserve: %w", free, d.opts.DiskReserve,
			tiers.ErrFull)
	}
	if !d.opts.Quota.take(h.length()) {
		return fmt.Errorf("another directory has taken the last of %d bytes: %w", d.opts.Quota.Capacity(),
			tiers.ErrFull)
	}
	if err := d.createSegment(h); err != nil {
		d.opts.Quota.Give(h.length())
		return err
	}
	return nil
}

// Trim removes the files without a record when the quota is short, so that other directories have
// the room. Segments that are being drained stay.
func (d *dir) Trim() error {
	if d.down != nil || !d.opts.Quota.short() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for number, s := range d.segments {
		if s.slots > 0 && s.free == s.slots && !s.draining {
			errs = append(errs, d.removeSegment(number))
		}
	}
	return errors.Join(errs...)
}

// Free gives a slot back, and panics if the slot is not in use. The caller guarantees that no
// durable index entry points to it: the next record overwrites the slot.
func (d *dir) Free(l loc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.segments[l.Segment]
	if s == nil || s.used[l.Slot/64]&(1<<(l.Slot%64)) == 0 {
		panic(fmt.Sprintf("segment: slot %d of segment %d is freed twice", l.Slot, l.Segment))
	}
	s.used[l.Slot/64] &^= 1 << (l.Slot % 64)
	s.free++
	d.used--
	d.live -= int64(l.Blocks) * vfs.BlockSize
	d.list(s)
}

// Drain stops allocation from segments that are retired or used for less than a part, and returns
// their numbers. The caller moves their records elsewhere and then calls Undrain.
func (d *dir) Drain(part float64) map[uint32]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	numbers := map[uint32]bool{}
	for n, s := range d.segments {
		if s.slots > 0 && (s.retired || float64(s.slots-s.free) < part*float64(s.slots)) {
			s.draining = true
			d.unlist(s)
			numbers[n] = true
		}
	}
	return numbers
}

// Undrain removes the drained segments that are empty by now and makes the others available again.
// It is called after the index has made the moves durable.
func (d *dir) Undrain() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for n, s := range d.segments {
		if !s.draining {
			continue
		}
		s.draining = false
		if s.free == s.slots {
			errs = append(errs, d.removeSegment(n))
			continue
		}
		d.list(s)
	}
	return errors.Join(errs...)
}

// sparse is the part of its slots in use under which Compact empties a segment: moving a page then
// frees more than it writes.
const sparse = 0.5

// fewMarks is the number of marks in the index up to which Compact does not sweep stale records.
const fewMarks = 256

// Compact moves pages out of segments that are less than half in use or retired after a failed
// sync, and deletes the files. It returns the number of bytes that the files are shorter. Pages
// whose medium does not read them, or for which there is no room, stay. Any other call may run at
// the same time.
func (s *Store) Compact(ctx context.Context) (freed int64, err error) {
	if err := s.enter(ctx, 0); err != nil {
		return 0, err
	}
	defer s.life.RUnlock()
	var errs []error
	drained := make([]map[uint32]bool, len(s.records.dirs))
	for i, d := range s.records.dirs {
		freed += d.Usage().FileBytes
		drained[i] = d.Drain(sparse)
	}
	for _, page := range s.Pages() {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		e, err := s.table.lookup(page)
		if err != nil || !drained[e.tier()][e.loc().Segment] {
			continue
		}
		err = s.rewrite(ctx, page, e.tier())
		if err != nil && !errors.Is(err, tiers.ErrNotFound) && !errors.Is(err, tiers.ErrFull) {
			errs = append(errs, err)
		}
	}
	if _, err := s.commit(ctx, nil, true); err != nil {
		errs = append(errs, fmt.Errorf("compact: %w", err))
	}
	for _, d := range s.records.dirs {
		errs = append(errs, d.Undrain())
		freed -= d.Usage().FileBytes
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if err := errors.Join(errs...); err != nil || s.index.Broken() || s.index.Marks() < fewMarks {
		return freed, err
	}
	return freed, s.sweep()
}
