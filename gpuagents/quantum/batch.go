package quantum

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// Batch is runs of one circuit with different inputs.
type Batch struct {
	Circuit *circuit.Circuit
	// Inputs has a row of values for each run; nil: one run of a circuit without inputs.
	Inputs [][]float64
	// Prepare are the classical numbers that the qubits hold first, the same for each row; nil: all
	// qubits are 0. Angle and Basis take at most a number for each qubit, Amplitude for each amplitude.
	Prepare []float32
	How     Encoding
	// Shots is the number of readings of each row, whose random numbers are of Seed, the number of the
	// row and the number of the shot. 0: no reading.
	Shots int
	Seed  uint64
	// Expect are Pauli strings. For a circuit that measures before its end, or that resets, a value is the
	// mean over the shots.
	Expect []string
	// Amplitudes asks for the last state of each row.
	Amplitudes bool
}

// Row is the result of a row of a Batch.
type Row struct {
	Samples    []uint64    // a reading for each shot: the bits of the circuit
	Values     []float64   // of Expect
	Amplitudes []complex64 // index has qubit 0 as its lowest bit
	// Norm is the sum of the squared absolute values of the amplitudes, 1 but for rounding; of a circuit
	// that measures before its end, the mean over the shots.
	Norm   float64
	Passes int // over the state of one run
}

// Probabilities returns the squared absolute values of the amplitudes.
func (r *Row) Probabilities() []float32 { return probabilities(r.Amplitudes) }

// maxMatrices bounds the matrices of a batch that are in memory at a time, in bytes.
const maxMatrices = 64 << 20

// RunBatch runs a batch and calls done with the result of each row, in order. done owns the result; its
// error ends the batch. A circuit whose measurements all come last, and that resets nothing, is run once
// for each row. Another one is run once for each shot. Rows of small circuits share launches.
func (s *Simulator) RunBatch(ctx context.Context, b Batch, done func(row int, r *Row) error) (err error) {
	c, err := b.circuit()
	if err != nil {
		return err
	}
	if err := s.room(c.Qubits); err != nil {
		return err
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	qubits := rowQubits(c.Qubits)
	p, err := lower(c, identity(c.Qubits), qubits, lowerOptions{s.unplanned, b.How != Amplitude})
	if err != nil {
		return err
	}
	run := &batchRun{Batch: b, s: s, p: p, done: done, each: 1}
	if len(p.segments) > 1 {
		run.each = int64(b.Shots)
	}
	if err := run.check(); err != nil {
		return err
	}
	total := int64(len(run.Inputs)) * run.each
	free, _, err := s.d.Memory()
	if err != nil {
		return fmt.Errorf("memory of the device: %w", err)
	}
	slots := int64(p.slots())
	most := max(1, min(s.o.BatchBytes/(8<<qubits), maxMatrices/max(1, slots*matrixBytes),
		(free-reserve)/(bytesOf(1, qubits)+slots*matrixBytes)))
	if run.v, err = s.newVector(min(total, most), c.Qubits); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeHost(ctx, run.host), run.v.close()) }()
	if run.host, err = s.hostFor(p, run.v.rows); err != nil {
		return err
	}
	for first := int64(0); first < total; first += most {
		if err := run.part(ctx, first, min(most, total-first)); err != nil {
			return err
		}
	}
	return nil
}

// batchRun is a batch in progress.
type batchRun struct {
	Batch
	s    *Simulator
	p    *program
	v    *vector
	host device.HostBuffer
	each int64 // runs of a row
	done func(row int, r *Row) error
	row  *Row // whose runs are not all done
}

// circuit checks the batch and returns the circuit with the preparation before it.
func (b *Batch) circuit() (*circuit.Circuit, error) {
	c := b.Circuit
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if b.Inputs == nil {
		b.Inputs = [][]float64{nil}
	}
	if err := eachPart(len(b.Inputs), b.checkRow); err != nil {
		return nil, err
	}
	if b.Shots < 0 || b.Shots > MaxShots || int64(b.Shots)*int64(len(b.Inputs)) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: %d shots of %d rows; give at most %d, and 2^32 in all", ErrInvalid, b.Shots,
			len(b.Inputs), MaxShots)
	}
	if err := checkPaulis(b.Expect, c.Qubits); err != nil {
		return nil, err
	}
	if b.Amplitudes {
		if err := checkRead(c.Qubits); err != nil {
			return nil, err
		}
	}
	if b.Prepare == nil {
		return c, nil
	}
	before, err := encoded(b.Prepare, b.How)
	if err != nil {
		return nil, err
	}
	if before.Qubits > c.Qubits {
		return nil, fmt.Errorf("%w: %d numbers to prepare take %d qubits, and the circuit has %d; give fewer numbers",
			ErrInvalid, len(b.Prepare), before.Qubits, c.Qubits)
	}
	all := *c
	all.Ops = append(before.Ops, c.Ops...)
	return &all, nil
}

// checkRow returns an error about the inputs of a row.
func (b *Batch) checkRow(i int) error {
	row := b.Inputs[i]
	if len(row) != len(b.Circuit.Inputs) {
		return fmt.Errorf("%w: row %d has %d values, and the circuit %d inputs; give as many", ErrInvalid, i, len(row),
			len(b.Circuit.Inputs))
	}
	for k, v := range row {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: row %d has %v for input %s; give a finite value", ErrInvalid, i, v,
				b.Circuit.Inputs[k])
		}
	}
	return nil
}

// check returns an error about outputs that the circuit does not have.
func (b *batchRun) check() error {
	switch trajectories := len(b.p.segments) > 1; {
	case b.Shots > 0 && !b.p.measured:
		return fmt.Errorf("%w: %d shots of a circuit without a measurement; add one", ErrInvalid, b.Shots)
	case trajectories && b.Amplitudes:
		return fmt.Errorf("%w: the circuit measures or resets before its end, so a row has a state for each shot; "+
			"ask for samples or expectation values", ErrInvalid)
	case trajectories && b.Shots == 0:
		return fmt.Errorf("%w: the circuit measures or resets before its end; give shots", ErrInvalid)
	}
	return nil
}

// part does some runs. A run of a trajectory has its own row of the vector.
func (b *batchRun) part(ctx context.Context, first, n int64) (err error) {
	r := &rowsOf{v: b.v, bits: make([]uint64, n), first: uint32(first), seed: b.Seed, host: b.host}
	for i := range n {
		r.inputs = append(r.inputs, b.Inputs[(first+i)/b.each])
	}
	defer func() { err = errors.Join(err, b.v.forget()) }()
	if b.How == Amplitude {
		if err := b.v.write(ctx, n, b.Prepare); err != nil {
			return err
		}
	}
	if err := b.s.apply(ctx, b.p, r); err != nil {
		return err
	}
	shots := b.Shots
	if b.each > 1 {
		shots = 1
	}
	samples, weights, err := b.s.samples(ctx, r, shots, b.p.reads)
	if err != nil {
		return err
	}
	values, err := b.s.expectations(ctx, b.v, int(n), b.Expect, b.p.place)
	if err != nil {
		return err
	}
	for i := range int(n) {
		if b.row == nil {
			b.row = &Row{Values: make([]float64, len(b.Expect)), Passes: b.p.passes()}
		}
		if shots > 0 {
			of := samples[i*shots:][:shots:shots]
			merge(of, r.bits[i], b.p.reads)
			b.row.Samples = append(b.row.Samples, of...)
		}
		for k, v := range values[i] {
			b.row.Values[k] += v
		}
		b.row.Norm += float64(weights[i]) / quantumset.WeightScale
		if b.Amplitudes {
			if b.row.Amplitudes, err = b.v.read(ctx, i, 1, b.p.place); err != nil {
				return err
			}
		}
		if run := first + int64(i) + 1; run%b.each == 0 {
			if err := b.end(int(run/b.each) - 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// end hands a row over.
func (b *batchRun) end(row int) error {
	for k := range b.row.Values {
		b.row.Values[k] /= float64(b.each)
	}
	b.row.Norm /= float64(b.each)
	r := b.row
	b.row = nil
	return b.done(row, r)
}
