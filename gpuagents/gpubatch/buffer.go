package gpubatch

import (
	"errors"
	"io"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Buffer is a staging buffer on a device. It grows with the batches that pass through it. The zero
// value is empty. One goroutine uses it at a time; its owner closes it.
type Buffer struct {
	Memory device.Buffer // nil: none was allocated, or it was closed
}

// Grow makes the buffer at least n bytes long. Its content is undefined after that.
func (b *Buffer) Grow(dev device.Device, n int, purpose string) error {
	if b.Memory != nil && b.Memory.Size() >= int64(n) {
		return nil
	}
	if err := b.Close(); err != nil {
		return err
	}
	// Half as much again, so that batches of similar size grow it once.
	memory, err := dev.Alloc(int64(n+n/2+64), purpose)
	if err != nil {
		return err
	}
	b.Memory = memory
	return nil
}

// Close releases the memory. A second call does nothing, and Grow may follow.
func (b *Buffer) Close() error {
	if b.Memory == nil {
		return nil
	}
	err := b.Memory.Close()
	b.Memory = nil
	return err
}

// CloseAll closes what is not nil, in order, and returns all errors.
func CloseAll(all ...io.Closer) error {
	var errs []error
	for _, c := range all {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
