package pagestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// segment is one file. Dir.mu guards every field but file.
type segment struct {
	fileHeader
	file vfs.File
	// used has a bit for every slot that holds or is about to hold a record.
	used []uint64
	free int
	// The search for a free slot starts at from, so that a fresh segment is written in order.
	from int
	// written and synced are numbers of writes: writes up to synced are durable.
	written, synced uint64
	// retired: the segment takes no further record after a failed sync.
	retired bool
	// draining: the segment takes no further record until Undrain, since compaction empties it.
	draining bool
	// missed is set by a Claim that the file could not satisfy: the file is kept as evidence.
	missed bool
	listed bool // in Dir.classes
}

// fileName returns the name of the file of a segment. fileNumber is its inverse, and reports false
// for any other name.
func fileName(number uint32) string { return fmt.Sprintf("%08x.seg", number) }

func fileNumber(name string) (uint32, bool) {
	var n uint32
	if !strings.HasSuffix(name, ".seg") {
		return 0, false
	}
	if _, err := fmt.Sscanf(name, "%08x.seg", &n); err != nil || fileName(n) != name {
		return 0, false
	}
	return n, true
}

// openSegment adds one file that exists. A file of another store is an error. A file whose headers
// are both damaged is kept without slots until Prune.
func (d *dir) openSegment(name string, number uint32) (err error) {
	path := filepath.Join(d.opts.Path, name)
	f, err := d.opts.FS.Open(path, vfs.Direct)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	d.next = max(d.next, number+1)
	size, err := f.Size()
	if err != nil {
		return err
	}
	h, err := d.readFileHeader(f, size)
	if err == nil {
		switch {
		case h.store != d.opts.Store, h.pageSize != d.opts.PageSize:
			return tiers.ErrMismatch
		case h.tier != d.opts.Tier:
			return fmt.Errorf("it is tier %d's and opened as tier %d's: %w", h.tier, d.opts.Tier, tiers.ErrMismatch)
		case h.number != number, size < h.length():
			err = fmt.Errorf("number %d, %d bytes: %w", h.number, size, tiers.ErrCorrupt)
		}
	}
	if errors.Is(err, tiers.ErrCorrupt) {
		// Kept in the table without slots: Claim finds out whether it is missed, and Prune removes
		// it if not.
		d.segments[number] = &segment{fileHeader: fileHeader{number: number}, file: f, retired: true}
		d.bytes += size
		return nil
	}
	if err != nil {
		return err
	}
	d.segments[number] = newSegment(h, f)
	d.bytes += h.length()
	return nil
}

// readFileHeader reads the header from the first block and its copy from the last one. When one of
// them is damaged, as a crash while the file was made may leave it, the other one is written over
// it.
func (d *dir) readFileHeader(f vfs.File, size int64) (h fileHeader, err error) {
	if size < 2*vfs.BlockSize || size%vfs.BlockSize != 0 {
		return h, fmt.Errorf("file of %d bytes: %w", size, tiers.ErrCorrupt)
	}
	good, bad := vfs.Buffer(vfs.BlockSize), int64(-1)
	found := false
	block := vfs.Buffer(vfs.BlockSize)
	for _, off := range [...]int64{0, size - vfs.BlockSize} {
		if _, err := f.ReadAt(block, off); err != nil {
			return h, err
		}
		got, err := decodeFileHeader(block)
		switch {
		case errors.Is(err, tiers.ErrCorrupt):
			bad = off
		case err != nil:
			return h, err
		default:
			h, found = got, true
			copy(good, block)
		}
	}
	if !found {
		return h, fmt.Errorf("both headers: %w", tiers.ErrCorrupt)
	}
	if bad >= 0 {
		d.healed++
		if _, err := f.WriteAt(good, bad); err != nil {
			return h, err
		}
		return h, f.Sync()
	}
	return h, nil
}

func newSegment(h fileHeader, f vfs.File) *segment {
	return &segment{fileHeader: h, file: f, used: make([]uint64, (h.slots+63)/64), free: h.slots}
}

// length returns the length of the file in bytes: a header, the slots, and a copy of the header.
func (h fileHeader) length() int64 {
	return 2*vfs.BlockSize + int64(h.slots)*int64(h.blocks)*vfs.BlockSize
}

func (h fileHeader) offset(slot uint32) int64 {
	return vfs.BlockSize + int64(slot)*int64(h.blocks)*vfs.BlockSize
}

// createSegment makes a file and its header durable before any slot of it is given out.
func (d *dir) createSegment(h fileHeader) (err error) {
	path := filepath.Join(d.opts.Path, fileName(h.number))
	d.next++ // Also after a failure: the name may exist.
	f, err := d.opts.FS.Open(path, vfs.Create|vfs.Direct)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make segment %s: %w", path, err), f.Close(), d.opts.FS.Remove(path))
		}
	}()
	if err := f.Allocate(h.length()); err != nil {
		return err
	}
	head := vfs.Buffer(vfs.BlockSize)
	h.encode(head)
	if _, err := f.WriteAt(head, 0); err != nil {
		return err
	}
	if _, err := f.WriteAt(head, h.length()-vfs.BlockSize); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := d.opts.FS.SyncDir(d.opts.Path); err != nil {
		return err
	}
	s := newSegment(h, f)
	d.segments[h.number] = s
	d.bytes += h.length()
	d.list(s)
	return nil
}

// removeSegment deletes a file in which no record is in use. The caller holds mu.
func (d *dir) removeSegment(number uint32) error {
	s := d.segments[number]
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	path := filepath.Join(d.opts.Path, fileName(number))
	if err := d.opts.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.unlist(s)
	delete(d.segments, number)
	d.bytes -= size
	d.opts.Quota.Give(size)
	return s.file.Close()
}
