package index

import (
	"fmt"
	"iter"

	"github.com/exoswarm/exoswarm/tiers"
)

// Stamp is what the header of a record says about when it was written: the life, and a number that
// grows within it.
type Stamp struct{ Life, Seq uint64 }

// Check returns what an Entry keeps of a stamp. It is never 0. Two records of one page and epoch
// have the same check with a probability of one in 2^31.
func (s Stamp) Check() uint32 { return uint32(mix(mix(s.Life+0x9e3779b97f4a7c15)^s.Seq)) | 1 }

// Counts reports whether a record was committed and its page was not deleted later. Of the records
// of a page that count, the content is the one with the largest epoch, and within it the one with
// the largest Seq.
func (x *Index) Counts(page, epoch uint64, s Stamp) bool {
	if epoch > x.seal.base && epoch > x.lives[s.Life] {
		return false
	}
	if gone, ok := x.tombs[page]; ok && epoch <= gone {
		return false
	}
	_, void := x.voids[Void{page, epoch, s.Seq}]
	return !void
}

// Rebuild makes the index anew from the entries that the records of the segments gave. They must be
// the pages that the last commit sealed, each with the record that it sealed, or it fails with
// ErrCorrupt and changes nothing. A store of an earlier version sealed the epochs of its pages
// only; its index has checks from then on.
func (x *Index) Rebuild(all iter.Seq[Entry]) error {
	var got sums
	for e := range all {
		got.add(x.seal.known(e), 1)
	}
	if got.count != x.seal.count || got.pages != x.seal.pages {
		return fmt.Errorf("segments hold %d pages that do not add up to the %d sealed ones: %w",
			got.count, x.seal.count, tiers.ErrCorrupt)
	}
	st := x.seal
	st.healed, st.checked = false, true
	return x.renew(st, all, nil)
}

// Forget drops the marks. The caller guarantees that no segment has a record left that does not
// count, on the medium and not only in memory.
func (x *Index) Forget() error {
	if x.broken {
		return ErrBroken
	}
	clear(x.tombs)
	clear(x.voids)
	clear(x.lives)
	st := x.seal
	st.base = st.Epoch
	if err := x.superblock.renew(st, x.marks()); err != nil {
		x.broken = true
		return err
	}
	x.seal = st
	return nil
}
