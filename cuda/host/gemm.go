package host

import (
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func init() {
	twins.Register("gemm_f32", gemm(loadF32, storeF32, loadF32))
	twins.Register("gemm_bf16", gemm(loadBF16, storeBF16, loadBF16))
	twins.Register("gemm_bf16_f32", gemm(loadBF16, storeF32, loadF32))
}

// Conversions of elements to float32 and back, for gemm.
func loadF32(v float32) float32  { return v }
func storeF32(v float32) float32 { return v }
func loadBF16(v uint16) float32  { return device.FromBF16(v) }
func storeBF16(v float32) uint16 { return device.ToBF16(v) }

// gemm returns the twin of the kernels of gemm.cuh for element types: each block computes its share
// of the elements, in the plainest way. Stream.Gemm works on tiles instead.
func gemm[E, O uint16 | float32](get func(E) float32, put func(float32) O,
	old func(O) float32,
) func(*twins.Block, *kernels.ProductBound) {
	return func(blk *twins.Block, p *kernels.ProductBound) {
		a, b, c, n := device.Of[E](p.A), device.Of[E](p.B), device.Of[O](p.C), uint64(p.N)
		// Element e of the result is in row e/n and column e%n, whatever the strides are.
		lo, hi := blk.Part(uint64(p.M) * n)
		for e := lo; e < hi; e++ {
			i, j := e/n, e%n
			var sum float32
			for l := range uint64(p.K) {
				sum += get(a[i*p.ARow+l*p.ACol]) * get(b[l*p.BRow+j*p.BCol])
			}
			sum *= p.Alpha
			at := i*p.CRow + j
			if p.Beta != 0 { // with 0, what c has is not read: it may be anything
				sum += p.Beta * old(c[at])
			}
			c[at] = put(sum)
		}
	}
}

// Gemm queues a product. All cores compute it, and its bits do not depend on the machine. A GPU may
// add in another order, so its results are equal only within rounding.
func (s *stream) Gemm(alpha float32, a, b device.Matrix, beta float32, c device.Matrix) error {
	m, n, k, err := device.CheckGemm(a, b, c)
	if err != nil {
		return s.note(err)
	}
	var mem [3][]byte
	for i, x := range []device.Matrix{a, b, c} {
		if mem[i], err = s.dev.span(x.Buffer, x.Off, x.Bytes(), false); err != nil {
			return s.note(fmt.Errorf("gemm: %w", err))
		}
	}
	if m == 0 || n == 0 { // no element
		return nil
	}
	if alpha == 0 { // the factors are not read
		k = 0
	}
	p := &product{
		m: m, n: n, k: k, alpha: alpha, beta: beta, a: elementsOf(a, mem[0]), b: elementsOf(b, mem[1]),
		c: elementsOf(c, mem[2]),
	}
	return s.note(s.put("gemm", func() *failure {
		return s.dev.pool.run(&grid{
			kernel: "gemm", launch: p, blocks: p.down() * p.across(), threads: 1, background: s.background,
		})
	}, a.Buffer, b.Buffer, c.Buffer))
}

// A block of a product makes a tile of the result. It adds productDepth terms at a time, so that
// the part of a factor stays in the cache.
const (
	tileRows     = 128
	tileColumns  = 256
	productDepth = 256
)

// product is a queued product.
type product struct {
	m, n, k     int
	alpha, beta float32
	a, b, c     elements
}

func (p *product) down() int   { return (p.m + tileRows - 1) / tileRows }
func (p *product) across() int { return (p.n + tileColumns - 1) / tileColumns }

// Run makes a tile of the result.
func (p *product) Run(blk *twins.Block) {
	row, column := blk.Index/p.across()*tileRows, blk.Index%p.across()*tileColumns
	rows, columns := min(tileRows, p.m-row), min(tileColumns, p.n-column)
	sums := make([]float32, tileRows*tileColumns)
	left, right := make([]float32, tileRows*productDepth), make([]float32, tileColumns*productDepth)
	for term := 0; term < p.k; term += productDepth {
		terms := min(productDepth, p.k-term)
		p.a.pack(left, row, rows, term, terms, lanes.ProductRows, false)
		p.b.pack(right, column, columns, term, terms, lanes.ProductColumns, true)
		for j := 0; j < columns; j += lanes.ProductColumns {
			for i := 0; i < rows; i += lanes.ProductRows {
				lanes.AddProduct(left[i*terms:][:lanes.ProductRows*terms], right[j*terms:][:lanes.ProductColumns*terms],
					sums[i*tileColumns+j:], tileColumns)
			}
		}
	}
	for i := range rows {
		for j, sum := range sums[i*tileColumns:][:columns] {
			at := p.c.at(row+i, column+j)
			sum *= p.alpha
			if p.beta != 0 { // with 0, what c has is not read: it may be anything
				sum += p.beta * p.c.get(at)
			}
			p.c.set(at, sum)
		}
	}
}

// elements are the elements of a matrix in memory: float32, or bf16 in narrow.
type elements struct {
	wide        []float32
	narrow      []uint16
	row, column int // from one to the next
}

func elementsOf(m device.Matrix, mem []byte) (e elements) {
	e.row, e.column = m.Step(), 1
	if m.Transposed {
		e.row, e.column = 1, m.Step()
	}
	if m.Elem == device.F32 {
		e.wide = device.Of[float32](mem)
	} else {
		e.narrow = device.Of[uint16](mem)
	}
	return e
}

func (e *elements) at(row, column int) int { return row*e.row + column*e.column }

func (e *elements) get(at int) float32 {
	if e.narrow != nil {
		return device.FromBF16(e.narrow[at])
	}
	return e.wide[at]
}

func (e *elements) set(at int, v float32) {
	if e.narrow != nil {
		e.narrow[at] = device.ToBF16(v)
	} else {
		e.wide[at] = v
	}
}

// pack copies lines of a factor, strip by strip of width lines, and in a strip term by term, with 0
// for lines that are missing. Lines are rows; across they are columns.
func (e *elements) pack(to []float32, line, lines, term, terms, width int, across bool) {
	byLine, byTerm := e.row, e.column
	if across {
		byLine, byTerm = byTerm, byLine
	}
	for i := 0; i < lines; i += width {
		strip := to[i*terms:][:width*terms]
		for x := range width {
			if i+x >= lines {
				for l := range terms {
					strip[l*width+x] = 0
				}
				continue
			}
			at := (line+i+x)*byLine + term*byTerm
			for l := range terms {
				strip[l*width+x] = e.get(at + l*byTerm)
			}
		}
	}
}
