package host

import (
	"fmt"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// span returns a range of memory, which the caller has checked against the size. The memory is of
// this device, or with peer of any host device. The range stays valid after Close of its buffer.
func (d *Device) span(m device.Sized, off, n int64, peer bool) ([]byte, error) {
	switch b := m.(type) {
	case *buffer:
		if b == nil || b.dev != d && !peer {
			break
		}
		b.mu.RLock()
		defer b.mu.RUnlock()
		if b.whole == nil {
			return nil, fmt.Errorf("buffer for %s: %w", b.purpose, device.ErrClosed)
		}
		return b.mem[off : off+n : off+n], nil
	case *hostBuffer:
		if b == nil || b.dev != d {
			break
		}
		mem := b.Bytes()
		if mem == nil {
			return nil, fmt.Errorf("host buffer for %s: %w", b.purpose, device.ErrClosed)
		}
		return mem[off : off+n : off+n], nil
	}
	return nil, fmt.Errorf("memory of another device: %w", device.ErrInvalidArgument)
}

// Upload queues a copy from host memory to the device. The caller must not change the source before
// the copy is done.
func (s *stream) Upload(dst device.Buffer, dstOff int64, src device.HostBuffer, srcOff, n int64) error {
	return s.copy("upload", dst, dstOff, src, srcOff, n)
}

// Download queues a copy from the device to host memory.
func (s *stream) Download(dst device.HostBuffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	return s.copy("download", dst, dstOff, src, srcOff, n)
}

// Copy queues a copy between buffers. At least one of them belongs to the stream's device.
func (s *stream) Copy(dst device.Buffer, dstOff int64, src device.Buffer, srcOff, n int64) error {
	return s.copy("copy", dst, dstOff, src, srcOff, n)
}

// copy checks a copy between any two kinds of memory and queues it. op names it in errors.
func (s *stream) copy(op string, dst device.Sized, dstOff int64, src device.Sized, srcOff, n int64) error {
	if dst == nil || src == nil {
		return s.note(fmt.Errorf("%s: no memory: %w", op, device.ErrInvalidArgument))
	}
	if err := device.CheckCopy(op, dstOff, dst.Size(), srcOff, src.Size(), n, dst == src); err != nil {
		return s.note(err)
	}
	to, err := s.dev.span(dst, dstOff, n, op == "copy")
	if err != nil {
		return s.note(fmt.Errorf("%s %d bytes to %d: %w", op, n, dstOff, err))
	}
	from, err := s.dev.span(src, srcOff, n, op == "copy")
	if err != nil {
		return s.note(fmt.Errorf("%s %d bytes from %d: %w", op, n, srcOff, err))
	}
	if op == "copy" && dst.(*buffer).dev != s.dev && src.(*buffer).dev != s.dev {
		return s.note(fmt.Errorf("copy: neither buffer is of the stream's device: %w", device.ErrInvalidArgument))
	}
	s.dev.traffic.Copied(op, n)
	return s.note(s.put(op, func() *failure {
		copy(to, from)
		return nil
	}, dst, src))
}

// UploadAll queues copies of many pieces to the device as one operation. Their destinations must
// not overlap, which is not checked.
func (s *stream) UploadAll(pieces []device.Piece) error { return s.move("upload", true, pieces) }

// DownloadAll queues copies of many pieces to host memory as one operation, likewise.
func (s *stream) DownloadAll(pieces []device.Piece) error { return s.move("download", false, pieces) }

// move checks all pieces before it queues any: a wrong piece changes nothing. up is the direction
// to the device.
func (s *stream) move(op string, up bool, pieces []device.Piece) error {
	type pair struct{ to, from []byte }
	copies := make([]pair, 0, len(pieces))
	var used []device.Sized
	for i, p := range pieces {
		if p.Buffer == nil || p.Host == nil {
			return s.note(fmt.Errorf("%s: piece %d has no memory: %w", op, i, device.ErrInvalidArgument))
		}
		if err := device.CheckCopy(op, p.Off, p.Buffer.Size(), p.HostOff, p.Host.Size(), p.Bytes, false); err != nil {
			return s.note(fmt.Errorf("piece %d: %w", i, err))
		}
		on, err := s.dev.span(p.Buffer, p.Off, p.Bytes, false)
		if err != nil {
			return s.note(fmt.Errorf("%s: piece %d: %w", op, i, err))
		}
		off, err := s.dev.span(p.Host, p.HostOff, p.Bytes, false)
		if err != nil {
			return s.note(fmt.Errorf("%s: piece %d: %w", op, i, err))
		}
		if up {
			copies = append(copies, pair{on, off})
		} else {
			copies = append(copies, pair{off, on})
		}
		used = append(used, p.Buffer, p.Host)
		s.dev.traffic.Copied(op, p.Bytes)
	}
	if len(copies) == 0 { // nothing to order, so nothing to queue
		return nil
	}
	return s.note(s.put(op, func() *failure {
		for _, c := range copies {
			copy(c.to, c.from)
		}
		return nil
	}, used...))
}

// Fill queues a fill of a range with one byte.
func (s *stream) Fill(b device.Buffer, off, n int64, v byte) error {
	if b == nil {
		return s.note(fmt.Errorf("fill: no memory: %w", device.ErrInvalidArgument))
	}
	if err := device.CheckRange("fill", off, n, b.Size()); err != nil {
		return s.note(err)
	}
	mem, err := s.dev.span(b, off, n, false)
	if err != nil {
		return s.note(fmt.Errorf("fill %d bytes at %d: %w", n, off, err))
	}
	return s.note(s.put("fill", func() *failure {
		fill(mem, v)
		return nil
	}, b))
}

// Copy copies from a buffer of any host device at once, without a stream.
func (b *buffer) Copy(off int64, src device.Buffer, srcOff, n int64) error {
	from, ok := src.(*buffer)
	if !ok || from == nil {
		return fmt.Errorf("copy: a buffer of another kind of device: %w", device.ErrInvalidArgument)
	}
	if err := device.CheckCopy("copy", off, b.size, srcOff, from.size, n, b == from); err != nil {
		return err
	}
	if b == from {
		return b.access("copy", 0, b.size, func(mem []byte) { copy(mem[off:off+n], mem[srcOff:srcOff+n]) })
	}
	// Two goroutines that copy in opposite directions lock in the same order.
	if uintptr(unsafe.Pointer(b)) < uintptr(unsafe.Pointer(from)) {
		return nested(b, off, from, srcOff, n, func(to, from []byte) { copy(to, from) })
	}
	return nested(from, srcOff, b, off, n, func(from, to []byte) { copy(to, from) })
}

// nested calls fn with ranges of two buffers, x locked first. The caller gives the buffers in one
// order for both directions, so that two copies cannot deadlock.
func nested(x *buffer, xOff int64, y *buffer, yOff, n int64, fn func(x, y []byte)) (err error) {
	outer := x.access("copy", xOff, n, func(xm []byte) {
		err = y.access("copy", yOff, n, func(ym []byte) { fn(xm, ym) })
	})
	if outer != nil {
		return outer
	}
	return err
}
