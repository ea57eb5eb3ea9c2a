package device

import (
	"fmt"
	"math"
)

// Kind is the type of one kernel parameter.
type Kind uint8

// The kinds of parameter that a kernel may declare, with their C types.
const (
	KindBuffer  Kind = iota + 1 // T *
	KindUint32                  // unsigned int
	KindInt32                   // int
	KindUint64                  // unsigned long long
	KindFloat32                 // float
)

// String returns the name that signatures and errors use.
func (k Kind) String() string {
	switch k {
	case KindBuffer:
		return "buffer"
	case KindUint32:
		return "uint32"
	case KindInt32:
		return "int32"
	case KindUint64:
		return "uint64"
	case KindFloat32:
		return "float32"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Param is one parameter of a kernel's signature.
type Param struct {
	Name string
	Kind Kind
}

// Arg is one argument of a launch; make it with Ptr, Range, Mapped, Uint32, Int32, Uint64 or
// Float32.
type Arg struct {
	kind Kind
	mem  Sized // a Buffer or a HostBuffer; nil of a scalar
	off  int64 // in the memory; the bits of a scalar
	n    int64 // bytes from off on; -1: to the end
}

// Sized is memory of either kind: a Buffer or a HostBuffer.
type Sized interface {
	Size() int64
}

// Ptr passes a buffer. The kernel sees the address of its first byte.
func Ptr(b Buffer) Arg { return Arg{kind: KindBuffer, mem: b, n: -1} }

// RangeAlign is what the offset of a Range must be a multiple of: the widest access of a thread.
const RangeAlign = 16

// Range passes n bytes of a buffer from off on, off a multiple of RangeAlign. The kernel sees the
// address of the byte at off. The host device stops a kernel that leaves the range; a CUDA device
// cannot see it.
func Range(b Buffer, off, n int64) Arg { return Arg{kind: KindBuffer, mem: b, off: off, n: n} }

// Mapped passes n bytes of host memory from off on, off a multiple of RangeAlign, which the kernel
// reads and writes over the bus: use it for a word that reports progress, and for data that a
// launch reads sparsely. Additions to it are atomic among the threads of the device, but not with
// the host.
func Mapped(h HostBuffer, off, n int64) Arg { return Arg{kind: KindBuffer, mem: h, off: off, n: n} }

// Uint32 passes an unsigned 32-bit integer.
func Uint32(v uint32) Arg { return Arg{kind: KindUint32, off: int64(v)} }

// Bit returns 1 for true, and 0 for false.
func Bit(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// Int32 passes a signed 32-bit integer.
func Int32(v int32) Arg { return Arg{kind: KindInt32, off: int64(uint32(v))} }

// Uint64 passes an unsigned 64-bit integer.
func Uint64(v uint64) Arg { return Arg{kind: KindUint64, off: int64(v)} }

// Float32 passes a float.
func Float32(v float32) Arg { return Arg{kind: KindFloat32, off: int64(math.Float32bits(v))} }

// Kind is the type of the argument; 0 for the zero Arg, which no signature accepts.
func (a Arg) Kind() Kind { return a.kind }

// Bits is a scalar's bit pattern in the low bytes.
func (a Arg) Bits() uint64 {
	if a.kind == KindBuffer {
		return 0
	}
	return uint64(a.off)
}

// Memory is the Buffer or the HostBuffer of a KindBuffer argument, nil otherwise.
func (a Arg) Memory() Sized { return a.mem }

// Span is the part of the buffer that the argument passes, in bytes. It lies inside the buffer once
// CheckArgs has accepted the argument.
func (a Arg) Span() (off, n int64) {
	if a.mem == nil {
		return 0, 0
	}
	if a.n < 0 {
		return a.off, a.mem.Size() - a.off
	}
	return a.off, a.n
}

// CheckArgs compares the arguments of a launch with a kernel's signature and returns
// ErrInvalidArgument that names the first one that does not fit.
func CheckArgs(kernel string, sig []Param, args []Arg) error {
	if len(args) != len(sig) {
		return fmt.Errorf("launch %s: %d arguments for %d parameters: %w", kernel, len(args), len(sig),
			ErrInvalidArgument)
	}
	for i, p := range sig {
		if args[i].kind != p.Kind {
			return fmt.Errorf("launch %s: argument %d (%s) is %v, want %v: %w", kernel, i, p.Name, args[i].kind, p.Kind,
				ErrInvalidArgument)
		}
		if p.Kind != KindBuffer {
			continue
		}
		if args[i].mem == nil {
			return fmt.Errorf("launch %s: argument %d (%s) has no memory: %w", kernel, i, p.Name, ErrInvalidArgument)
		}
		if args[i].off == 0 && args[i].n == -1 {
			continue // the whole buffer
		}
		if off, n := args[i].off, args[i].n; off%RangeAlign != 0 {
			return fmt.Errorf("launch %s: argument %d (%s) starts at %d, not a multiple of %d: %w", kernel, i, p.Name,
				off, RangeAlign, ErrInvalidArgument)
		} else if err := CheckRange("launch "+kernel+": "+p.Name, off, n, args[i].mem.Size()); err != nil {
			return err
		}
	}
	return nil
}

// CheckGeometry returns ErrInvalidArgument unless g is the shape of a launch that a device of these
// properties can run.
func CheckGeometry(kernel string, g Geometry, p *Properties) error {
	if g.Grid < 1 || g.Grid > math.MaxInt32 || g.Block < 1 || g.Block > p.MaxThreadsPerBlock || g.Shared < 0 ||
		g.Shared > maxShared {
		return fmt.Errorf("launch %s: %d blocks of %d threads with %d bytes of shared memory, at most %d threads a "+
			"block: %w",
			kernel, g.Grid, g.Block, g.Shared, p.MaxThreadsPerBlock, ErrInvalidArgument)
	}
	if g.GridY < 0 || g.GridZ < 0 || g.BlockY < 0 || g.BlockZ < 0 || max(g.GridY, g.GridZ) > 65_535 || g.BlockZ > 64 ||
		g.BlockY > p.MaxThreadsPerBlock || g.Block*max(g.BlockY, 1)*max(g.BlockZ, 1) > p.MaxThreadsPerBlock {
		return fmt.Errorf("launch %s: %d x %d x %d blocks of %d x %d x %d threads, at most %d threads a block: %w",
			kernel, g.Grid, g.GridY, g.GridZ, g.Block, g.BlockY, g.BlockZ, p.MaxThreadsPerBlock, ErrInvalidArgument)
	}
	return nil
}

// CheckFlat is CheckGeometry for a kernel of the set.
func CheckFlat(kernel string, g Geometry, p *Properties) error {
	if !g.Flat() {
		return fmt.Errorf("launch %s: %d x %d blocks of %d x %d threads: a kernel of the set has one dimension: %w",
			kernel, g.GridY, g.GridZ, g.BlockY, g.BlockZ, ErrInvalidArgument)
	}
	return CheckGeometry(kernel, g, p)
}

// maxShared is more than any chip has; the chip reports its real limit.
const maxShared = 1 << 20

// CheckRange returns ErrInvalidArgument unless off and n describe a range inside a buffer of size
// bytes.
func CheckRange(what string, off, n, size int64) error {
	if off < 0 || n < 0 || off > size || n > size-off {
		return fmt.Errorf("%s: range [%d, %d+%d) is outside a buffer of %d bytes: %w", what, off, off, n, size,
			ErrInvalidArgument)
	}
	return nil
}
