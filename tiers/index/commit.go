package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
)

// Commit is what one commit makes durable together: an epoch that only grows, a note of the caller
// of at most MaxNote bytes, the changes of entries, and the records that do not count.
type Commit struct {
	Epoch   uint64
	Note    []byte
	Changes iter.Seq[Change]
	Voids   []Void
}

// room fails with tiers.ErrFull if the medium of a directory has no room for changes of a table
// with a number of entries. The medium may become full right after, which the table itself must
// notice.
func (x *Index) room(dir string, entries int64) error {
	free, err := x.opts.FS.Free(dir)
	if err != nil {
		return err
	}
	if need := x.opts.Tables.Headroom(entries); free < need {
		return fmt.Errorf("disk has %d bytes free and the index wants %d: %w", free, need, tiers.ErrFull)
	}
	return nil
}

// Commit makes changes, an epoch and a note durable together. After an error it is unknown whether
// a crash would bring back the state before or after; the index is then broken until Renew.
func (x *Index) Commit(c Commit) error {
	if len(c.Note) > MaxNote {
		return fmt.Errorf("%d bytes, at most %d: %w", len(c.Note), MaxNote, ErrNote)
	}
	if x.broken {
		return ErrBroken
	}
	st := x.next(c)
	var ops []Op
	var buf []byte
	var gone []uint64
	again := map[uint64]bool{}
	for ch := range c.Changes {
		ch.Old, ch.New = st.known(ch.Old), st.known(ch.New)
		if len(buf) < 8+valueBytes {
			buf = make([]byte, 1<<10*(8+valueBytes))
		}
		ops = append(ops, ch.op(buf, st.stamp))
		buf = buf[8+valueBytes:]
		if ch.HadOld {
			st.add(ch.Old, minus)
		}
		if ch.HasNew {
			st.add(ch.New, 1)
		} else {
			gone = append(gone, ch.Page)
		}
		if len(x.gone) > 0 {
			again[ch.Page] = true
		}
	}
	for _, page := range x.gone {
		if !again[page] {
			ops = append(ops, Op{Key: binary.BigEndian.AppendUint64(nil, page)})
		}
	}
	if len(ops) > 0 {
		err := x.room(x.dir, int64(st.count))
		full := errors.Is(err, tiers.ErrFull) // The table is as it was.
		if err == nil {
			err = x.table.Apply(ops, int64(st.count))
		}
		if err != nil {
			x.broken = !full
			return fmt.Errorf("commit epoch %d: %w", c.Epoch, err)
		}
	}
	marks := x.news(c, gone)
	if err := x.superblock.commit(st, slices.Values(marks)); err != nil {
		x.broken = true
		return err
	}
	for _, m := range marks {
		x.learn(m)
	}
	if len(x.tombs) > len(gone) {
		for ch := range c.Changes {
			if ch.HasNew { // Its record is newer than the records that the tombstone hides.
				delete(x.tombs, ch.Page)
			}
		}
	}
	x.seal, x.gone = st, gone
	if x.superblock.wantsRenewal() {
		// The commit is durable. When this fails the superblock is broken, and the next commit says
		// so.
		if err := x.superblock.renew(x.seal, x.marks()); err != nil {
			x.broken = true
		}
	}
	return nil
}

// next returns the seal of the next commit, with the sums of the present one. The caller updates
// the sums.
func (x *Index) next(c Commit) seal {
	st := x.seal
	st.Epoch, st.Note, st.life, st.healed = c.Epoch, slices.Clone(c.Note), x.life, false
	st.stamp++
	return st
}

// news returns the marks by which a rebuild judges the records of this commit. The parameter gone
// has the pages that the commit deletes.
func (x *Index) news(c Commit, gone []uint64) []mark {
	var marks []mark
	for _, page := range gone {
		marks = append(marks, mark{kind: markGone, id: page, epoch: c.Epoch})
	}
	for _, v := range c.Voids {
		marks = append(marks, mark{kind: markVoid, id: v.Page, epoch: v.Epoch, seq: v.Seq})
	}
	return append(marks, mark{kind: markLife, id: x.life, epoch: c.Epoch})
}
