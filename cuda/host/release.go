package host

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Trim returns 0: no memory of closed buffers is kept, but for what the garbage collector has not
// yet freed.
func (d *Device) Trim() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, fmt.Errorf("trim host: %w", device.ErrClosed)
	}
	return 0, nil
}

// Alloc allocates a buffer. It is ready at once: no queued work uses its memory.
func (s *stream) Alloc(n int64, purpose string) (device.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.plain("alloc"); err != nil {
		return nil, err
	}
	return s.dev.Alloc(n, purpose)
}

// Release closes the handle of a buffer at once. After the queued work it checks the guards and
// gives the memory back to the accounting; a guard that was overwritten breaks the device.
func (s *stream) Release(m device.Buffer) error {
	b, ok := m.(*buffer)
	if !ok || b == nil || b.dev != s.dev {
		return s.note(fmt.Errorf("release on host: a buffer of another device: %w", device.ErrInvalidArgument))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.plain("release"); err != nil {
		return err
	}
	whole := b.detach()
	if whole == nil {
		return fmt.Errorf("release: buffer for %s: %w", b.purpose, device.ErrClosed)
	}
	s.queue <- operation{mark: func() {
		if err := b.free(whole); err != nil {
			s.dev.broken.CompareAndSwap(nil, &err)
		}
	}}
	return nil
}

// plain returns an error if the stream is closed or captures. The caller holds s.mu.
func (s *stream) plain(op string) error {
	if s.closed {
		return fmt.Errorf("%s: stream: %w", op, device.ErrClosed)
	}
	if s.recording != nil {
		return s.refuse(fmt.Errorf("%s in a capture: %w", op, device.ErrInvalidArgument))
	}
	return nil
}
