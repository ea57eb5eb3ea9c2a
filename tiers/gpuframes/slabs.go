package gpuframes

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/tiers"
)

// slabs are frames in a few pieces of memory. All have the same length; the last may be shorter.
type slabs[M interface {
	comparable
	Size() int64
	Close() error
}] struct {
	opts     Options
	count    int
	pageSize int64
	perSlab  int
	mem      []M
	alloc    func(n int64, purpose string) (M, error)
}

// open takes the memory, all of it or none.
func (s *slabs[M]) open(o Options, alloc func(n int64, purpose string) (M, error)) error {
	s.opts, s.alloc = o, alloc
	s.count, s.pageSize = o.Count, int64(o.PageSize)
	s.perSlab = int(max(o.SlabBytes/s.pageSize, 1))
	for at := 0; at < s.count; at += s.perSlab {
		n := int64(min(s.perSlab, s.count-at)) * s.pageSize
		m, err := alloc(n, o.Purpose)
		if err != nil {
			return errors.Join(fmt.Errorf("frames %d.. of %d of %d bytes: %w", at, s.count, s.pageSize, err), s.close())
		}
		s.mem = append(s.mem, m)
	}
	return nil
}

// resize takes memory for count frames, has copy fill n bytes of it for each run of moves, and
// gives the old memory back. One slab stays one slab. After an error the frames are as they were.
func (s *slabs[M]) resize(
	count int, moves []tiers.Move, copy func(to M, toOff int64, from M, fromOff, n int64) error,
) error {
	o := s.opts
	if o.Count = count; len(s.mem) <= 1 {
		o.SlabBytes = max(o.SlabBytes, int64(count)*s.pageSize)
	}
	var to slabs[M]
	if err := to.open(o, s.alloc); err != nil {
		return err
	}
	for i := 0; i < len(moves); {
		from, next := moves[i].From, moves[i].To
		if err := errors.Join(s.check(from, 0, 0), to.check(next, 0, 0)); err != nil {
			return errors.Join(err, to.close())
		}
		n := 1
		for i+n < len(moves) && moves[i+n] == (tiers.Move{From: from + n, To: next + n}) &&
			(from+n)%s.perSlab != 0 && (next+n)%to.perSlab != 0 {
			n++
		}
		m, off := to.at(next)
		old, at := s.at(from)
		if err := copy(m, off, old, at, int64(n)*s.pageSize); err != nil {
			return errors.Join(err, to.close())
		}
		i += n
	}
	before := *s
	*s = to
	return before.close()
}

func (s *slabs[M]) at(frame int) (M, int64) {
	return s.mem[frame/s.perSlab], int64(frame%s.perSlab) * s.pageSize
}

func (s *slabs[M]) check(frame int, off int64, n int) error {
	return tiers.CheckFrame(frame, off, n, s.count, s.pageSize)
}

func (s *slabs[M]) close() error {
	var errs []error
	for _, m := range s.mem {
		errs = append(errs, m.Close())
	}
	s.mem = nil
	return errors.Join(errs...)
}

// Options describe frames of either kind.
type Options struct {
	// Device has the frames, or copies to them. It must outlive them.
	Device device.Device
	// Count is the number of frames to begin with, which may be 0, PageSize the length of each in
	// bytes, a multiple of device.RangeAlign.
	Count, PageSize int
	// Purpose is their name in the accounting of the device; empty means "pages".
	Purpose string
	// SlabBytes is the memory that is allocated at a time; 0 means 1 GiB, which pins in 0.2 s and
	// leaves no large hole.
	SlabBytes int64
	// Depth is the number of pages that a background copy has under way in each direction, in two
	// halves; 0 means 8. On an H200 (2 MiB pages, GB/s up, down, both): 2 gives 51.2, 51.8, 93.3; 4
	// gives 53.2, 53.4, 95.8; 8 gives 54.2, 54.4, 97.8; 16 gives 54.6, 54.6, 99.4. While demands
	// come, it is one.
	Depth int
	// Lanes is the number of demands that copy at once in each direction; 0 means 4.
	Lanes int
}

// withDefaults returns a copy with every unset field filled in, or what is wrong with it.
func (o Options) withDefaults() (Options, error) {
	if o.Purpose == "" {
		o.Purpose = "pages"
	}
	if o.SlabBytes == 0 {
		o.SlabBytes = 1 << 30
	}
	if o.Depth == 0 {
		o.Depth = 8
	}
	if o.Lanes == 0 {
		o.Lanes = 4
	}
	switch {
	case o.Device == nil:
		return o, fmt.Errorf("frames without a device: %w", tiers.ErrInvalid)
	case o.Count < 0 || o.PageSize < 1 || o.PageSize%device.RangeAlign != 0:
		return o, fmt.Errorf("%d frames of %d bytes: want none or more, of a multiple of %d: %w", o.Count, o.PageSize,
			device.RangeAlign, tiers.ErrInvalid)
	case o.SlabBytes < 0 || o.Depth < 1 || o.Lanes < 1:
		return o, fmt.Errorf("slabs of %d bytes, depth %d, %d lanes: %w", o.SlabBytes, o.Depth, o.Lanes,
			tiers.ErrInvalid)
	}
	return o, nil
}
