package pages

import (
	"cmp"
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// heat says which pages belong on the device when observations step pages where they are. The pager's own promotion does not do: it counts
// in how many of its ticks a page was in use, which large batches make the same for all, and it waits for frames that nobody frees.
type heat struct {
	seen    []uint32 // by page: observations, of which half are forgotten every heatBatches batches
	up      []bool   // by page: it was on the device when it was last pinned, and has not been sent down since
	batches int      // batches since half was forgotten
	hand    int      // the page where the next look for cold ones begins

	stop  context.CancelFunc // ends the exchange that runs
	ended chan struct{}      // is closed then; nil before the first one

	bytes int // of a page that take the bus as long as an observation does; 0: busBytes
}

// The numbers of heat are computed, and not yet measured on a GPU.
const (
	// busBytes of a page take the bus as long as an observation of an agent does that is stepped over it: some 250 bytes (RFC 0011) in pieces of 32
	// and 64, which a bus carries at half its rate. So a page of 2 MiB with 4,096 observations in a batch is better brought up first.
	busBytes = 512
	// busGroup is how often the state of a group is counted for an observation of it that is stepped over the bus: it is read and written as a
	// whole, at half the rate of a copy as that of agents is. So a page is better brought up first where half its groups are observed.
	BusGroup = 2
	// heatBatches is long beside the chance by which a page is in a batch or not, and short beside the life of a stream: half a second in
	// batches of 65,536 at the rate of a swarm whose pages are all on the device.
	heatHalfLife = 64
	// heatPays is in how many times heatBatches batches an exchange of two pages is to save as much of the bus as it takes.
	heatPayback = 32
	// exchanged are the pages that go up after a batch at most, for others that go down: two of the pager's groups. At 2 MiB that is
	// 1.3 ms of the bus, beside 8 ms that a batch of 65,536 takes at best.
	exchangePages = 2 * groupPages
)

// worthy says whether a page with so many observations in a batch is brought up before they are made.
func (h *heat) worthPageIn(observations uint32, pageBytes int) bool {
	return int64(observations)*int64(h.perObservation()) >= int64(pageBytes)
}

// perObservation is how many bytes of a page take the bus as long as an observation does that is stepped over it.
func (h *heat) perObservation() int { return cmp.Or(h.bytes, busBytes) }

// warm notes the observations of a set.
func (m *Memory) CountAccesses(s Set) {
	for i, n := range s.counts {
		seen := &m.heat.seen[s.Pages[i]]
		*seen = max(*seen+n, *seen) // no swarm is observed so often that it matters what becomes of the rest
	}
}

// exchange sends pages down from the device and has others brought up, in the background, after a batch that was observed. While an exchange
// runs there is no other.
func (m *Memory) Exchange(sets []Set) {
	h := &m.heat
	if m.resident || m.host == nil {
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
		if n == len(hot) || int(h.seen[hot[n]]) < max(2*int(h.seen[page])+1, int(h.seen[page])+least) { // twice: no chance of a batch
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
		// What cannot go or come stays where it is, and is observed there.
		_ = p.DoneWith(ctx, onDevice, down...)
		_ = p.WillNeed(onDevice, hot...)
	}(m.pager, h.ended)
}

// cold are up to n pages of those on the device that are observed least, of eight times as many that are looked at, the coldest first: the
// next look is at others.
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

// settle ends the exchange that runs, and forgets what was observed.
func (h *heat) stopExchange() {
	if h.ended != nil {
		h.stop()
		<-h.ended
		h.ended = nil
	}
	clear(h.seen)
	clear(h.up)
	h.batches = 0
}

// entry is what the table of frames has of a page that is held.
func (m *Memory) setPlace(page uint64, tier, frame int) {
	m.heat.up[page] = tier == onDevice
	if tier == inHost {
		frame |= 1 << kernels.AgentHostBit
	}
	m.table.set(page, frame)
}
