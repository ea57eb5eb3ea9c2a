package pagestore

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/index"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// MaxTiers is the largest number of directories of a store; the index packs the number into four
// bits.
const MaxTiers = 16

// MaxPageSize is the largest page in bytes.
const MaxPageSize = 128 << 20

// Options describe a store. Open works on a copy.
type Options struct {
	// FS is the file system; nil means the operating system's.
	FS vfs.FS
	// Tables keeps the entries of the index; nil means BadgerDB, which needs the operating system's
	// file system.
	Tables index.Backend
	// PageSize is the length of every page in bytes, a multiple of vfs.BlockSize up to MaxPageSize.
	// It is fixed when the store is made; 0 means 2 MiB.
	PageSize int
	// Tiers are the directories, the fastest first; at least one. The order is fixed when the store
	// is made, and tiers may be added behind.
	Tiers []Tier
	// Key encrypts pages at rest with AES-GCM: 16, 24 or 32 bytes, or nil for none. It is fixed
	// when the store is made. Page ids, epochs and the note are not encrypted.
	Key []byte
	// New makes a store if no index is found, even while a directory cannot be read. Otherwise Open
	// fails in this case, since the index may be in that directory.
	New bool
}

// Tier is one directory of a store.
type Tier struct {
	// Name is the name in errors and statistics ("nvme"); empty means its directory.
	Name string
	// Dir is the directory of its files; Open makes it if it is missing. The directories of two
	// tiers are neither equal nor nested.
	Dir string
	// Capacity is the most bytes of all files of the tier together, at least Options.MinCapacity.
	Capacity int64
	// Codec is how pages are encoded; the zero Codec stores them raw.
	Codec Codec
	// SegmentBytes is the length of a segment file; 0 means a 64th of Capacity within 16 MiB and 1
	// GiB, and at least 8 pages where Capacity has room for them.
	SegmentBytes int64
	// DiskReserve is the number of bytes of the medium that stay free for others and for the index:
	// a full disk refuses pages before it is full. 0 means 64 MiB, below 0 means none.
	DiskReserve int64
	// Quota is shared with tiers of other stores on the same medium, in addition to Capacity; nil
	// for none. Files count from Open until Close; the index does not count.
	Quota *Quota
}

// MinCapacity is the least capacity in bytes of a tier for pages of a size: one segment of two
// records, so that a page is written again before its old record is free, and the index, which
// takes 4 MiB in BadgerDB for a few pages. It is less than 8 MiB for pages of 2 MiB.
func (o Options) MinCapacity() int64 {
	o = o.withDefaults()
	return int64(2*blocksFor(o.PageSize)+2)*vfs.BlockSize + index.Reserve(o.Tables, 1, 1)
}

// IndexBytes returns the bytes that the index of a number of pages may take.
func (o Options) IndexBytes(pages int) int64 {
	return index.Reserve(o.withDefaults().Tables, int64(pages), int64(pages))
}

// withDefaults returns a copy with every unset field filled in.
func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Tables == nil {
		o.Tables = index.Badger{}
	}
	if o.PageSize == 0 {
		o.PageSize = 2 << 20
	}
	o.Tiers = append([]Tier(nil), o.Tiers...)
	for i := range o.Tiers {
		t := &o.Tiers[i]
		if t.Dir != "" {
			t.Dir = filepath.Clean(t.Dir)
		}
		if t.Name == "" {
			t.Name = t.Dir
		}
		if t.SegmentBytes == 0 {
			t.SegmentBytes = min(max(t.Capacity/64, 16<<20), 1<<30)
			t.SegmentBytes = max(t.SegmentBytes, min(8*int64(o.PageSize)+1<<20, t.Capacity))
		}
		switch {
		case t.DiskReserve == 0:
			t.DiskReserve = 64 << 20
		case t.DiskReserve < 0:
			t.DiskReserve = 0
		}
	}
	return o
}

// validate returns every complaint at once, each wrapping tiers.ErrInvalid.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format+": %w", append(args, tiers.ErrInvalid)...))
	}
	if o.PageSize < vfs.BlockSize || o.PageSize%vfs.BlockSize != 0 || o.PageSize > MaxPageSize {
		bad("page size %d: want a multiple of %d up to %d", o.PageSize, vfs.BlockSize, MaxPageSize)
	}
	if len(o.Tiers) == 0 || len(o.Tiers) > MaxTiers {
		bad("%d tiers: want 1 to %d", len(o.Tiers), MaxTiers)
	}
	switch len(o.Key) {
	case 0, 16, 24, 32:
	default:
		bad("key of %d bytes: want 16, 24 or 32", len(o.Key))
	}
	for i, t := range o.Tiers {
		if t.Dir == "" {
			bad("tier %d has no directory", i)
			continue
		}
		if least := o.MinCapacity(); t.Capacity < least {
			bad("tier %s: capacity %d, want at least %d for pages of %d", t.Name, t.Capacity, least, o.PageSize)
		}
		if t.SegmentBytes < 0 {
			bad("tier %s: segments of %d bytes", t.Name, t.SegmentBytes)
		}
		if err := t.Codec.Validate(); err != nil {
			bad("tier %s: %v", t.Name, err)
		}
		for _, u := range o.Tiers[:i] {
			if overlap(t.Dir, u.Dir) {
				bad("tiers %s and %s overlap in %s and %s", u.Name, t.Name, u.Dir, t.Dir)
			}
		}
	}
	return errors.Join(errs...)
}

// overlap reports whether one directory is the other or lies inside it.
func overlap(a, b string) bool {
	inside := func(in, out string) bool {
		rel, err := filepath.Rel(out, in)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	}
	return inside(a, b) || inside(b, a)
}
