package shard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/timeline"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// People who look at a shard visit its loop: it draws a part of a picture, or lists some pages,
// between two batches. A visit takes some milliseconds. Looks are made one at a time, an answer is
// shared for lookAge, and after a look the shard rests for lookRest times as long as the look has
// taken: looks take two percent of the time of a shard at most, however many people look.

// visit is what the loop does between two batches.
type visit struct {
	make func(ctx context.Context, t *loop) error
	done chan error // takes one element
}

const (
	lookAge  = 900 * time.Millisecond
	lookRest = 49
	// lookPages is how many pages a visit lists: some milliseconds.
	lookPages = 8192
)

// looks are the last answers to people who look.
type looks struct {
	turn    chan struct{} // has an element while nobody looks
	rest    time.Time     // when the next look may begin
	picture *raster.Picture
	name    string // of the variable that was asked for
	cells   int    // that were asked for
	pages   *PageMap
	binned  int // cells that were asked for
}

// newLooks returns looks that nobody makes.
func newLooks() looks {
	l := looks{turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// visit has the loop call f, and returns its error. It is an ErrNotOpen if the shard is closed
// before that, and the cause of ctx if that ends before the loop has time.
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

// look waits until it is the turn of the caller and known returns nil for an old answer, or the
// shard has rested. It then calls f, which returns how long the loop was held up.
func (s *OpenShard) look(ctx context.Context, known func() bool, f func() (time.Duration, error)) error {
	select {
	case <-s.looks.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { s.looks.turn <- struct{}{} }()
	if known() {
		return nil
	}
	if wait := time.Until(s.looks.rest); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.left:
			return ErrNotOpen
		case <-ctx.Done():
			return ErrResting
		}
	}
	took, err := f()
	s.looks.rest = time.Now().Add(lookRest * took)
	return err
}

// Picture draws a variable of the agents of the shard as at most a number of cells. It is shared
// with others, who asked the same within a second. ErrNotOpen: the shard is parked or over.
// ErrResting: ctx ended while the shard rested from earlier looks. raster.ErrUnknown: it has no such
// variable.
func (s *OpenShard) Picture(ctx context.Context, variable string, cells int) (p *raster.Picture, err error) {
	err = s.look(ctx, func() bool {
		p = s.looks.picture
		return p != nil && s.looks.name == variable && s.looks.cells == cells && time.Since(p.At) < lookAge
	}, func() (took time.Duration, err error) {
		var d *raster.Drawing
		for p = nil; p == nil && err == nil; {
			err = s.visit(ctx, func(ctx context.Context, t *loop) (err error) {
				defer func(began time.Time) { took += time.Since(began) }(time.Now())
				if d == nil {
					if d, err = t.source().Begin(variable, cells); err != nil {
						return err
					}
				}
				p, err = d.Part(ctx)
				return err
			})
		}
		if err == nil {
			s.looks.picture, s.looks.name, s.looks.cells = p, variable, cells
		}
		return took, err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// source returns the source of pictures of the shard.
func (t *loop) source() *raster.Source {
	if t.pictures == nil {
		layout, vars := state.Variables(t.state)
		groups := int(t.state.Info().Agents / int64(layout.Agents))
		t.pictures = raster.New(t.place.Device(), t.state.Memory(), layout, groups, vars)
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
	// Tier has for each cell the index of the tier that most of its pages are in, or NoTier for
	// pages that were never addressed. Idle has the time since the last access of one of them.
	Tier []uint8
	Idle []time.Duration // negative: not known
	At   time.Time
	// Stats are the counters of the pager, since the shard was opened.
	Stats pager.Stats
}

// NoTier is the tier of pages that were never addressed.
const NoTier = 255

// PageMap returns where the pages of the shard are, as at most a number of cells; see Picture.
func (s *OpenShard) PageMap(ctx context.Context, cells int) (m *PageMap, err error) {
	err = s.look(ctx, func() bool {
		m = s.looks.pages
		return m != nil && s.looks.binned == cells && time.Since(m.At) < lookAge
	}, func() (took time.Duration, err error) {
		m = &PageMap{Pages: 1}
		places := []pages.Place{}
		for len(places) < m.Pages && err == nil {
			err = s.visit(ctx, func(_ context.Context, t *loop) error {
				defer func(began time.Time) { took += time.Since(began) }(time.Now())
				at, look := len(places), pages.LookAt(t.state.Memory())
				m.Pages, m.PageBytes, m.Tiers = t.state.Memory().Count(), t.state.Memory().PageBytes(), look.Tiers()
				places = slices.Grow(places, min(lookPages, m.Pages-at))[:min(at+lookPages, m.Pages)]
				look.Places(at, places[at:])
				if p := t.state.Memory().Pager(); p != nil && len(places) == m.Pages {
					m.Stats = p.Stats()
				}
				return nil
			})
		}
		if err != nil {
			return took, err
		}
		m.bin(places, max(1, cells))
		m.At = time.Now()
		s.looks.pages, s.looks.binned = m, cells
		return took, nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// bin fills the map with the places of all pages.
func (m *PageMap) bin(places []pages.Place, cells int) {
	m.Counts = make([]int, len(m.Tiers))
	m.Per = max(1, (len(places)+cells-1)/cells)
	counts := make([]int, len(m.Tiers)+1) // of a cell; behind the tiers: of pages that do not exist
	for cell := range slices.Chunk(places, m.Per) {
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

// trace adds the spans of the stages before the loop, of a batch that is applied now.
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
	t.track.Add(timeline.Fetch, last.fetched.Add(-fetch), fetch, bytes)
	if !last.decoded.IsZero() {
		t.track.Add(timeline.Decode, last.decoded.Add(-decode), decode, bytes)
	}
}
