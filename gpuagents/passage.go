package gpuagents

import (
	"context"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/tiers/pager"
)

// setPages is the most pages of a set of a sweep. Larger ones come and go with fewer pauses between two sets: at 2 MiB a set is 512 MiB,
// 10 ms of a bus of 55 GB/s, and a pause some 0.1 ms.
const setPages = 256

// passage is how pages that are needed come to the device and go.
type passage int

const (
	visit passage = iota // others will make room for them when they must
	sweep                // all pages in order: those that have passed make room at once, but for the last ones
)

// all are sets of all pages, consecutive ones each, in the order of a sweep: it begins where the last one has ended, since what was there
// then is on the device. The caller does not change them.
func (m *memory) all() [][]uint64 {
	if m.forth == nil {
		size := len(m.made)
		if !m.resident {
			size = max(1, min(setPages, m.usable()/4))
		}
		pages := make([]uint64, len(m.made))
		for i := range pages {
			pages[i] = uint64(i)
		}
		m.forth = slices.Collect(slices.Chunk(pages, size))
	}
	sets := m.forth
	if m.back {
		sets = slices.Clone(sets)
		slices.Reverse(sets)
	}
	m.back = !m.back && !m.resident
	return sets
}

// cut makes sets of pages that are on the device at once. The slice becomes the sets'.
func (m *memory) cut(pages []uint64) [][]uint64 {
	if m.resident || len(pages) <= m.usable() {
		return [][]uint64{pages}
	}
	slices.Sort(pages)
	if m.back {
		slices.Reverse(pages)
	}
	m.back = !m.back
	return slices.Collect(slices.Chunk(pages, max(1, m.usable()/2)))
}

// each brings sets of pages to the device, one after the other, and calls f for each set while all of it is there: its frames are in
// table. While f runs, the sets behind it come and those before it go. A page is in one set at most. f marks the set, best once
// its launches are under way, and waits for them even when it fails, unless the memory is resident. The end of ctx is looked at
// between two sets.
func (m *memory) each(ctx context.Context, sets [][]uint64, how passage, f func(i int) error) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	if !m.resident {
		return m.pass(ctx, sets, how, f)
	}
	for i, set := range sets {
		if !m.whole {
			if err := m.create(ctx, set, func(page uint64) error { return m.hold(ctx, []uint64{page}) }); err != nil {
				return classed(err)
			}
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// mark notes that pages have changed.
func (m *memory) mark(pages []uint64) {
	for _, page := range pages {
		m.dirty[page] = true
	}
}

// arrival is a set that is on the device: pins of pages, in that order.
type arrival struct {
	pages []uint64
	pins  []pager.Pin
	err   error
}

// pass is each of a memory with fewer frames than pages. Two goroutines bring sets and send them away, and have ended when it returns.
func (m *memory) pass(ctx context.Context, sets [][]uint64, how passage, f func(i int) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	largest := 1
	for _, set := range sets {
		largest = max(largest, len(set))
	}
	most := max(1, m.usable()/largest) // sets that have frames at once
	slots := make(chan struct{}, most) // taken by those that have; as many have room in the other channels
	come, gone := make(chan arrival, most), make(chan []uint64, most)
	var work sync.WaitGroup
	work.Go(func() {
		defer close(come)
		for _, set := range sets {
			select {
			case slots <- struct{}{}:
			case <-inner.Done():
				return
			}
			if inner.Err() != nil {
				return
			}
			a := m.bring(inner, set)
			if come <- a; a.err != nil {
				return
			}
		}
	})
	work.Go(func() {
		left := len(sets)
		for set := range gone {
			if left--; how == sweep && left >= most {
				// What stays for want of room below keeps the pages that need its frames from coming, which say why.
				_ = m.pager.DoneWith(inner, onDevice, set...)
			}
			<-slots
		}
	})
	done, err := m.meet(ctx, come, gone, f)
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
	return classed(err)
}

// meet calls f for each set that comes, until one fails or ctx ends, and says for how many.
func (m *memory) meet(ctx context.Context, come <-chan arrival, gone chan<- []uint64, f func(i int) error) (done int, err error) {
	for a := range come {
		if err = context.Cause(ctx); err == nil { // which is why a set has not come, too
			err = a.err
		}
		if err == nil {
			for i, page := range a.pages {
				m.set(page, a.pins[i].Frame())
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

// bring holds a set on the device for writing. Pages that are not there are made.
func (m *memory) bring(ctx context.Context, set []uint64) (a arrival) {
	var fresh []uint64
	for _, page := range set {
		if m.made[page] {
			a.pages = append(a.pages, page)
		} else {
			fresh = append(fresh, page)
		}
	}
	if a.pins, a.err = m.pager.PinAll(ctx, a.pages, onDevice, pager.ForWriting, nil); a.err != nil {
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
