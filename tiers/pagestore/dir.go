package pagestore

// This file keeps the records of one tier in one directory of segment files: fixed-size slots of
// one length a file, written whole with direct I/O, found by segment and slot number. It does not
// know which record is current; the index does. A slot is written only while no durable index entry
// points to it, so a torn write can only hit unused bytes.

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// loc is the place of a record: a slot of a segment, and the length of the record in blocks of
// vfs.BlockSize. Blocks is at most the length of the slot.
type loc struct {
	Segment uint32
	Slot    uint32
	Blocks  uint16
}

// maxSegment is the largest segment number; the index packs it into 28 bits.
const maxSegment = 1<<28 - 1

type dirOptions struct {
	FS    vfs.FS
	Path  string
	Store [16]byte // the store's identity, in every header
	Tier  uint8
	// PageSize is in bytes, a multiple of vfs.BlockSize.
	PageSize int
	// SegmentBytes is the length of a segment file, rounded down to whole slots and at least one.
	SegmentBytes int64
	// Capacity is the most bytes of all segment files together.
	Capacity int64
	// Reserve returns the bytes of Capacity that segments leave to the index at this moment.
	Reserve func() int64
	// Quota is what other directories on the same medium share with this one; nil for none.
	Quota *Quota
	// DiskReserve is the number of bytes of the medium that stay free: no new segment takes them.
	DiskReserve int64
}

// dir is an open directory of segments. All methods may be called from several goroutines at once;
// reads and writes of different slots run in parallel.
type dir struct {
	opts dirOptions

	mu       sync.Mutex
	segments map[uint32]*segment
	classes  map[int][]*segment // segments with a free slot, by blocks a slot
	next     uint32
	bytes    int64 // of all segment files
	live     int64 // bytes of records in use, whole blocks
	used     int   // slots in use
	healed   int   // headers that Open made good
	down     error // why the directory cannot be used
}

// openDir reads the headers of a directory's segments. Files that a crash left without a valid
// header are removed: no index entry can point into them, since a segment's header is durable
// before its first slot is given out. The caller then reports every record that the index holds
// with Claim.
func openDir(opts dirOptions) (*dir, error) {
	d := &dir{opts: opts, segments: map[uint32]*segment{}, classes: map[int][]*segment{}, next: 1}
	names, err := opts.FS.List(opts.Path)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		number, ok := fileNumber(name)
		if !ok {
			continue
		}
		before := d.bytes
		err := d.openSegment(name, number)
		opts.Quota.Hold(d.bytes - before)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("segment %s: %w", filepath.Join(opts.Path, name), err), d.Close())
		}
	}
	return d, nil
}

// downDir returns an unreadable directory; why is the reason. It has no record and takes none.
// Alloc and Scan fail with tiers.ErrUnavailable.
func downDir(opts dirOptions, why error) *dir {
	return &dir{
		opts: opts, segments: map[uint32]*segment{}, classes: map[int][]*segment{}, next: 1,
		down: fmt.Errorf("%w: %w", tiers.ErrUnavailable, why),
	}
}

// Unavailable returns why the directory cannot be used; nil if it can.
func (d *dir) Unavailable() error { return d.down }

// Usage is what a directory holds.
type Usage struct {
	// Segments, Slots and Used count files, slots and slots with a record.
	Segments, Slots, Used int
	// FileBytes is the length of all files, SlotBytes of the slots in use, LiveBytes of the records
	// in them.
	FileBytes, SlotBytes, LiveBytes int64
	// Retired counts segments that take no more records after a failed sync.
	Retired int
	// Healed counts segment headers that Open made good from their copy.
	Healed int
}

// Usage reports the directory's accounting, which Open and Claim rebuild after a crash. All numbers
// are from one moment.
func (d *dir) Usage() Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := Usage{Segments: len(d.segments), Used: d.used, FileBytes: d.bytes, LiveBytes: d.live, Healed: d.healed}
	for _, s := range d.segments {
		u.Slots += s.slots
		u.SlotBytes += int64(s.slots-s.free) * int64(s.blocks) * vfs.BlockSize
		if s.retired {
			u.Retired++
		}
	}
	return u
}

// Close closes the files, and gives their bytes back to the quota. It does not sync: the caller
// calls Sync before, for what must be durable. No other call may run.
func (d *dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.segments {
		errs = append(errs, s.file.Close())
	}
	d.segments, d.classes = map[uint32]*segment{}, map[int][]*segment{}
	d.opts.Quota.Give(d.bytes)
	d.bytes = 0
	return errors.Join(errs...)
}

// VerifyHeaders reads both copies of every segment's header, and joins an error for each that is
// damaged. It repairs nothing: Open does that.
func (d *dir) VerifyHeaders() error {
	if d.down != nil {
		return d.down
	}
	d.mu.Lock()
	list := make([]*segment, 0, len(d.segments))
	for _, s := range d.segments {
		list = append(list, s)
	}
	d.mu.Unlock()
	slices.SortFunc(list, func(a, b *segment) int { return int(a.number) - int(b.number) })
	block := vfs.Buffer(vfs.BlockSize)
	var errs []error
	for _, s := range list {
		for _, off := range [...]int64{0, s.length() - vfs.BlockSize} {
			_, err := s.file.ReadAt(block, off)
			if errors.Is(err, fs.ErrClosed) {
				break // Removed meanwhile.
			}
			var h fileHeader
			if err == nil {
				h, err = decodeFileHeader(block)
			}
			if err == nil && h != s.fileHeader {
				err = tiers.ErrCorrupt
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("segment %d header at %d: %w", s.number, off, err))
			}
		}
	}
	return errors.Join(errs...)
}
