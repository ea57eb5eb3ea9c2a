package quantum

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// recipes tell the device how the matrices of the slots of a segment are made of columns. A row has
// its inputs in the first columns, then the terms of angles that are not inputs, and then the
// matrices of the gates that only the host can make: of conditions, collapses, and powers.
type recipes struct {
	words  []uint64
	slots  int
	inputs int // columns, 0 if no angle is of an input
	terms  []*circuit.Term
	given  []*gate
	// unitary are the other gates, and far reports whether the sum of an angle of theirs may
	// overflow.
	unitary []*gate
	far     bool
}

// width is the number of columns.
func (p *recipes) width() int { return p.inputs + len(p.terms) + 8*len(p.given) }

// bytes is the memory of a row: columns and matrices.
func (p *recipes) bytes() int64 { return 8*int64(p.width()) + matrixBytes*int64(p.slots) }

// near is a number by which sums and products of angles stay finite.
const near = 0x1p500

// newRecipes returns the recipes of gates of a circuit with some inputs, by slot.
func newRecipes(gates []*gate, inputs int) *recipes {
	p := &recipes{slots: len(gates)}
	columns := map[*circuit.Term]int{}
	for _, g := range gates {
		for _, f := range g.factors {
			if f.unitary == nil || g.hostOnly() {
				continue
			}
			for _, a := range f.unitary.Angles() {
				value, scale, of := a.Linear()
				p.far = p.far || !(math.Abs(value) <= near && math.Abs(scale) <= near)
				if of == nil {
					continue
				}
				if _, ok := of.Input(); ok {
					p.inputs = inputs
				} else if _, ok := columns[of]; !ok {
					columns[of] = len(p.terms)
					p.terms = append(p.terms, of)
				}
			}
		}
	}
	var factors []uint64
	p.words = make([]uint64, len(gates))
	for slot, g := range gates {
		first := uint64(len(factors) / quantumset.FactorWords)
		if g.hostOnly() {
			words := make([]uint64, quantumset.FactorWords)
			words[0], words[quantumset.FactorColumns] = quantumset.FactorGiven, uint64(p.width())
			p.given = append(p.given, g)
			factors = append(factors, words...)
		} else {
			p.unitary = append(p.unitary, g)
			for _, f := range g.factors {
				factors = append(factors, p.factor(f, columns)...)
			}
			if g.last {
				p.words[slot] = quantumset.RecipeLast
			}
		}
		p.words[slot] |= first | uint64(len(factors)/quantumset.FactorWords)<<32
	}
	p.words = append(p.words, factors...)
	return p
}

// hostOnly reports whether only the host can make the matrix of the gate.
func (g *gate) hostOnly() bool {
	if g.collapse || g.cond.Count > 0 {
		return true
	}
	for _, f := range g.factors {
		if f.unitary != nil && f.unitary.Power != 0 && f.unitary.Power != 1 {
			return true
		}
	}
	return false
}

// factor returns the words of a factor. columns are behind the inputs.
func (p *recipes) factor(f factor, columns map[*circuit.Term]int) []uint64 {
	words := make([]uint64, quantumset.FactorWords)
	numbers := words[quantumset.FactorNumbers:]
	if f.unitary == nil {
		words[0] = quantumset.FactorConstant
		for i, v := range f.matrix {
			numbers[2*i], numbers[2*i+1] = math.Float64bits(real(v)), math.Float64bits(imag(v))
		}
		return words
	}
	words[0] = quantumset.FactorUnitary
	for i, a := range f.unitary.Angles() {
		value, scale, of := a.Linear()
		if numbers[2*i] = math.Float64bits(value); of == nil {
			continue
		}
		numbers[2*i+1] = math.Float64bits(scale)
		column, ok := of.Input()
		if !ok {
			column = p.inputs + columns[of]
		}
		words[quantumset.FactorColumns+i/2] |= uint64(column) << (32 * (i % 2))
	}
	return words
}

// fill sets the columns of a row.
func (p *recipes) fill(to []float64, r *rowsOf, row int, collapses []circuit.Matrix) error {
	inputs, far := r.inputs[row], p.far || r.far
	if p.inputs > 0 {
		copy(to, inputs)
	}
	for i, t := range p.terms {
		v := t.Eval(inputs)
		to[p.inputs+i] = v
		far = far || !(math.Abs(v) <= near)
	}
	at := to[p.inputs+len(p.terms):]
	for _, g := range p.given {
		m, err := g.row(r, row, collapses)
		if err != nil {
			return err
		}
		for i, v := range m {
			at[2*i], at[2*i+1] = real(v), imag(v)
		}
		at = at[8:]
	}
	if far { // an angle may not be finite
		for _, g := range p.unitary {
			if _, err := g.row(r, row, collapses); err != nil {
				return err
			}
		}
	}
	return nil
}

// matrices queues that the matrices of the slots of a segment are made: nil if it has none. The
// copies from the host memory that were queued before are done.
func (s *Simulator) matrices(g *segment, r *rowsOf, collapses []circuit.Matrix) (device.Buffer, error) {
	p := g.recipes
	if p.slots == 0 {
		return nil, nil
	}
	width, rows := p.width(), len(r.inputs)
	host := s.hosts[r.parity]
	all := device.Of[float64](host.Bytes())
	if err := eachPart(rows, func(row int) error {
		return p.fill(all[row*width:][:width:width], r, row, collapses)
	}); err != nil {
		return nil, err
	}
	columns, err := r.v.alloc(8 * int64(width) * int64(rows))
	if err != nil {
		return nil, err
	}
	words, err := upload(r.v, p.words)
	if err != nil {
		return nil, err
	}
	matrices, err := r.v.alloc(matrixBytes * int64(p.slots) * r.v.rows)
	if err != nil {
		return nil, err
	}
	if err := s.stream.Upload(columns, 0, host, 0, 8*int64(width)*int64(rows)); err != nil {
		return nil, err
	}
	if err := s.stream.Launch(s.matrix, s.warps(int64(p.slots*rows+31)/32), quantumset.MatrixArgs{
		Columns: device.Ptr(columns), Width: uint32(width), Recipes: device.Ptr(words), Slots: uint32(p.slots),
		Made: uint64(rows), Rows: uint64(r.v.rows), Matrices: device.Ptr(matrices),
	}.Args()...); err != nil {
		return nil, fmt.Errorf("make %d matrices of %d rows: %w", p.slots, rows, err)
	}
	return matrices, nil
}

// hostFor makes one of the host memories large enough for the columns of any segment of a program.
// No copy from it is queued.
func (s *Simulator) hostFor(parity int, p *program, rows int64) error {
	host, n := &s.hosts[parity], 8*int64(p.width())*rows
	if *host != nil && (*host).Size() >= n || n == 0 {
		return nil
	}
	if *host != nil {
		if err := (*host).Close(); err != nil {
			return err
		}
		*host = nil
	}
	var err error
	if *host, err = s.d.AllocHost(n, purpose); err != nil {
		*host = nil
		return fmt.Errorf("host memory for %d columns of %d rows: %w", p.width(), rows, err)
	}
	return nil
}
