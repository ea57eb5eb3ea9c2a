package device

import "unsafe"

// Scalar is an element type that device memory and Go memory lay out alike (little-endian hosts
// only, which every platform with a CUDA driver is).
type Scalar interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Bytes views a slice of scalars as bytes. The result shares s's memory and lives as long as s
// does.
func Bytes[T Scalar](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// Of views bytes as scalars; a tail shorter than one element is left out. It panics when b does not
// start at a multiple of the element's size, which memory from make([]T) or from a device always
// does.
func Of[T Scalar](b []byte) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if len(b) < size {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%uintptr(size) != 0 {
		panic("device.Of: bytes are not aligned for the element type")
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}
