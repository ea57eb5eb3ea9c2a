package index

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
)

func tableName(number uint64) string { return fmt.Sprintf("%016x%s", number, TableExt) }

// openTable opens the table that the seal names and reads it as of the seal. It returns the changes
// that bring the table itself to that state.
func (x *Index) openTable(apply func(Entry)) ([]Op, error) {
	missing := fs.ErrNotExist
	for _, dir := range x.opts.Dirs {
		names, err := x.opts.Tables.List(dir)
		if err != nil {
			missing = err
			continue
		}
		if slices.Contains(names, tableName(x.seal.table)) {
			x.dir = dir
			missing = nil
			break
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("table %d: %w", x.seal.table, missing)
	}
	t, err := x.opts.Tables.Open(filepath.Join(x.dir, tableName(x.seal.table)), false, int64(x.seal.count))
	if err != nil {
		return nil, err
	}
	x.table = t
	return x.load(apply)
}

// load reads the table, calls apply for every entry that counts, and compares the sums with the
// seal's. An entry that is newer than the seal counts as of the commit before, which the entry
// contains.
func (x *Index) load(apply func(Entry)) (repairs []Op, err error) {
	var got sums
	var gone []uint64
	owned := false
	err = x.table.Load(func(key, value []byte) error {
		switch {
		case string(key) == string(storeKey):
			owned = string(value) == string(x.meta.Store[:])
			return nil
		case len(key) != 8 || len(value) != valueBytes:
			return fmt.Errorf("key %x of %d bytes: %w", key, len(value), tiers.ErrCorrupt)
		}
		page := binary.BigEndian.Uint64(key)
		e, there := decodePlace(page, value[8:])
		if stamp := binary.LittleEndian.Uint64(value); stamp > x.seal.stamp {
			e, there = decodePlace(page, value[8+placeBytes:])
			op := Op{Key: slices.Clone(key)}
			if there {
				op = Change{Page: page, New: e, HasNew: true}.op(make([]byte, 8+valueBytes), x.seal.stamp)
			}
			repairs = append(repairs, op)
		} else if !there {
			gone = append(gone, page)
		}
		if there {
			got.add(e, 1)
			apply(e)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read table %d: %w", x.seal.table, err)
	case !owned:
		return nil, fmt.Errorf("table %d is another store's: %w", x.seal.table, tiers.ErrCorrupt)
	case got != x.seal.sums:
		return nil, fmt.Errorf("table %d has %d entries that do not add up to the %d sealed ones: %w",
			x.seal.table, got.count, x.seal.count, tiers.ErrCorrupt)
	}
	x.gone = gone
	return repairs, nil
}
