package pager

import (
	"context"
	"errors"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// The watermarks of a tier of the store, as parts of its capacity: above full, its oldest pages
// move down until it is filled to calm.
const (
	full = 0.90
	calm = 0.85
)

// sinkBatch is the number of pages that move between tiers of the store before the moves are
// settled, which costs a sync of each segment and of the index. With pages of 2 MiB it is 128 MiB,
// which take a disk 50 ms, against 3 ms for the syncs.
const sinkBatch = 64

// Filler is a Store that knows how full its tiers are. Tiers of other stores are filled until they
// refuse pages.
type Filler interface {
	// Fill returns the part of a tier's capacity that is in use, 0 to 1.
	Fill(tier int) float64
}

// aging is the background work of the store's tiers: it moves pages down by age and by room, and up
// when they are read again soon. One goroutine uses it.
type aging struct {
	table  *table
	store  tiers.Store
	calls  *storeCaller
	disks  []Disk // as long as calls.Disks
	ages   *ageTable
	clock  *clock
	demand *demand
	moved  *migrations
	above  int // the number of memory tiers
	filler Filler
	period time.Duration
	rounds rounds
	seeded bool

	// The state of a round.
	moves   []agingMove
	classes [][64]int // by tier: pages by the length in bits of their age
	cut     []uint32  // by tier: the age from which pages make room, or none
	quota   []int     // by tier: the number of pages that are to make room
}

type agingMove struct {
	page uint64
	to   int
	why  Reason
}

// noCut is an age that no page reaches.
const noCut = ^uint32(0)

// newAging returns the aging of a Pager; nil if pages never move: there is no store, or no tier has
// a threshold and the store is no Filler.
func newAging(p *Pager) *aging {
	if p.store == nil {
		return nil
	}
	a := &aging{
		table: &p.table, store: p.store, calls: p.calls, disks: p.opts.Disks, ages: &p.ages, clock: &p.clock,
		demand: &p.demand, moved: &p.move.moved, above: len(p.memory),
	}
	a.filler, _ = a.store.(Filler)
	least := time.Duration(0)
	for _, d := range a.disks[:len(a.disks)-1] {
		if d.MaxIdle > 0 && (least == 0 || d.MaxIdle < least) {
			least = d.MaxIdle
		}
	}
	if least == 0 && a.filler == nil {
		return nil
	}
	// A page moves an eighth of the shortest threshold late at most. A round over ten million pages
	// takes a tenth of a second.
	if a.period = 5 * time.Second; least > 0 {
		a.period = min(max(least/8, stampUnit), a.period)
	}
	n := len(a.disks)
	a.classes, a.cut, a.quota = make([][64]int, n), make([]uint32, n), make([]int, n)
	for i := range a.cut {
		a.cut[i] = noCut
	}
	a.rounds.begun, a.rounds.round = p.background, a.next
	return a
}

// next makes a round; the first one only records the pages that are there.
func (a *aging) next(ctx context.Context) {
	if !a.seeded {
		a.seeded = true
		a.seed(ctx)
	} else {
		a.round(ctx)
		a.room(a.filler)
	}
	a.rounds.next.Store(a.clock.now() + int64(a.period/tick))
}

// seed records the pages that were in the store at the start, as if they had left memory just now.
func (a *aging) seed(ctx context.Context) {
	for _, page := range a.store.Pages() {
		if ctx.Err() != nil {
			return
		}
		if tier, err := a.store.Where(page); err == nil {
			a.ages.Seed(page, tier, a.clock.stamp())
		}
	}
}

// round visits every page once and moves the pages that are in the wrong tier.
func (a *aging) round(ctx context.Context) {
	now := a.clock.stamp()
	clear(a.classes)
	last := len(a.calls.Disks) - 1
	blocked := make([]bool, len(a.calls.Disks)) // tiers that take nothing at the moment
	for shard := 0; ; shard++ {
		a.moves = a.moves[:0]
		there := a.ages.Each(shard, func(page uint64, m ageMark) {
			tier, old := min(m.Tier(), last), now-min(m.At(), now)
			a.classes[tier][bitLen(old)]++
			down := tier
			for down < last && a.disks[down].MaxIdle > 0 && old >= units(a.disks[down].MaxIdle) {
				down++ // The thresholds count from the last use, so an old page may pass several.
			}
			switch {
			case down > tier:
				a.moves = append(a.moves, agingMove{page, down, ByAge})
			case tier < last && old >= a.cut[tier] && a.quota[tier] > 0:
				a.quota[tier]--
				a.moves = append(a.moves, agingMove{page, tier + 1, ByWatermark})
			case tier > 0 && m.Hot() && old < window(a.disks, tier):
				a.moves = append(a.moves, agingMove{page, tier - 1, ByHeat})
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

func bitLen(v uint32) int {
	n := 0
	for ; v > 0; v >>= 1 {
		n++
	}
	return n
}

// move moves a batch of pages and settles the moves. blocked has the tiers that refused a page in
// this round. It reports whether the Pager is still open.
func (a *aging) move(ctx context.Context, moves []agingMove, blocked []bool) bool {
	moved := 0
	for _, mv := range moves {
		if blocked[mv.to] || a.table.resident(mv.page) {
			continue // Its time counts from when it leaves memory again.
		}
		if !a.demand.giveWay(ctx) {
			return false
		}
		from, err := a.store.Where(mv.page)
		if err != nil || from == mv.to || mv.why != ByHeat && mv.to < from {
			if err == nil {
				a.ages.Moved(mv.page, from)
			}
			continue
		}
		if a.calls.Disks[from].Breaker.Open(time.Now()) || a.calls.Disks[mv.to].Breaker.Open(time.Now()) {
			continue
		}
		c, err := a.calls.Begin(ctx, opMove, a.calls.Disks[mv.to], mv.page, nil)
		if err == nil {
			_, err = a.calls.End(ctx, c)
		}
		switch {
		case err == nil:
			// A copy of a page that was committed meanwhile is of no use: it stays where it was,
			// for the next round.
			at, werr := a.store.Where(mv.page)
			if werr != nil {
				continue
			}
			a.ages.Moved(mv.page, at)
			if at != mv.to {
				continue
			}
			moved++
			a.moved.count(a.above+from, a.above+mv.to, mv.why)
		case errors.Is(err, tiers.ErrFull), errors.Is(err, tiers.ErrUnavailable):
			blocked[mv.to] = true
		}
	}
	if moved > 0 {
		// Settle makes moves durable so that the old slots come free. What fails stays pending, for
		// the next one.
		_ = bounded(ctx, func() error { return a.store.Settle(ctx) })
	}
	return ctx.Err() == nil
}

// room sets, for every tier that is too full, the age from which the next round moves pages down
// and the number of these pages.
func (a *aging) room(filler Filler) {
	if filler == nil {
		return
	}
	for tier := range len(a.calls.Disks) - 1 {
		a.cut[tier] = noCut
		fill := filler.Fill(tier)
		if fill <= full {
			continue
		}
		total := 0
		for _, n := range a.classes[tier] {
			total += n
		}
		need := int(float64(total)*(fill-calm)/fill) + 1
		a.quota[tier] = need
		for class := len(a.classes[tier]) - 1; class >= 0 && need > 0; class-- {
			if need -= a.classes[tier][class]; a.classes[tier][class] > 0 {
				a.cut[tier] = uint32(1) << max(class-1, 0)
				if class == 0 {
					a.cut[tier] = 0
				}
			}
		}
	}
}
