package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// memory is device memory that Malloc has allocated.
type memory struct {
	life
	buffer device.Buffer
}

func (m *memory) kind() string   { return "piece of device memory" }
func (m *memory) parent() object { return nil }

func (m *memory) close(*Library) error {
	m.end()
	return m.buffer.Close()
}

// Info returns the free and the total bytes of the memory of a device.
func (l *Library) Info(ctx context.Context, number int) (free, total uint64, err error) {
	d, err := l.forMemory(ctx, number)
	if err != nil {
		return 0, 0, err
	}
	f, t, err := d.Memory()
	return uint64(max(f, 0)), uint64(max(t, 0)), err
}

// Malloc allocates n bytes of the memory of a device, n >= 1, sets them to 0, and returns a handle.
func (l *Library) Malloc(ctx context.Context, number int, n uint64) (handle uint64, err error) {
	if n == 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("%d bytes of device memory: ask for 1 to %d: %w", n, int64(math.MaxInt64),
			device.ErrInvalidArgument)
	}
	d, err := l.forMemory(ctx, number)
	if err != nil {
		return 0, err
	}
	b, err := d.Alloc(int64(n), "worker memory")
	if err != nil {
		return 0, err
	}
	if err = b.Fill(0, int64(n), 0); err == nil {
		handle, err = l.handles.put(&memory{buffer: b}, n)
	}
	if err != nil {
		return 0, errors.Join(err, b.Close())
	}
	return handle, nil
}

// Free frees memory. It waits for copies in progress. A handle of 0 is no error.
func (l *Library) Free(handle uint64) error { return free[*memory](l, handle) }

// Write copies n bytes from src on to the byte of device memory that a handle names. Unless n is 0,
// src is n bytes of the process.
func (l *Library) Write(handle uint64, src unsafe.Pointer, n uint64) error {
	return l.copied(handle, src, n, device.Buffer.Write)
}

// Read copies n bytes to dst, from the byte of device memory on that a handle names. Unless n is 0,
// dst is n bytes of the process.
func (l *Library) Read(dst unsafe.Pointer, handle, n uint64) error {
	return l.copied(handle, dst, n, device.Buffer.Read)
}

func (l *Library) copied(handle uint64, host unsafe.Pointer, n uint64,
	fn func(b device.Buffer, off int64, host []byte) error,
) error {
	m, off, err := find[*memory](&l.handles, handle)
	if err != nil {
		return err
	}
	if err := m.begin(handle); err != nil {
		return err
	}
	defer m.done()
	size := uint64(m.buffer.Size())
	if off > size || n > size-off {
		return fmt.Errorf("%d bytes at byte %d of %d bytes of device memory: %w", n, off, size,
			device.ErrInvalidArgument)
	}
	if n == 0 {
		return nil
	}
	if host == nil {
		return fmt.Errorf("%d bytes at a null pointer of the process: %w", n, device.ErrInvalidArgument)
	}
	return fn(m.buffer, int64(off), unsafe.Slice((*byte)(host), n))
}
