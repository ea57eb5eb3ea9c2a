package device

import (
	"fmt"
	"math"
	"unsafe"
)

// View is a Buffer as elements of one type; offsets and lengths are elements. Its Close is the
// Buffer's, and what holds for a Buffer holds for it.
type View[T Scalar] struct {
	Buffer
}

// Make allocates n elements.
func Make[T Scalar](d Device, n int64, purpose string) (View[T], error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if n < 0 || n > math.MaxInt64/size {
		return View[T]{}, fmt.Errorf("alloc %d elements of %d bytes for %s: %w", n, size, purpose, ErrInvalidArgument)
	}
	b, err := d.Alloc(n*size, purpose)
	if err != nil {
		return View[T]{}, err
	}
	return View[T]{b}, nil
}

// From allocates memory for a slice and copies it there.
func From[T Scalar](d Device, data []T, purpose string) (View[T], error) {
	v, err := Make[T](d, int64(len(data)), purpose)
	if err != nil {
		return v, err
	}
	if err := v.Set(0, data); err != nil {
		_ = v.Close() // the first error is the one to tell
		return View[T]{}, err
	}
	return v, nil
}

// Len is the number of elements.
func (v View[T]) Len() int64 {
	var zero T
	return v.Size() / int64(unsafe.Sizeof(zero))
}

// Set copies elements into the memory, the first to index i.
func (v View[T]) Set(i int64, src []T) error {
	off, err := v.at(i)
	if err != nil {
		return err
	}
	return v.Write(off, Bytes(src))
}

// Get copies elements out of the memory, beginning with index i, until dst is full.
func (v View[T]) Get(i int64, dst []T) error {
	off, err := v.at(i)
	if err != nil {
		return err
	}
	return v.Read(off, Bytes(dst))
}

// All returns a copy of the elements.
func (v View[T]) All() ([]T, error) {
	all := make([]T, v.Len())
	return all, v.Get(0, all)
}

// at is the offset of element i in bytes, which the Buffer checks.
func (v View[T]) at(i int64) (int64, error) {
	var zero T
	size := int64(unsafe.Sizeof(zero))
	if i < 0 || i > math.MaxInt64/size {
		return 0, fmt.Errorf("element %d of %d: %w", i, v.Len(), ErrInvalidArgument)
	}
	return i * size, nil
}
