package pagestore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Discover returns options for a store that exists, from its directories, in the order of its
// tiers: the page size, and as the capacity of each tier what its segments take now, one segment
// more, and what the index may need. That is enough to read a store and to compact it; a writer
// knows the real options. A nil fs means the file system of the operating system. It changes
// nothing. It fails with tiers.ErrInvalid if the directories have no index.
func Discover(fs vfs.FS, dirs []string) (Options, error) {
	if fs == nil {
		fs = vfs.OS{}
	}
	var there []string
	var errs []error
	o := Options{FS: fs}
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		names, err := fs.List(dir)
		if err != nil {
			errs = append(errs, err)
		} else {
			there = append(there, dir)
		}
		files, longest := int64(0), int64(0)
		for _, name := range names {
			if filepath.Ext(name) != ".seg" {
				continue
			}
			f, err := fs.Open(filepath.Join(dir, name), 0)
			if err != nil {
				return o, err
			}
			size, err := f.Size()
			if err := errors.Join(err, f.Close()); err != nil {
				return o, err
			}
			files += size
			longest = max(longest, size)
		}
		// New segments are as long as the present ones; compaction needs one more to move pages
		// into.
		o.Tiers = append(o.Tiers, Tier{Dir: dir, Capacity: files + longest, SegmentBytes: longest})
	}
	meta, err := index.Probe(fs, there)
	if errors.Is(err, index.ErrNone) {
		if len(errs) > 0 {
			return o, fmt.Errorf("no page store in %s: %w: %w", strings.Join(dirs, ", "), errs[0], tiers.ErrInvalid)
		}
		return o, fmt.Errorf("no page store in %s: %w", strings.Join(dirs, ", "), tiers.ErrInvalid)
	}
	if err != nil {
		return o, err
	}
	o.PageSize = meta.PageSize
	reserve := index.Reserve(o.withDefaults().Tables, int64(meta.Pages), minMarks)
	for i := range o.Tiers {
		o.Tiers[i].Capacity = max(o.Tiers[i].Capacity+reserve, o.MinCapacity())
	}
	return o, nil
}

// ParseKey reads a key from the bytes of a file: 16, 24 or 32 bytes as they are, or as many written
// in hexadecimal, with blanks around them or without.
func ParseKey(b []byte) ([]byte, error) {
	text := strings.TrimSpace(string(b))
	if key, err := hex.DecodeString(text); err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
		return key, nil
	}
	switch len(b) {
	case 16, 24, 32:
		return b, nil
	}
	return nil, fmt.Errorf("key file of %d bytes: want 16, 24 or 32 bytes, or twice as many hexadecimal digits: %w",
		len(b), tiers.ErrInvalid)
}
