package pager

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// stampUnit is the resolution of the ages of pages in the store: 27 bits of it are a year.
const stampUnit = 250 * time.Millisecond

// stamp is the time in units of stampUnit since Open, from 1 on.
func (p *Pager) stamp() uint32 { return uint32(p.clock.Load()/int64(stampUnit/tick)) + 1 }

// units rounds a duration to the unit of stamps.
func units(d time.Duration) uint32 { return uint32(min(d/stampUnit, time.Duration(markTime))) }

// window is the age up to which a page of a tier of the store would belong into the tier above.
func (p *Pager) window(tier int) uint32 {
	if tier == 0 {
		return 0
	}
	return units(p.disks[tier-1].MaxIdle)
}

// Marks of the room in a tier of the store: above full, its oldest pages move down until it is
// filled to calm.
const (
	full = 0.90
	calm = 0.85
)

// sinkBatch is how many pages move between tiers of the store before the moves are settled, which
// costs a sync of each segment and of the index: at 2 MiB that is 128 MiB, 50 ms of a disk, against
// 3 ms.
const sinkBatch = 64

// Filler is a Store that says how full its tiers are. Without it, a tier of the store is filled
// until it refuses pages.
type Filler interface {
	// Fill is the part of a tier's capacity that is in use, 0 to 1.
	Fill(tier int) float64
}

// ager moves pages between the tiers of the store: down by age and by room, and up when they are
// read again.
type ager struct {
	p     *Pager
	moves []agerMove
	ages  [][64]int // by tier: pages by the length in bits of their age
	cut   []uint32  // by tier: the age from which pages make room, or none
	quota []int     // by tier: how many pages are to make room
}

type agerMove struct {
	page uint64
	to   int
	why  Reason
}

// noCut stands for no age at all.
const noCut = ^uint32(0)

// age is the goroutine that moves pages between the tiers of the store.
func (p *Pager) age(ctx context.Context) {
	least := time.Duration(0)
	for _, d := range p.disks[:len(p.disks)-1] {
		if d.MaxIdle > 0 && (least == 0 || d.MaxIdle < least) {
			least = d.MaxIdle
		}
	}
	filler, _ := p.opts.Store.(Filler)
	if least == 0 && filler == nil {
		return
	}
	// An eighth of the shortest threshold late at most; a look at ten million pages takes a tenth
	// of a second.
	period := 5 * time.Second
	if least > 0 {
		period = min(max(least/8, stampUnit), period)
	}
	a := &ager{
		p: p, ages: make([][64]int, len(p.disks)), cut: make([]uint32, len(p.disks)),
		quota: make([]int, len(p.disks)),
	}
	for i := range a.cut {
		a.cut[i] = noCut
	}
	a.seed(ctx)
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			a.round(ctx)
			a.room(filler)
		case <-ctx.Done():
			return
		}
	}
}

// seed takes in the pages that were in the store at the start, as if they had sunk just now.
func (a *ager) seed(ctx context.Context) {
	for _, page := range a.p.opts.Store.Pages() {
		if ctx.Err() != nil {
			return
		}
		if tier, err := a.p.opts.Store.Where(page); err == nil {
			a.p.recent.seed(page, tier, a.p.stamp())
		}
	}
}

// round looks at every page once and moves those that are in the wrong tier.
func (a *ager) round(ctx context.Context) {
	p, now := a.p, a.p.stamp()
	clear(a.ages)
	last := len(p.disks) - 1
	blocked := make([]bool, len(p.disks)) // tiers that take nothing at the moment
	for shard := 0; ; shard++ {
		a.moves = a.moves[:0]
		there := p.recent.each(shard, func(page uint64, m mark) {
			tier, old := min(m.tier(), last), now-min(m.at(), now)
			a.ages[tier][bitLen(old)]++
			down := tier
			for down < last && p.disks[down].MaxIdle > 0 && old >= units(p.disks[down].MaxIdle) {
				down++ // The thresholds count from the last use, so an old page may pass several.
			}
			switch {
			case down > tier:
				a.moves = append(a.moves, agerMove{page, down, ByAge})
			case tier < last && old >= a.cut[tier] && a.quota[tier] > 0:
				a.quota[tier]--
				a.moves = append(a.moves, agerMove{page, tier + 1, ByWatermark})
			case tier > 0 && m.hot() && old < p.window(tier):
				a.moves = append(a.moves, agerMove{page, tier - 1, ByHeat})
			}
		})
		if !there {
			return
		}
		for len(a.moves) > 0 {
			n := min(len(a.moves), sinkBatch)
			if !a.move(ctx, a.moves[:n], blocked) {
				return
			}
			a.moves = a.moves[n:]
		}
	}
}

// bitLen sorts ages into 32 classes.
func bitLen(v uint32) int {
	n := 0
	for ; v > 0; v >>= 1 {
		n++
	}
	return n
}

// move moves a batch and settles it. It says whether the Pager is still open.
func (a *ager) move(ctx context.Context, moves []agerMove, blocked []bool) bool {
	p := a.p
	moved := 0
	for _, mv := range moves {
		if blocked[mv.to] || p.resident(mv.page) {
			continue // Its time counts from when it leaves memory again.
		}
		if !p.giveWay(ctx) {
			return false
		}
		from, err := p.opts.Store.Where(mv.page)
		if err != nil || from == mv.to || mv.why != ByHeat && mv.to < from {
			if err == nil {
				p.recent.moved(mv.page, from)
			}
			continue
		}
		if p.disks[from].breaker.open(time.Now()) || p.disks[mv.to].breaker.open(time.Now()) {
			continue
		}
		c, err := p.begin(ctx, callMove, p.disks[mv.to], mv.page, nil)
		if err == nil {
			_, err = p.end(c)
		}
		switch {
		case err == nil:
			// A copy of a page that was committed meanwhile is of no use: it stays where it was,
			// for the next round.
			at, werr := p.opts.Store.Where(mv.page)
			if werr != nil {
				continue
			}
			p.recent.moved(mv.page, at)
			if at != mv.to {
				continue
			}
			moved++
			p.count(len(p.memory)+from, len(p.memory)+mv.to, mv.why)
		case errors.Is(err, tiers.ErrFull), errors.Is(err, tiers.ErrUnavailable):
			blocked[mv.to] = true
		}
	}
	if moved > 0 {
		// Settle makes moves durable so that the old slots come free. What fails stays pending, for
		// the next one.
		_ = p.bounded(ctx, func() error { return p.opts.Store.Settle(ctx) })
	}
	return ctx.Err() == nil
}

// room looks how full the tiers are and sets the ages from which pages make room in the next round.
func (a *ager) room(filler Filler) {
	if filler == nil {
		return
	}
	for tier := range len(a.p.disks) - 1 {
		a.cut[tier] = noCut
		fill := filler.Fill(tier)
		if fill <= full {
			continue
		}
		total := 0
		for _, n := range a.ages[tier] {
			total += n
		}
		need := int(float64(total)*(fill-calm)/fill) + 1
		a.quota[tier] = need
		for class := len(a.ages[tier]) - 1; class >= 0 && need > 0; class-- {
			if need -= a.ages[tier][class]; a.ages[tier][class] > 0 {
				a.cut[tier] = uint32(1) << max(class-1, 0)
				if class == 0 {
					a.cut[tier] = 0
				}
			}
		}
	}
}

// resident says whether a page is in a frame or on its way.
func (p *Pager) resident(page uint64) bool {
	s := p.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, moving := s.moving[page]
	return moving || s.pages[page] != nil
}
