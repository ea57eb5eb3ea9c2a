package shard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// The loop of a shard makes its views between two batches: a visit draws a part of a picture or
// lists some pages, in some milliseconds. Views are made one at a time, an answer is shared for
// viewAge, and after a view the next one waits for viewPause times its duration. So views take at
// most two percent of the time of a shard, however many people ask for them.

type visit struct {
	make func(ctx context.Context, t *loop) error
	done chan error // takes one element
}

const (
	viewAge   = 900 * time.Millisecond
	viewPause = 49
	// viewPages is how many pages a visit lists: some milliseconds.
	viewPages = 8192
)

type views struct {
	idle    chan struct{} // has an element while no view is made
	next    time.Time     // when the next view may be made
	picture lastView[raster.Picture]
	pages   lastView[PageMap]
}

type lastView[T any] struct {
	answer   *T
	question string
	at       time.Time
}

func newViews() views {
	v := views{idle: make(chan struct{}, 1)}
	v.idle <- struct{}{}
	return v
}

// visit has the loop call f, and returns its error. The error is ErrNotOpen if the shard is closed
// before the call, and the cause of ctx if it ends before the call.
func (s *OpenShard) visit(ctx context.Context, f func(ctx context.Context, t *loop) error) error {
	v := visit{f, make(chan error, 1)}
	select {
	case s.visits <- v:
		return <-v.done // a few milliseconds
	case <-s.left:
		return ErrNotOpen
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// view returns the last answer if it is recent and answers the same question. Otherwise it waits
// until the pause after the last view is over, and calls draw, which visits the loop. One call runs
// at a time.
func view[T any](ctx context.Context, s *OpenShard, last *lastView[T], question string,
	draw func(visit func(f func(ctx context.Context, t *loop) error) error) (*T, error),
) (*T, error) {
	select {
	case <-s.views.idle:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { s.views.idle <- struct{}{} }()
	if last.question == question && time.Since(last.at) < viewAge {
		return last.answer, nil
	}
	if wait := time.Until(s.views.next); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.left:
			return nil, ErrNotOpen
		case <-ctx.Done():
			return nil, ErrTooSoon
		}
	}
	took := time.Duration(0)
	answer, err := draw(func(f func(ctx context.Context, t *loop) error) error {
		return s.visit(ctx, func(ctx context.Context, t *loop) error {
			defer func(began time.Time) { took += time.Since(began) }(time.Now())
			return f(ctx, t)
		})
	})
	now := time.Now()
	s.views.next = now.Add(viewPause * took)
	if err != nil {
		return nil, err
	}
	*last = lastView[T]{answer, question, now}
	return answer, nil
}

// Picture draws a variable of the agents of the shard as at most a number of cells. It is shared
// with others, who asked the same within a second. ErrNotOpen: the shard is parked or over.
// ErrTooSoon: ctx ended during the pause after an earlier view. raster.ErrUnknown: it has no
// such variable.
func (s *OpenShard) Picture(ctx context.Context, variable string, cells int) (*raster.Picture, error) {
	return view(ctx, s, &s.views.picture, fmt.Sprint(cells, " ", variable), func(
		visit func(f func(ctx context.Context, t *loop) error) error,
	) (p *raster.Picture, err error) {
		var d *raster.Drawing
		for p == nil && err == nil {
			err = visit(func(ctx context.Context, t *loop) (err error) {
				if d == nil {
					if d, err = t.source().Begin(variable, cells); err != nil {
						return err
					}
				}
				p, err = d.Part(ctx)
				return err
			})
		}
		return p, err
	})
}

func (t *loop) source() *raster.Source {
	if t.pictures == nil {
		layout, vars := state.Variables(t.state)
		groups := int(t.state.Info().Agents / int64(layout.Agents))
		t.pictures = raster.New(t.slot.Device(), t.state.Memory(), layout, groups, vars)
	}
	return t.pictures
}

// PageMap says where the pages of a shard are. It must not be changed.
type PageMap struct {
	// Pages is the number of pages, Per how many a cell has, and PageBytes the size of one.
	Pages, Per, PageBytes int
	// Tiers are the names of the tiers, the fastest first, and Counts the pages in each.
	Tiers  []string
	Counts []int
	// Tier has for each cell the index of the tier that holds most of its pages, or NoTier for
	// pages that were never addressed. Idle has the time since the last access of any page of the
	// cell.
	Tier []uint8
	Idle []time.Duration // negative: not known
	At   time.Time
	// Stats are the counters of the pager, since the shard was opened.
	Stats pager.Stats
}

// NoTier is the tier of pages that were never addressed.
const NoTier = 255

// PageMap returns where the pages of the shard are, as at most a number of cells; see Picture.
func (s *OpenShard) PageMap(ctx context.Context, cells int) (*PageMap, error) {
	return view(ctx, s, &s.views.pages, fmt.Sprint(cells), func(
		visit func(f func(ctx context.Context, t *loop) error) error,
	) (*PageMap, error) {
		m := &PageMap{Pages: 1}
		locations := []pages.Location{}
		for len(locations) < m.Pages {
			if err := visit(func(_ context.Context, t *loop) error {
				at, memory := len(locations), t.state.Memory()
				peek := memory.Peek()
				m.Pages, m.PageBytes, m.Tiers = memory.Count(), memory.PageBytes(), peek.Tiers()
				locations = slices.Grow(locations, min(viewPages, m.Pages-at))[:min(at+viewPages, m.Pages)]
				peek.Locations(at, locations[at:])
				if p := memory.Pager(); p != nil && len(locations) == m.Pages {
					m.Stats = p.Stats()
				}
				return nil
			}); err != nil {
				return nil, err
			}
		}
		m.bin(locations, max(1, cells))
		m.At = time.Now()
		return m, nil
	})
}

func (m *PageMap) bin(locations []pages.Location, cells int) {
	m.Counts = make([]int, len(m.Tiers))
	m.Per = max(1, (len(locations)+cells-1)/cells)
	counts := make([]int, len(m.Tiers)+1) // of a cell by tier, and then of pages that do not exist
	for cell := range slices.Chunk(locations, m.Per) {
		clear(counts)
		idle := time.Duration(-1)
		for _, p := range cell {
			if p.Tier < 0 || int(p.Tier) >= len(m.Tiers) {
				counts[len(m.Tiers)]++
				continue
			}
			m.Counts[p.Tier]++
			counts[p.Tier]++
			if p.Idle >= 0 && (idle < 0 || p.Idle < idle) {
				idle = p.Idle
			}
		}
		most := 0
		for i, n := range counts {
			if cmp.Compare(n, counts[most]) > 0 {
				most = i
			}
		}
		if most == len(m.Tiers) {
			most, idle = NoTier, -1
		}
		m.Tier, m.Idle = append(m.Tier, uint8(most)), append(m.Idle, idle)
	}
}

// trace adds the spans of the stages before the loop for a batch that is applied now.
func (t *loop) trace(entries []logEntry) {
	first, last := &entries[0], &entries[len(entries)-1]
	t.track.Of(first.Seq, last.Seq)
	if t.track == nil {
		return
	}
	bytes, fetch, decode := 0, time.Duration(0), time.Duration(0) // without the time between two entries
	for i := range entries {
		e := &entries[i]
		bytes, fetch, decode = bytes+len(e.Data), fetch+e.fetched.Sub(e.fetching), decode+e.decoded.Sub(e.decoding)
	}
	t.track.Add(gpubatch.StageFetch, last.fetched.Add(-fetch), fetch, bytes)
	if !last.decoded.IsZero() {
		t.track.Add(gpubatch.StageDecode, last.decoded.Add(-decode), decode, bytes)
	}
}
