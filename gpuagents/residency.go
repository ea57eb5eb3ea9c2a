package gpuagents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
)

// A swarm with residency: gpu has a frame on the device for each page, from its creation to its end: no other swarm gets these frames, no page
// sinks, and the shard is not parked. That is claimed page by page, and the claims are compared with the device while the swarm is served.

// ErrResidency marks a page that is not on the device as it is claimed to be.
var ErrResidency = errors.New("a page is not on the device as claimed")

const (
	// defaultResidencyCheck is how often a shard compares claims.
	defaultResidencyCheck = 5 * time.Second
	// claimsAtOnce is how many pages a comparison reads at most, the next ones the next time: 64 of 2 MiB are below a millisecond of a GPU, and
	// some 20 ms of one core.
	claimsAtOnce = 64
)

// claims are the checksums of pages on the device. A claim holds as long as nothing was written to the page: since the last entry of the log
// that was applied, or since the last checkpoint. The loop of the shard uses it.
type claims struct {
	sums map[int]claim // by page
	next int           // the page from which the next comparison goes on
}

type claim struct {
	sum   uint64
	at    uint64 // the entry that the page is of
	clean bool   // it was not dirty then
}

// claimed has pages claim their places, if the spec says that they keep them.
func (m *memory) claimed(spec *swarm.Spec) {
	if spec.Residency == swarm.ResidencyGPU {
		m.claims = &claims{sums: map[int]claim{}}
	}
}

// written drops the claims of pages that have changed, before a checkpoint makes them clean.
func (c *claims) written(dirty []bool) {
	if c != nil {
		maps.DeleteFunc(c.sums, func(page int, _ claim) bool { return dirty[page] })
	}
}

// audit compares the claims of some pages with the device, and has those without one claim what they hold now. at is the last entry that was applied; nothing is under way
// on the device. An error that is an ErrResidency names the pages that are not as claimed.
func (m *memory) audit(ctx context.Context, at uint64) (checked int, err error) {
	c := m.claims
	if c == nil || m.pager == nil {
		return 0, nil
	}
	var wrong []string
	frames := map[int]int{} // by page: where the pager has it
	for _, h := range m.held {
		frames[int(h.Page())] = h.Frame()
	}
	var pages []int
	for i := range m.made {
		page := (c.next + i) % len(m.made)
		if !m.made[page] {
			continue
		}
		frame, held := frames[page]
		if !held || int(m.table[page]) != frame {
			wrong = append(wrong, fmt.Sprintf("page %d is in frame %d (held: %v), kernels look for it in %#x", page, frame, held, m.table[page]))
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
	var fresh []int // without a claim that holds. Others keep theirs: between two looks the page may be damaged
	for _, page := range pages {
		if old, ok := c.sums[page]; ok && (old.at == at || old.clean && !m.dirty[page]) {
			compare = append(compare, device.Claim{Name: fmt.Sprintf("page %d", page), Buffer: m.arena, Off: offset(page), Bytes: int64(m.pageBytes), Sum: old.sum})
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
		return h.Claims, fmt.Errorf("%w: %w: %s", ErrDevice, ErrResidency, strings.Join(wrong, "; "))
	}
	for _, page := range fresh {
		sum, err := device.Checksum(ctx, m.dev, m.arena, offset(page), int64(m.pageBytes))
		if err != nil {
			return h.Claims, classed(err)
		}
		c.sums[page] = claim{sum: sum, at: at, clean: !m.dirty[page]}
	}
	return h.Claims, nil
}

// violations are the shards of which a comparison has found pages that were not as claimed.
type violations struct {
	mu sync.Mutex
	of map[ShardID]violation
}

type violation struct {
	err  error
	seen time.Time
}

// violationShown is how long a violation is shown. The shard is mended long before: whoever looks now and then is to see it.
const violationShown = time.Minute

// set notes what a comparison has found of a shard.
func (v *violations) set(id ShardID, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[ShardID]violation{}
	}
	v.of[id] = violation{err, time.Now()}
}

// Residency returns an ErrResidency for a minute after pages of a swarm with residency: gpu were not on the device as claimed. Their shards have
// started again from their checkpoints.
func (a *Agent) Residency() error {
	a.violations.mu.Lock()
	defer a.violations.mu.Unlock()
	ids := slices.SortedFunc(maps.Keys(a.violations.of), func(x, y ShardID) int {
		return strings.Compare(fmt.Sprint(x.Swarm, x.Shard), fmt.Sprint(y.Swarm, y.Shard))
	})
	var errs []error
	for _, id := range ids {
		if v := a.violations.of[id]; time.Since(v.seen) < violationShown {
			errs = append(errs, fmt.Errorf("swarm %s, shard %d: %w", id.Swarm, id.Shard, v.err))
		} else {
			delete(a.violations.of, id)
		}
	}
	return errors.Join(errs...)
}

// audit compares claims of the shard. An error starts the shard again from its checkpoint.
func (t *turn) audit(ctx context.Context) error {
	checked, err := t.state.pages().audit(ctx, t.at)
	t.a.o.Metrics.audited(t.cell, checked, errors.Is(err, ErrResidency))
	if errors.Is(err, ErrResidency) {
		t.a.violations.set(t.id, err)
		t.log.Error("pages are not on the device as claimed, the shard starts again from its checkpoint", "error", err)
	}
	return err
}
