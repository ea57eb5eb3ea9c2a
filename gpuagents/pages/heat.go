package pages

import (
	"cmp"
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// heat chooses the pages that belong on the device when observations step pages in place. The
// promotion of the pager does not fit: it counts the ticks in which a page was used, which large
// batches make equal for all pages, and it waits for frames that are never freed.
type heat struct {
	seen    []uint32 // by page: observations, halved every heatHalfLife batches
	up      []bool   // by page: it was on the device when it was last pinned, and was not moved down since
	batches int      // batches since seen was halved
	hand    int      // the page where the next search for cold pages begins

	stop  context.CancelFunc // ends the running exchange
	ended chan struct{}      // closed when the exchange has ended; nil before the first one

	bytes int // bytes of a page that take the bus as long as an observation; 0: busBytes
}

// These numbers are computed, and not yet measured on a GPU.
const (
	// busBytes is how many bytes of a copied page take the bus as long as the step of an agent over
	// the bus: some 250 bytes (RFC 0011) in pieces of 32 and 64, which a bus carries at half its
	// rate. A page of 2 MiB with 4,096 observations in a batch is therefore better paged in first.
	busBytes = 512
	// BusGroup is the weight of an observation that steps a group over the bus, relative to its
	// state: the whole state is read and written, at half the rate of a copy. A page is therefore
	// better paged in first when half of its groups are observed.
	BusGroup = 2
	// heatHalfLife is the number of batches after which observations count half. It is long
	// compared with the interval at which a page recurs in batches, and short compared with the
	// life of a stream: half a second in batches of 65,536, at the rate of a swarm whose pages are
	// all on the device.
	heatHalfLife = 64
	// heatPayback is the number of half-lives in which an exchange of two pages must save as much
	// of the bus as it takes.
	heatPayback = 32
	// exchangePages is the maximum number of pages that are exchanged after a batch: two groups of
	// the pager. At 2 MiB that takes 1.3 ms of the bus; a batch of 65,536 takes at least 8 ms.
	exchangePages = 2 * groupPages
)

func (h *heat) worthPageIn(observations uint32, pageBytes int) bool {
	return int64(observations)*int64(h.perObservation()) >= int64(pageBytes)
}

// perObservation returns the bus cost of one observation over the bus, in bytes of a page copy.
func (h *heat) perObservation() int { return cmp.Or(h.bytes, busBytes) }

// CountAccesses counts the observations of a set whose batch was applied.
func (m *Memory) CountAccesses(s Set) {
	for i, n := range s.counts {
		seen := &m.heat.seen[s.Pages[i]]
		*seen = max(*seen+n, *seen) // saturated: no swarm is observed so often that the rest matters
	}
}

// Exchange moves cold pages of the device down and pages hot ones in, in the background, after a
// batch of these sets. It does nothing while an earlier exchange runs.
func (m *Memory) Exchange(sets []Set) {
	h := &m.heat
	if m.resident || m.hostFrames() == 0 {
		return
	}
	if h.batches++; h.batches == heatHalfLife {
		h.batches = 0
		for page := range h.seen {
			h.seen[page] /= 2
		}
	}
	if h.ended != nil {
		select {
		case <-h.ended:
		default:
			return
		}
	}
	var hot []uint64
	least := m.pageBytes / h.perObservation() / heatPayback
	for _, s := range sets {
		for _, page := range s.Pages {
			if !h.up[page] && int(h.seen[page]) >= max(1, least) {
				hot = append(hot, page)
			}
		}
	}
	if len(hot) == 0 {
		return
	}
	slices.SortFunc(hot, func(a, b uint64) int { return int(h.seen[b]) - int(h.seen[a]) })
	_, high := watermarks(m.frames.Count(), m.resident)
	free := max(0, m.pager.Stats().Memory[onDevice].Free-high)
	hot = hot[:min(len(hot), max(exchangePages, min(free, setPages)))]
	cold := h.cold(len(hot) - free)
	n := min(free, len(hot))
	var down []uint64
	for _, page := range cold {
		if n == len(hot) {
			break
		}
		// Twice the observations: a difference by chance is smaller.
		seen := int(h.seen[page])
		if int(h.seen[hot[n]]) < max(2*seen+1, seen+least) {
			break
		}
		h.up[page] = false
		down = append(down, page)
		n++
	}
	hot = hot[:n]
	if n == 0 {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.ended = stop, make(chan struct{})
	go func(p *pager.Pager, ended chan struct{}) {
		defer close(ended)
		defer stop()
		// A page that cannot move stays where it is, and is observed there.
		_ = p.DoneWith(ctx, onDevice, down...)
		_ = p.WillNeed(onDevice, hot...)
	}(m.pager, h.ended)
}

// cold returns up to n pages of the device with the fewest observations, the coldest first. A call
// examines the next 8n pages only.
func (h *heat) cold(n int) (pages []uint64) {
	if n <= 0 {
		return nil
	}
	for range h.up {
		if h.up[h.hand] {
			pages = append(pages, uint64(h.hand))
		}
		h.hand = (h.hand + 1) % len(h.up)
		if len(pages) == 8*n {
			break
		}
	}
	slices.SortFunc(pages, func(a, b uint64) int { return int(h.seen[a]) - int(h.seen[b]) })
	return pages[:min(n, len(pages))]
}

func (h *heat) endExchange() {
	if h.ended != nil {
		h.stop()
		<-h.ended
		h.ended = nil
	}
}

// stopExchange ends the running exchange and forgets all observations.
func (h *heat) stopExchange() {
	h.endExchange()
	clear(h.seen)
	clear(h.up)
	h.batches = 0
}

func (m *Memory) setFrame(page uint64, tier, frame int) {
	m.heat.up[page] = tier == onDevice
	if tier == inHost {
		frame |= 1 << kernels.AgentHostBit
	}
	m.table.set(page, frame)
}
