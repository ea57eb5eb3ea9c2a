package pages

import (
	"context"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// setPages is the maximum number of pages in a set of a sweep. Larger sets have fewer pauses
// between them: a set of 2 MiB pages is 512 MiB, 10 ms of a bus of 55 GB/s, and a pause takes some
// 0.1 ms.
const setPages = 256

// Access is the order in which pages are accessed, which decides how they are paged in and evicted.
type Access int

// The kinds of access.
const (
	Random    Access = iota // pages are evicted when their frames are needed
	Sweep                   // all pages in order: a page is evicted once it is processed, except for the last ones
	SweepRead               // a sweep that changes nothing: it creates no page, and missing pages have no frame
)

// Set is pages that are pinned together.
type Set struct {
	Pages    []uint64
	onDevice int      // pages, the first ones, that are brought to the device; others may be in host memory
	counts   []uint32 // the observations of each page; nil: they are not counted
	read     int      // pages, the first ones, that are not changed; other than in a SweepRead
}

// Unit is pages that are on the device together. The first Read of them are not changed.
type Unit struct {
	Pages []uint64
	Read  int
}

func (s Set) mixed() bool { return s.onDevice < len(s.Pages) }

// All returns sets of all pages in the order of a sweep, with consecutive pages in each. It begins
// where the last sweep has ended, since those pages are still on the device. The caller does not
// change them.
func (m *Memory) All() []Set {
	if m.forth == nil {
		size := len(m.made)
		if !m.resident {
			size = max(1, min(setPages, usableFrames(m.frames.Count(), m.resident)/4))
		}
		pages := make([]uint64, len(m.made))
		for i := range pages {
			pages[i] = uint64(i)
		}
		m.forth = sets(pages, size)
	}
	order := m.forth
	if m.back {
		order = slices.Clone(order)
		slices.Reverse(order)
	}
	m.back = !m.back && !m.resident
	return order
}

func sets(pages []uint64, size int) (all []Set) {
	for chunk := range slices.Chunk(pages, size) {
		all = append(all, Set{Pages: chunk, onDevice: len(chunk)})
	}
	return all
}

// cut makes sets of pages that are on the device at once. The sets own the slice.
func (m *Memory) cut(pages []uint64) []Set {
	if m.resident || len(pages) <= usableFrames(m.frames.Count(), m.resident) {
		return []Set{{Pages: pages, onDevice: len(pages)}}
	}
	slices.Sort(pages)
	if m.back {
		slices.Reverse(pages)
	}
	m.back = !m.back
	return sets(pages, max(1, usableFrames(m.frames.Count(), m.resident)/2))
}

// PlanSets makes sets of pages for a launch that reads pages in place, also in host memory. counts
// are the observations by page. If the device has more frames than host memory, all pages of a set
// are brought to the device, because host memory may have to hold a whole set that comes from the
// store. Without pages there is one empty set.
func (m *Memory) PlanSets(pages []uint64, counts []uint32) []Set {
	if len(pages) == 0 && !m.resident {
		return []Set{{}}
	}
	usable := usableFrames(m.frames.Count(), m.resident)
	host := m.hostFrames()
	if m.resident || host == 0 || len(pages) > host && host <= usable {
		return m.cut(pages)
	}
	size := len(pages)
	if size > host {
		size = max(1, host/2) // the next set may come from the store at the same time
	}
	slices.Sort(pages)
	all := sets(pages, max(1, size))
	for i := range all {
		s := &all[i]
		// Pages that are worth it are paged in, the busiest first; half the frames are for pages
		// that are there.
		slices.SortStableFunc(s.Pages, func(a, b uint64) int { return int(counts[b]) - int(counts[a]) })
		s.counts = make([]uint32, len(s.Pages))
		for k, page := range s.Pages {
			s.counts[k] = counts[page]
		}
		most := min(len(s.Pages), usable/2)
		s.onDevice = 0
		for s.onDevice < most && m.heat.worthPageIn(s.counts[s.onDevice], m.pageBytes) {
			s.onDevice++
		}
	}
	return all
}

// PlanUnits makes sets of whole units, in their order. units returns how many units each set has. A
// page is in at most one unit. A unit that does not fit on the device is in a set of its own, whose
// pages cannot be pinned.
func (m *Memory) PlanUnits(all []Unit) (planned []Set, units []int) {
	most, together := usableFrames(m.frames.Count(), m.resident), 0
	for _, u := range all {
		together += len(u.Pages)
	}
	if together > most { // the next set comes while one is used
		most /= 2
	}
	for from := 0; from < len(all); {
		to, n := from, 0
		for to < len(all) && (to == from || n+len(all[to].Pages) <= most) {
			n += len(all[to].Pages)
			to++
		}
		s := Set{Pages: make([]uint64, 0, n), onDevice: n}
		for _, u := range all[from:to] {
			s.Pages, s.read = append(s.Pages, u.Pages[:u.Read]...), s.read+u.Read
		}
		for _, u := range all[from:to] {
			s.Pages = append(s.Pages, u.Pages[u.Read:]...)
		}
		planned, units, from = append(planned, s), append(units, to-from), to
	}
	return planned, units
}

// Each pins the pages of the sets, one set after the other, and calls f for each set while it is
// pinned and its frames are in the table. While f runs, the next sets are paged in and earlier ones
// are evicted. A page is in at most one set. f marks the pages dirty, best once its launches are
// under way. f waits for its launches even when it fails, unless the memory is resident. Each
// checks ctx between two sets.
func (m *Memory) Each(ctx context.Context, sets []Set, how Access, f func(i int) error) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	if !m.resident {
		return m.stream(ctx, sets, how, f)
	}
	m.noteUse(sets)
	for i, s := range sets {
		if !m.whole && how != SweepRead {
			if err := m.makePages(ctx, s.Pages...); err != nil {
				return err
			}
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// noteUse records which resident pages a batch uses: they are given up last.
func (m *Memory) noteUse(sets []Set) {
	if !m.allocation.gives {
		return
	}
	if m.used == nil {
		m.used = make([]int64, len(m.made))
	}
	m.batch++
	for _, s := range sets {
		for _, page := range s.Pages {
			m.used[page] = m.batch
		}
	}
}

// MarkDirty notes that pages have changed.
func (m *Memory) MarkDirty(pages []uint64) {
	for _, page := range pages {
		m.dirty[page] = true
	}
}

// loadedSet is a set of pinned pages; pins are in the order of pages.
type loadedSet struct {
	pages []uint64
	pins  []pager.Pin
	err   error
}

// stream is Each for a memory with fewer frames than pages. Two goroutines page sets in and evict
// them; both have ended when it returns.
func (m *Memory) stream(ctx context.Context, sets []Set, how Access, f func(i int) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	largest, room, all := 1, usableFrames(m.frames.Count(), m.resident), 0
	for _, s := range sets {
		all += len(s.Pages)
		if largest = max(largest, len(s.Pages)); s.mixed() {
			room = m.hostFrames()
		}
	}
	// The next sets come anyway, and guesses would take their frames: see Prefetch in
	// docs/performance.md.
	if how != Random || len(sets) > 1 || all > usableFrames(m.frames.Count(), m.resident)/2 {
		m.pager.Guess(false)
		defer m.pager.Guess(true)
	}
	most := max(1, room/largest)       // sets that have frames at the same time
	slots := make(chan struct{}, most) // taken by sets with frames; the other channels have the same capacity
	come, gone := make(chan loadedSet, most), make(chan []uint64, most)
	var work sync.WaitGroup
	work.Go(func() {
		defer close(come)
		for _, s := range sets {
			select {
			case slots <- struct{}{}:
			case <-inner.Done():
				return
			}
			if inner.Err() != nil {
				return
			}
			a := m.pageIn(inner, s, how)
			if come <- a; a.err != nil {
				return
			}
		}
	})
	work.Go(func() {
		left := len(sets)
		for pages := range gone {
			if left--; how != Random && left >= most {
				// A page that cannot leave blocks other pages, whose error says why.
				_ = m.pager.DoneWith(inner, onDevice, pages...)
			}
			<-slots
		}
	})
	done, err := m.consume(ctx, come, gone, f)
	if err == nil && done < len(sets) {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
	}
	for a := range come {
		pager.UnpinAll(a.pins)
	}
	close(gone)
	work.Wait()
	return gpubatch.Mark(err)
}

// consume calls f for each loaded set, until f fails or ctx ends. done is the number of finished
// sets.
func (m *Memory) consume(
	ctx context.Context, come <-chan loadedSet, gone chan<- []uint64, f func(i int) error,
) (done int, err error) {
	for a := range come {
		if err = context.Cause(ctx); err == nil { // the cause why a set was not loaded, too
			err = a.err
		}
		if err == nil {
			for i, page := range a.pages {
				m.setFrame(page, a.pins[i].Tier(), a.pins[i].Frame())
			}
			err = f(done)
		}
		pager.UnpinAll(a.pins)
		if err != nil {
			return done, err
		}
		gone <- a.pages
		done++
	}
	return done, nil
}

// pageIn pins a set on the device, for reading in a SweepRead, else for writing. Except in a
// SweepRead it creates missing pages.
func (m *Memory) pageIn(ctx context.Context, s Set, how Access) (a loadedSet) {
	if s.mixed() {
		return m.pageInHost(ctx, s)
	}
	use := pager.ForWriting
	if how == SweepRead {
		use = pager.ForReading
	}
	var fresh []uint64
	read := 0
	for i, page := range s.Pages {
		switch {
		case !m.made[page]:
			fresh = append(fresh, page)
			continue
		case i < s.read:
			read++
		}
		a.pages = append(a.pages, page)
	}
	if a.pins, a.err = m.pager.PinAll(ctx, a.pages[:read], onDevice, pager.ForReading, nil); a.err != nil {
		return a
	}
	if a.pins, a.err = m.pager.PinAll(ctx, a.pages[read:], onDevice, use, a.pins); a.err != nil || how == SweepRead {
		return a
	}
	a.err = m.create(ctx, fresh, func(page uint64) error {
		h, err := m.pager.Pin(ctx, page, onDevice, pager.ForWriting) // before the next page needs a frame
		if err != nil {
			return err
		}
		a.pages, a.pins = append(a.pages, page), append(a.pins, h)
		return nil
	})
	return a
}

// pageInHost is pageIn for a mixed set. It creates missing pages before it pins any: there may be
// no other frame on the device.
func (m *Memory) pageInHost(ctx context.Context, s Set) (a loadedSet) {
	a.pages = s.Pages
	if a.err = m.create(ctx, s.Pages, func(uint64) error { return nil }); a.err != nil {
		return a
	}
	if a.pins, a.err = m.pager.PinAll(ctx, s.Pages[:s.onDevice], onDevice, pager.ForWriting, nil); a.err != nil {
		return a
	}
	a.pins, a.err = m.pager.PinInPlace(ctx, s.Pages[s.onDevice:], pager.ForWriting, a.pins)
	return a
}
