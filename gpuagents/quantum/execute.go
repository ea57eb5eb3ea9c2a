package quantum

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// rowsOf is what a program runs on: rows of a vector, each with its inputs and its bits.
type rowsOf struct {
	v      *vector
	inputs [][]float64 // by row; each may be nil
	bits   []uint64    // by row: the classical bits, which measurements change
	first  uint32      // number of the first row among all rows of the call, for random numbers
	seed   uint64
	far    bool // an input is larger than near
	parity int  // of the host memory for columns
}

// The last word of a Philox counter, so that numbers of different uses differ.
const (
	usedBySamples = 0 // in the kernel
	usedByEvents  = 1
)

// apply runs a program on rows. It waits for the work of all segments but the last one.
func (s *Simulator) apply(ctx context.Context, p *program, r *rowsOf) error {
	collapses := make([]circuit.Matrix, len(r.inputs))
	for i := range p.segments {
		g := &p.segments[i]
		matrices, err := s.matrices(g, r, collapses)
		if err != nil {
			return err
		}
		if err := s.passes(ctx, g, r.v, matrices); err != nil {
			return err
		}
		if g.event == nil {
			continue
		}
		if collapses, err = s.event(ctx, i, g, r); err != nil {
			return fmt.Errorf("%s %d: %w", g.event.Kind, i, err)
		}
	}
	return nil
}

// matrixBytes is the size of a matrix in a slot.
const matrixBytes = 32

// passes launches the passes of a segment.
func (s *Simulator) passes(ctx context.Context, g *segment, v *vector, matrices device.Buffer) error {
	var all []uint64
	ends := make([]int, len(g.passes))
	for k := range g.passes {
		all = append(all, g.passes[k].Words()...)
		ends[k] = len(all)
	}
	if all == nil {
		return nil
	}
	words, err := upload(v, all)
	if err != nil {
		return err
	}
	if matrices == nil {
		matrices = words
	}
	first := 0
	for k, end := range ends {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tiles := g.passes[k].Tiles(uint64(v.amplitudes()))
		if err := s.stream.Launch(s.tile, device.Geometry{Grid: int(min(tiles, s.blocks)), Block: quantumset.Block},
			quantumset.TileArgs{
				Amplitudes: device.Ptr(v.buffer), Pass: device.Range(words, int64(8*first), int64(8*(end-first))),
				Matrices: device.Ptr(matrices), Tiles: tiles, Qubits: uint32(v.qubits), Rows: uint64(v.rows),
			}.Args()...); err != nil {
			return fmt.Errorf("pass %d of %d: %w", k, len(ends), err)
		}
		first = end
	}
	return nil
}

// row returns the matrix of the gate in a row.
func (g *gate) row(r *rowsOf, row int, collapses []circuit.Matrix) (circuit.Matrix, error) {
	switch {
	case g.collapse:
		return collapses[row], nil
	case !g.cond.Holds(r.bits[row]):
		return circuit.Matrix{1, 0, 0, 1}, nil
	}
	m, err := g.product(r.inputs[row])
	if err != nil {
		return m, fmt.Errorf("row %d: %w", int(r.first)+row, err)
	}
	return m, nil
}

// eachPart calls f for 0 to n-1 on all cores, and returns the error of the lowest number that it
// was called with.
func eachPart(n int, f func(i int) error) error {
	parts := min(runtime.GOMAXPROCS(0), (n+255)/256)
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for part := range parts {
		wg.Go(func() {
			for i := part * n / parts; i < (part+1)*n/parts && errs[part] == nil; i++ {
				errs[part] = f(i)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// event reads a qubit in the rows in which the condition of the operation holds. It sets the bit of
// a measurement, and returns the matrix of each row that leaves the qubit at the value, or at 0 for
// a reset, with the norm 1.
func (s *Simulator) event(ctx context.Context, number int, g *segment, r *rowsOf) ([]circuit.Matrix, error) {
	rows, mask := len(r.inputs), uint64(1)<<g.target
	var weights [2][]uint64
	for value := range weights {
		totals, err := r.v.weigh(mask, mask*uint64(value))
		if err != nil {
			return nil, err
		}
		if err := s.stream.Sync(ctx); err != nil {
			return nil, err
		}
		if totals, err := r.v.weights(totals, rows); err != nil {
			return nil, err
		} else {
			weights[value] = r.v.rowWeights(totals)
		}
	}
	matrices := make([]circuit.Matrix, rows)
	for row := range matrices {
		if !g.event.If.Holds(r.bits[row]) {
			matrices[row] = circuit.Matrix{1, 0, 0, 1}
			continue
		}
		key := [2]uint32{uint32(r.seed), uint32(r.seed >> 32)}
		word := kernels.Philox(key, [4]uint32{uint32(number), 0, r.first + uint32(row), usedByEvents})
		draw, _ := bits.Mul64(uint64(word[1])<<32|uint64(word[0]), weights[0][row]+weights[1][row])
		one := draw < weights[1][row]
		weight := weights[0][row]
		if one {
			weight = weights[1][row]
		}
		scale := complex(1/math.Sqrt(float64(weight)/quantumset.WeightScale), 0)
		if g.event.Kind == circuit.Measure {
			if r.bits[row] &^= 1 << g.event.Bit; one {
				r.bits[row] |= 1 << g.event.Bit
			}
		}
		switch {
		case !one:
			matrices[row][0] = scale
		case g.event.Kind == circuit.Reset:
			matrices[row][1] = scale
		default:
			matrices[row][3] = scale
		}
	}
	return matrices, nil
}

// drawn are shots that are queued.
type drawn struct {
	v       *vector
	rows    int
	totals  device.Buffer
	running []uint64      // what totals has, if the host has added it up
	samples device.Buffer // nil without shots
	shots   int
}

// draw queues shots of each row from the last state of a program, 0 or more, and the weights of the
// rows. It waits for the weights of rows of several groups.
func (s *Simulator) draw(ctx context.Context, r *rowsOf, shots int, reads []uint32) (*drawn, error) {
	d := &drawn{v: r.v, rows: len(r.inputs), shots: shots}
	var err error
	if d.totals, err = r.v.weigh(0, 0); err != nil || shots == 0 {
		return d, err
	}
	if r.v.groups() > 1 {
		if err := s.stream.Sync(ctx); err != nil {
			return nil, err
		}
		if d.running, err = r.v.weights(d.totals, d.rows); err != nil {
			return nil, err
		}
		if err := d.totals.Write(0, device.Bytes(d.running)); err != nil {
			return nil, fmt.Errorf("write the weights of %d rows: %w", d.rows, err)
		}
	}
	places, err := upload(r.v, reads)
	if err != nil {
		return nil, err
	}
	n := int64(d.rows) * int64(shots)
	if d.samples, err = r.v.alloc(8 * n); err != nil {
		return nil, err
	}
	return d, s.stream.Launch(s.sample, s.warps(n), quantumset.SampleArgs{
		Amplitudes: device.Ptr(r.v.buffer), Qubits: uint32(r.v.qubits), Group: uint32(r.v.group()),
		Sums: device.Ptr(r.v.sums), Totals: device.Ptr(d.totals), Rows: uint64(d.rows), Shots: uint32(shots),
		Seed: r.seed, First: r.first, Places: device.Ptr(places), Samples: device.Ptr(d.samples),
	}.Args()...)
}

// read returns the shots and the weights of the rows, when the work is done.
func (d *drawn) read() (samples, weights []uint64, err error) {
	totals := d.running
	if totals == nil {
		if totals, err = d.v.weights(d.totals, d.rows); err != nil {
			return nil, nil, err
		}
	}
	weights = d.v.rowWeights(totals)
	if d.samples == nil {
		return nil, weights, nil
	}
	samples = make([]uint64, d.rows*d.shots)
	if err := d.samples.Read(0, device.Bytes(samples)); err != nil {
		return nil, nil, fmt.Errorf("read %d samples: %w", len(samples), err)
	}
	return samples, weights, nil
}

// samples is draw, and returns what it reads.
func (s *Simulator) samples(ctx context.Context, r *rowsOf, shots int, reads []uint32) (
	samples, weights []uint64, err error,
) {
	d, err := s.draw(ctx, r, shots, reads)
	if err != nil {
		return nil, nil, err
	}
	if err := s.stream.Sync(ctx); err != nil {
		return nil, nil, err
	}
	return d.read()
}
