package device

import (
	"fmt"
	"math"
)

// Elem is the type of a matrix's elements.
type Elem uint8

// The types of elements.
const (
	F32  Elem = iota + 1 // float
	BF16                 // the upper half of a float: 8 bits of exponent, 7 of fraction
)

// Bytes is the size of an element.
func (e Elem) Bytes() int64 {
	if e == BF16 {
		return 2
	}
	return 4
}

// String is the name in errors.
func (e Elem) String() string {
	switch e {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("elem(%d)", uint8(e))
}

// Matrix is a part of a buffer: Rows rows of Cols elements, one after the other. Transposed says
// that the matrix is its transpose, for which nothing is moved.
type Matrix struct {
	Buffer     Buffer
	Off        int64 // bytes, a multiple of RangeAlign
	Rows, Cols int   // as they stand in memory
	Stride     int   // elements from a row to the next; 0: Cols
	Elem       Elem
	Transposed bool
}

// Step is the stride.
func (m Matrix) Step() int {
	if m.Stride == 0 {
		return m.Cols
	}
	return m.Stride
}

// Size is rows and columns after the transposition.
func (m Matrix) Size() (rows, cols int) {
	if m.Transposed {
		return m.Cols, m.Rows
	}
	return m.Rows, m.Cols
}

// Bytes is the length of the part from Off on. The matrix has passed check.
func (m Matrix) Bytes() int64 {
	if m.Rows == 0 || m.Cols == 0 {
		return 0
	}
	return (int64(m.Rows-1)*int64(m.Step()) + int64(m.Cols)) * m.Elem.Bytes()
}

func (m Matrix) check(name string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("gemm: %s: %s: %w", name, fmt.Sprintf(format, args...), ErrInvalidArgument)
	}
	switch {
	case m.Buffer == nil:
		return bad("no memory")
	case m.Elem != F32 && m.Elem != BF16:
		return bad("elements are %v", m.Elem)
	case m.Rows < 0 || m.Cols < 0 || m.Rows > math.MaxInt32 || m.Cols > math.MaxInt32 || m.Step() > math.MaxInt32:
		return bad("%d x %d with stride %d", m.Rows, m.Cols, m.Stride)
	case m.Step() < m.Cols:
		return bad("stride %d is less than %d columns", m.Stride, m.Cols)
	case m.Off%RangeAlign != 0:
		return bad("starts at %d, not a multiple of %d", m.Off, RangeAlign)
	}
	// Less than 2^31 * 2^31 * 4 bytes, which an int64 holds.
	return CheckRange("gemm: "+name, m.Off, m.Bytes(), m.Buffer.Size())
}

// CheckGemm returns ErrInvalidArgument unless c = alpha*a*b + beta*c is possible, and the sizes: a
// is m x k, b is k x n.
func CheckGemm(a, b, c Matrix) (m, n, k int, err error) {
	for name, x := range map[string]Matrix{"a": a, "b": b, "c": c} {
		if err := x.check(name); err != nil {
			return 0, 0, 0, err
		}
	}
	m, k = a.Size()
	kb, n := b.Size()
	if mc, nc := c.Size(); kb != k || mc != m || nc != n {
		return 0, 0, 0, fmt.Errorf("gemm: %d x %d times %d x %d into %d x %d: %w", m, k, kb, n, mc, nc,
			ErrInvalidArgument)
	}
	if c.Transposed || a.Elem != b.Elem || c.Elem != a.Elem && c.Elem != F32 {
		return 0, 0, 0, fmt.Errorf("gemm: %v times %v into %v (transposed: %v): %w", a.Elem, b.Elem, c.Elem,
			c.Transposed, ErrInvalidArgument)
	}
	for _, x := range []Matrix{a, b} {
		if x.Buffer == c.Buffer && x.Off < c.Off+c.Bytes() && c.Off < x.Off+x.Bytes() {
			return 0, 0, 0, fmt.Errorf("gemm: the result overlaps a factor: %w", ErrInvalidArgument)
		}
	}
	return m, n, k, nil
}

// ToBF16 rounds to the nearest, ties to even.
func ToBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if bits&0x7fffffff > 0x7f800000 { // NaN, which rounding could turn into an infinity
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// FromBF16 is exact.
func FromBF16(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// RoundBF16 returns the nearest bf16, ties to even.
func RoundBF16(v float32) float32 { return FromBF16(ToBF16(v)) }
