package pages

import (
	"context"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// setPages is the most pages of a set of a sweep. Larger ones come and go with fewer pauses between two sets: at 2 MiB a set is 512 MiB,
// 10 ms of a bus of 55 GB/s, and a pause some 0.1 ms.
const setPages = 256

// passage is how pages that are needed come to the device and go.
type Access int

const (
	Random    Access = iota // others will make room for them when they must
	Sweep                   // all pages in order: those that have passed make room at once, but for the last ones
	SweepRead               // a sweep that changes nothing: pages that are nowhere stay so, and are not in table
)

// set is pages that are held together.
type Set struct {
	Pages    []uint64
	onDevice int      // so many of them, the first, are brought to the device; the others may be in host memory
	counts   []uint32 // the observations of each; nil: it is no matter
}

// still says that pages of a set stay where they are.
func (s Set) mixed() bool { return s.onDevice < len(s.Pages) }

// all are sets of all pages, consecutive ones each, in the order of a sweep: it begins where the last one has ended, since what was there
// then is on the device. The caller does not change them.
func (m *Memory) All() []Set {
	if m.forth == nil {
		size := len(m.made)
		if !m.resident {
			size = max(1, min(setPages, m.usableFrames()/4))
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

// sets are so many of pages each, to be on the device.
func sets(pages []uint64, size int) (all []Set) {
	for chunk := range slices.Chunk(pages, size) {
		all = append(all, Set{Pages: chunk, onDevice: len(chunk)})
	}
	return all
}

// cut makes sets of pages that are on the device at once. The slice becomes the sets'.
func (m *Memory) cut(pages []uint64) []Set {
	if m.resident || len(pages) <= m.usableFrames() {
		return []Set{{Pages: pages, onDevice: len(pages)}}
	}
	slices.Sort(pages)
	if m.back {
		slices.Reverse(pages)
	}
	m.back = !m.back
	return sets(pages, max(1, m.usableFrames()/2))
}

// place makes sets of pages of which a launch takes what it needs from where they are, in host memory too; counts are the observations
// by page. They are sets of cut where the device has more room than host memory, which may have to hold a whole set: its pages may all be
// in the store.
func (m *Memory) Place(pages []uint64, counts []uint32) []Set {
	if m.resident || m.host == nil || len(pages) > m.host.Count() && m.host.Count() <= m.usableFrames() {
		return m.cut(pages)
	}
	size := len(pages)
	if size > m.host.Count() {
		size = max(1, m.host.Count()/2) // the next set may come from the store meanwhile
	}
	slices.Sort(pages)
	all := sets(pages, max(1, size))
	for i := range all {
		s := &all[i]
		// Those that are better brought up first, the busiest before the others; half the frames are for what is there.
		slices.SortStableFunc(s.Pages, func(a, b uint64) int { return int(counts[b]) - int(counts[a]) })
		s.counts = make([]uint32, len(s.Pages))
		for k, page := range s.Pages {
			s.counts[k] = counts[page]
		}
		for s.onDevice = 0; s.onDevice < min(len(s.Pages), m.usableFrames()/2) && m.heat.worthPageIn(s.counts[s.onDevice], m.pageBytes); s.onDevice++ {
		}
	}
	return all
}

// each brings sets of pages to where they are to be, one after the other, and calls f for each set while all of it is there: its frames are in
// table. While f runs, the sets behind it come and those before it go. A page is in one set at most. f marks the set, best once
// its launches are under way, and waits for them even when it fails, unless the memory is resident. The end of ctx is looked at
// between two sets.
func (m *Memory) Each(ctx context.Context, sets []Set, how Access, f func(i int) error) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	if !m.resident {
		return m.stream(ctx, sets, how, f)
	}
	for i, s := range sets {
		if !m.whole && how != SweepRead {
			if err := m.create(ctx, s.Pages, func(page uint64) error { return m.pinResident(ctx, []uint64{page}) }); err != nil {
				return fault.Mark(err)
			}
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// mark notes that pages have changed.
func (m *Memory) MarkDirty(pages []uint64) {
	for _, page := range pages {
		m.dirty[page] = true
	}
}

// arrival is a set that is where it is to be: pins of pages, in that order.
type loadedSet struct {
	pages []uint64
	pins  []pager.Pin
	err   error
}

// pass is each of a memory with fewer frames than pages. Two goroutines bring sets and send them away, and have ended when it returns.
func (m *Memory) stream(ctx context.Context, sets []Set, how Access, f func(i int) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if how != Random { // the sets behind this one come anyway, and guesses took their frames: see Prefetch in docs/performance.md
		m.pager.Guess(false)
		defer m.pager.Guess(true)
	}
	largest, room := 1, m.usableFrames()
	for _, s := range sets {
		if largest = max(largest, len(s.Pages)); s.mixed() {
			room = m.host.Count()
		}
	}
	most := max(1, room/largest)       // sets that have frames at once
	slots := make(chan struct{}, most) // taken by those that have; as many have room in the other channels
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
				// What stays for want of room below keeps the pages that need its frames from coming, which say why.
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
	return fault.Mark(err)
}

// meet calls f for each set that comes, until one fails or ctx ends, and says for how many.
func (m *Memory) consume(ctx context.Context, come <-chan loadedSet, gone chan<- []uint64, f func(i int) error) (done int, err error) {
	for a := range come {
		if err = context.Cause(ctx); err == nil { // which is why a set has not come, too
			err = a.err
		}
		if err == nil {
			for i, page := range a.pages {
				m.setPlace(page, a.pins[i].Tier(), a.pins[i].Frame())
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

// bring holds a set for writing, or to be looked at. Pages that are not there are made, unless it is.
func (m *Memory) pageIn(ctx context.Context, s Set, how Access) (a loadedSet) {
	if s.mixed() {
		return m.pageInHost(ctx, s)
	}
	use := pager.ForWriting
	if how == SweepRead {
		use = pager.ForReading
	}
	var fresh []uint64
	for _, page := range s.Pages {
		if m.made[page] {
			a.pages = append(a.pages, page)
		} else {
			fresh = append(fresh, page)
		}
	}
	if a.pins, a.err = m.pager.PinAll(ctx, a.pages, onDevice, use, nil); a.err != nil || how == SweepRead {
		return a
	}
	a.err = m.create(ctx, fresh, func(page uint64) error {
		h, err := m.pager.Pin(ctx, page, onDevice, pager.ForWriting) // before the next one needs a frame
		if err != nil {
			return err
		}
		a.pages, a.pins = append(a.pages, page), append(a.pins, h)
		return nil
	})
	return a
}

// reach is bring of a set of which pages stay where they are. Pages are made on the device before any is held: there may be no other frame.
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
