package pagestore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// scanners is the number of segments that Scan reads at once: it waits for the medium, one block a
// slot.
const scanners = 8

// Scan reads the header of every slot and calls f, one call at a time, for every record of this
// store that is where it says: current, stale and never committed ones alike. Only Open may have
// come before.
func (d *dir) Scan(f func(recordHeader, loc)) error {
	if d.down != nil {
		return d.down
	}
	d.mu.Lock()
	list := d.sorted()
	d.mu.Unlock()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	jobs := make(chan *segment)
	for range min(scanners, len(list)) {
		wg.Go(func() {
			for s := range jobs {
				if err := d.scanSegment(s, &mu, f); err != nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("segment %d: %w", s.number, err))
					mu.Unlock()
				}
			}
		})
	}
	for _, s := range list {
		jobs <- s
	}
	close(jobs)
	wg.Wait()
	return errors.Join(errs...)
}

// sorted lists the segments that have slots. The caller holds mu.
func (d *dir) sorted() []*segment {
	var list []*segment
	for _, s := range d.segments {
		if s.slots > 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *segment) int { return int(a.number) - int(b.number) })
	return list
}

// scanSegment reads the headers of one segment. mu serialises the calls of f between the scanners.
// A slot without a valid record of this store is left out, and a record of a newer version is an
// error.
func (d *dir) scanSegment(s *segment, mu *sync.Mutex, f func(recordHeader, loc)) error {
	block := vfs.Buffer(HeaderBytes)
	for slot := range uint32(s.slots) {
		if _, err := s.file.ReadAt(block, s.offset(slot)); err != nil {
			return err
		}
		h, id, err := parseRecord(block)
		switch {
		case errors.Is(err, tiers.ErrVersion):
			return err
		case err != nil, id.Store != d.opts.Store, id.PageSize != d.opts.PageSize, id.Segment != s.number,
			id.Slot != slot,
			h.Stored > d.opts.PageSize, h.Blocks() > s.blocks:
			continue
		}
		mu.Lock()
		f(h, loc{Segment: s.number, Slot: slot, Blocks: uint16(h.Blocks())})
		mu.Unlock()
	}
	return nil
}

// Sweep overwrites the header of every free slot, so that no stale record is left, and makes that
// durable. It reports whether these are all free slots: segments that take no writes keep their
// stale records. Reads, writes and allocations may run at the same time.
func (d *dir) Sweep() (all bool, err error) {
	if d.down != nil {
		return false, nil
	}
	d.mu.Lock()
	list := d.sorted()
	all = len(list) == len(d.segments)
	d.mu.Unlock()
	zero := [][]byte{vfs.Buffer(HeaderBytes)}
	for _, s := range list {
		for slot := range uint32(s.slots) {
			d.mu.Lock()
			if s.retired || d.segments[s.number] != s {
				all = all && !s.retired
				d.mu.Unlock()
				break
			}
			if s.used[slot/64]&(1<<(slot%64)) != 0 {
				d.mu.Unlock()
				continue
			}
			d.take(s, slot, 0)
			if s.free == 0 {
				d.unlist(s)
			}
			d.mu.Unlock()
			l := loc{Segment: s.number, Slot: slot}
			_, err := d.Write(l, zero)
			d.Free(l)
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				return false, err
			}
		}
	}
	// A power loss would bring back the files that were removed as well.
	return all, errors.Join(d.Sync(), d.opts.FS.SyncDir(d.opts.Path))
}
