package index

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
)

// Renew writes the whole index again, with all entries: after a failure, in another directory if
// the present one fails, or as a commit of its own. c.Changes is what the commit does; all yields
// every entry after the commit. Until Renew succeeds, a crash brings back the state before.
func (x *Index) Renew(c Commit, all iter.Seq[Entry]) error {
	if len(c.Note) > MaxNote {
		return fmt.Errorf("%d bytes, at most %d: %w", len(c.Note), MaxNote, ErrNote)
	}
	var gone []uint64
	for ch := range c.Changes {
		if !ch.HasNew {
			gone = append(gone, ch.Page)
		}
	}
	marks := x.news(c, gone)
	if err := x.renew(x.next(c), all, marks); err != nil {
		return fmt.Errorf("renew index at epoch %d: %w", c.Epoch, err)
	}
	for _, m := range marks {
		x.learn(m)
	}
	return nil
}

// renew writes a new table and then seals it. The old one counts until then.
func (x *Index) renew(st seal, all iter.Seq[Entry], news []mark) error {
	x.broken = true
	st.stamp++
	var errs []error
	for _, dir := range x.opts.Dirs {
		number := x.freshTable()
		st.table = number
		path := filepath.Join(dir, tableName(number))
		t, sum, err := x.fill(path, dir, all, st)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		st.sums = sum
		if x.superblock == nil {
			x.superblock, err = createSuperblock(x.opts.FS, x.opts.Dirs, x.meta, st)
		} else {
			err = x.superblock.renew(st, concat(x.marks(), slices.Values(news)))
		}
		if err != nil {
			// Its number is not used again, so a seal that is durable after all finds its table.
			errs = append(errs, err, t.Close())
			return errors.Join(errs...)
		}
		if x.table != nil {
			_ = x.table.Close() // Superseded: nothing in it is needed.
		}
		x.table, x.dir, x.seal, x.gone, x.broken = t, dir, st, nil, false
		x.prune()
		return nil
	}
	return errors.Join(errs...)
}

func concat(a, b iter.Seq[mark]) iter.Seq[mark] {
	return func(yield func(mark) bool) {
		for _, seq := range []iter.Seq[mark]{a, b} {
			for m := range seq {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// freshTable is a number that no table in any directory has. Tables of failed attempts keep their
// numbers, so a number is never used twice.
func (x *Index) freshTable() uint64 {
	x.number = max(x.number, x.seal.table)
	for _, dir := range x.opts.Dirs {
		names, err := x.opts.Tables.List(dir)
		if err != nil {
			continue // It takes no table either.
		}
		for _, name := range names {
			var n uint64
			if _, err := fmt.Sscanf(name, "%016x", &n); err == nil {
				x.number = max(x.number, n)
			}
		}
	}
	x.number++
	return x.number
}

// fillBatch is the number of entries that are written to a new table at a time.
const fillBatch = 1 << 15

// fill makes a table with all entries.
func (x *Index) fill(path, dir string, all iter.Seq[Entry], st seal) (_ Table, sum sums, err error) {
	if x.table != nil { // there is room for one table that is in use
		_ = x.table.Rest() // It may have failed, which is why it is renewed.
	}
	entries := int64(st.count)
	if err := x.room(dir, entries); err != nil {
		return nil, sum, err
	}
	t, err := x.opts.Tables.Open(path, true, entries)
	if err != nil {
		return nil, sum, err
	}
	ops := []Op{{Key: storeKey, Value: x.meta.Store[:]}}
	buf := make([]byte, fillBatch*(8+valueBytes))
	flush := func() {
		if err == nil {
			err = t.Apply(ops, entries)
		}
		ops = ops[:0]
		clear(buf)
	}
	for e := range all {
		e = st.known(e)
		if len(ops) == fillBatch {
			flush()
		}
		ops = append(ops, Change{Page: e.Page, New: e, HasNew: true}.op(buf[len(ops)*(8+valueBytes):], st.stamp))
		sum.add(e, 1)
	}
	flush()
	if err == nil {
		err = x.opts.FS.SyncDir(dir)
	}
	if err != nil {
		return nil, sum, errors.Join(fmt.Errorf("make table %s: %w", path, err), t.Close(), x.opts.Tables.Remove(path))
	}
	return t, sum, nil
}

// prune removes the tables that are not the current one. What cannot be removed does no harm: it is
// not sealed.
func (x *Index) prune() {
	for _, dir := range x.opts.Dirs {
		names, err := x.opts.Tables.List(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if name != tableName(x.seal.table) || dir != x.dir {
				_ = x.opts.Tables.Remove(filepath.Join(dir, name))
			}
		}
	}
}
