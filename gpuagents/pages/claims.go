package pages

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// A swarm with residency: gpu has a frame on the device for each page, from its creation to its
// end: no other swarm gets these frames, no page moves down, and the shard is not parked. Each page
// claims its frame, and the claims are compared with the device while the swarm is served.

// claims are the checksums of pages on the device. A claim holds until the page is written: since
// the last applied entry, or since the last checkpoint. The loop of the shard uses it.
type claims struct {
	sums map[int]claim // by page
	next int           // the page where the next comparison begins
}

type claim struct {
	sum   uint64
	at    uint64 // the entry after which the page had this sum
	clean bool   // it was not dirty then
}

// written drops the claims of changed pages. It is called before a checkpoint makes them clean.
func (c *claims) written(dirty []bool) {
	if c != nil {
		maps.DeleteFunc(c.sums, func(page int, _ claim) bool { return dirty[page] })
	}
}

// Audit compares the claims of pages with the device, claimsAtOnce at a time, until auditTime is
// over or each page was compared, and makes claims for pages without one. The next audit continues
// with the next pages. at is the last applied entry. No work may be under way on the device.
// checked is the number of compared claims. An ErrResidency names the pages that are not as
// claimed.
func (m *Memory) Audit(ctx context.Context, at uint64) (checked int, err error) {
	if m.claims == nil || m.pager == nil {
		return 0, nil
	}
	for begin, seen := time.Now(), 0; ; {
		pages, compared, err := m.claims.audit(ctx, m, at)
		checked, seen = checked+compared, seen+pages
		if err != nil || pages < claimsAtOnce || seen >= len(m.made) || time.Since(begin) >= auditTime {
			return checked, err
		}
	}
}

// audit is Memory.Audit for the next claimsAtOnce pages of m. audited is the number of these pages.
func (c *claims) audit(ctx context.Context, m *Memory, at uint64) (audited, compared int, err error) {
	var wrong []string
	frames := map[int]int{} // by page: where the pager holds it
	for _, h := range m.pins {
		frames[int(h.Page())] = h.Frame()
	}
	var pages []int
	for i := range m.made {
		page := (c.next + i) % len(m.made)
		if !m.made[page] {
			continue
		}
		frame, held := frames[page]
		if !held || int(m.table.frames[page]) != frame {
			wrong = append(wrong, fmt.Sprintf("page %d is in frame %d (held: %v), kernels look for it in %#x", page,
				frame, held, m.table.frames[page]))
			continue
		}
		if pages = append(pages, page); len(pages) == claimsAtOnce {
			break
		}
	}
	if len(pages) > 0 {
		c.next = (pages[len(pages)-1] + 1) % len(m.made)
	}
	offset := func(page int) int64 { return int64(frames[page]) * int64(m.pageBytes) }
	var compare []device.Claim
	var fresh []int // without a valid claim. Others keep theirs: between two comparisons a page may be damaged
	for _, page := range pages {
		if old, ok := c.sums[page]; ok && (old.at == at || old.clean && !m.dirty[page]) {
			compare = append(compare, device.Claim{
				Name: fmt.Sprintf("page %d", page), Buffer: m.arena, Off: offset(page), Bytes: int64(m.pageBytes),
				Sum: old.sum,
			})
		} else {
			fresh = append(fresh, page)
		}
	}
	var h device.Health
	h.CheckClaims(ctx, m.dev, compare)
	if h.State == device.Failed {
		wrong = append(wrong, h.Reasons...)
	}
	if len(wrong) > 0 {
		err := fmt.Errorf("%w: %w: %s", gpubatch.ErrDevice, ErrResidency, strings.Join(wrong, "; "))
		return len(pages), h.Claims, err
	}
	regions := make([]device.Region, len(fresh))
	for i, page := range fresh {
		regions[i] = device.Region{Buffer: m.arena, Off: offset(page), Bytes: int64(m.pageBytes)}
	}
	sums, err := device.Checksums(ctx, m.dev, regions)
	if err != nil {
		return len(pages), h.Claims, gpubatch.Mark(err)
	}
	for i, page := range fresh {
		c.sums[page] = claim{sum: sums[i], at: at, clean: !m.dirty[page]}
	}
	return len(pages), h.Claims, nil
}

const (
	// claimsAtOnce is the number of pages that are compared at once at most. 64 pages of 2 MiB take
	// less than a millisecond of a GPU, and some 20 ms of a core.
	claimsAtOnce = 64
	// auditTime is the time after which an audit takes no more pages. The shard waits that long.
	auditTime = 10 * time.Millisecond
)
