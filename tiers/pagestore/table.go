package pagestore

import (
	"github.com/exoswarm/exoswarm/tiers/index"
)

// entry is the place of the content of a page, its epoch, and the check of its record, in 24 bytes.
// The zero entry is no place.
type entry struct {
	where uint64 // tier<<60 | segment<<32 | slot
	when  uint64 // epoch<<16 | blocks
	check uint32 // index.Entry.Check
}

// maxEpoch is the last epoch that an entry can hold; at a thousand checkpoints a second it lasts
// 8,900 years.
const maxEpoch = 1<<48 - 1

func pack(tier int, l loc, epoch uint64, check uint32) entry {
	return entry{
		where: uint64(tier)<<60 | uint64(l.Segment)<<32 | uint64(l.Slot),
		when:  epoch<<16 | uint64(l.Blocks),
		check: check,
	}
}

// tier, loc and epoch undo pack.
func (e entry) tier() int { return int(e.where >> 60) }

func (e entry) loc() loc {
	return loc{Segment: uint32(e.where>>32) & maxSegment, Slot: uint32(e.where), Blocks: uint16(e.when)}
}

func (e entry) epoch() uint64 { return e.when >> 16 }

func (e entry) indexEntry(page uint64) index.Entry {
	l := e.loc()
	return index.Entry{
		Page: page, Epoch: e.epoch(), Segment: l.Segment, Slot: l.Slot, Blocks: l.Blocks, Tier: uint8(e.tier()),
		Check: e.check,
	}
}

type state uint8

const (
	written state = iota + 1 // new content in a fresh slot
	moved                    // committed content, copied into a fresh slot
	deleted                  // the page goes with the next commit
	lost                     // new content whose sync failed: only another write heals it
)

// change is what happens to a page with the next commit.
type change struct {
	entry
	state state
	// write is the number of the segment write that holds the content, for dir.Durable.
	write uint64
	// tried: a commit that failed may have made this change durable after all, so its slot stays
	// out of use until a later commit has succeeded.
	tried bool
}

func (c change) holds() bool { return c.state == written || c.state == moved }
