package pagestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func (d *dir) find(number uint32) (*segment, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.segments[number]
	if s == nil || s.slots == 0 {
		return nil, fmt.Errorf("segment %d: %w", number, fs.ErrNotExist)
	}
	return s, nil
}

// Place returns the path of the file of a record, and the offset of the record in it in bytes. The
// path is empty if the segment does not exist any more.
func (d *dir) Place(l loc) (file string, offset int64) {
	s, err := d.find(l.Segment)
	if err != nil {
		return "", 0
	}
	return filepath.Join(d.opts.Path, fileName(l.Segment)), s.offset(l.Slot)
}

// Write writes a sealed record into its slot and returns the number of the write within the
// segment, for Durable. The parts of rec are whole blocks at aligned addresses. The caller has the
// slot from Alloc and is its only writer.
func (d *dir) Write(l loc, rec [][]byte) (uint64, error) {
	s, err := d.find(l.Segment)
	if err != nil {
		return 0, err
	}
	if _, err := s.file.WritePartsAt(rec, s.offset(l.Slot)); err != nil {
		return 0, fmt.Errorf("write segment %d slot %d: %w", l.Segment, l.Slot, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.written++
	return s.written, nil
}

// Read reads the blocks of a record into rec, whose parts are aligned and together as long as the
// record. It checks nothing: the caller calls Unseal.
func (d *dir) Read(l loc, rec [][]byte) error {
	s, err := d.find(l.Segment)
	if err != nil {
		return err
	}
	if _, err := s.file.ReadPartsAt(rec, s.offset(l.Slot)); err != nil {
		return fmt.Errorf("read segment %d slot %d: %w", l.Segment, l.Slot, err)
	}
	return nil
}

// Durable reports whether a sync that succeeded covers a write. The parameter write is the number
// that Write returned.
func (d *dir) Durable(l loc, write uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.segments[l.Segment]
	return s != nil && write <= s.synced
}

// Retired reports whether a segment takes no more records after a failed sync, or does not exist.
func (d *dir) Retired(number uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.segments[number]
	return s == nil || s.retired
}

// Sync makes every write that returned before durable. A segment whose sync fails is retired: it
// keeps what was durable and takes nothing more. All segments are tried; the error joins ErrSync
// for each that failed.
func (d *dir) Sync() error {
	type job struct {
		s  *segment
		to uint64
	}
	d.mu.Lock()
	var jobs []job
	for _, s := range d.segments {
		if s.written > s.synced && !s.retired {
			jobs = append(jobs, job{s, s.written})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(jobs, func(a, b job) int { return int(a.s.number) - int(b.s.number) })
	var errs []error
	for _, j := range jobs {
		err := j.s.file.Sync()
		d.mu.Lock()
		switch {
		case err != nil:
			j.s.retired = true
			d.unlist(j.s)
			errs = append(errs, fmt.Errorf("segment %d: %w: %w", j.s.number, tiers.ErrSync, err))
		case j.s.retired:
			// A concurrent sync failed, and may have consumed the error of this one.
			errs = append(errs, fmt.Errorf("segment %d: %w", j.s.number, tiers.ErrSync))
		default:
			j.s.synced = max(j.s.synced, j.to)
		}
		d.mu.Unlock()
	}
	return errors.Join(errs...)
}

// buffer has the block of the header of a record, and room for its body. The room is made when the
// body cannot go directly between the medium and the memory of the caller.
type buffer struct {
	head []byte
	body []byte
	rec  [2][]byte // header and body, as the medium takes them
}

func newBuffer() *buffer { return &buffer{head: vfs.Buffer(HeaderBytes)} }

func (b *buffer) room(pageSize int) []byte {
	if b.body == nil {
		b.body = vfs.Buffer(bodyBuffer(pageSize))
	}
	return b.body
}

func (b *buffer) record(body []byte) [][]byte {
	b.rec = [2][]byte{b.head, body}
	return b.rec[:]
}
