package quantum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

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
	// qubits are 0. Angle and Basis take at most a number for each qubit, Amplitude for each
	// amplitude.
	Prepare []float32
	How     Encoding
	// Shots is the number of readings of each row, whose random numbers are of Seed, the number of the
	// row and the number of the shot. 0: no reading.
	Shots int
	Seed  uint64
	// Expect are Pauli strings. For a circuit that measures before its end, or that resets, a value is
	// the mean over the shots.
	Expect []string
	// Amplitudes asks for the last state of each row.
	Amplitudes bool
}

// checked is a batch whose rows are checked.
type checked struct {
	Batch
	far atomic.Bool // an input is larger than near
}

// Row is the result of a row of a Batch.
type Row struct {
	Samples    []uint64    // a reading for each shot: the bits of the circuit
	Values     []float64   // of Expect
	Amplitudes []complex64 // index has qubit 0 as its lowest bit
	// Norm is the sum of the squared absolute values of the amplitudes, 1 but for rounding; of a
	// circuit that measures before its end, the mean over the shots.
	Norm   float64
	Passes int // over the state of one run
}

// Probabilities returns the squared absolute values of the amplitudes.
func (r *Row) Probabilities() []float32 { return probabilities(r.Amplitudes) }

// maxColumns bounds the columns of a part of a batch, in bytes.
const maxColumns = 32 << 20

// RunBatch runs a batch and calls done with the result of each row, in order. done owns the result;
// its error ends the batch. A circuit whose measurements all come last, and that resets nothing, is
// run once for each row. Another one is run once for each shot. Rows of small circuits share
// launches.
func (s *Simulator) RunBatch(ctx context.Context, b Batch, done func(row int, r *Row) error) (err error) {
	run := &batchRun{checked: checked{Batch: b}, s: s, done: done, each: 1}
	c, err := run.circuit()
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
	run.p = p
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
	most := max(1, min(s.o.BatchBytes/(8<<qubits), maxColumns/max(1, int64(p.width())*8),
		(free-reserve)/(bytesOf(1, qubits)+2*p.rowBytes())))
	if run.v, err = s.newVector(min(total, most), c.Qubits); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.close(ctx)) }()
	for i := range run.ends {
		if err := s.hostFor(i, p, run.v.rows); err != nil {
			return err
		}
		if run.ends[i], err = s.d.NewEvent(); err != nil {
			return err
		}
	}
	return run.all(ctx, total, most)
}

// batchRun is a batch in progress.
type batchRun struct {
	checked
	s    *Simulator
	p    *program
	v    *vector
	each int64 // runs of a row
	done func(row int, r *Row) error
	row  *Row // whose runs are not all done
	// ends are of the parts of even and of odd number: the host prepares a part while the device
	// does the one before.
	ends [2]device.Event
}

// part are runs that are queued. A run of a trajectory has its own row of the vector.
type part struct {
	first, n int64
	r        *rowsOf
	drawn    *drawn
	expected []expected
	end      device.Event
	scratch  []device.Buffer
}

// all does all runs, in parts of at most most.
func (b *batchRun) all(ctx context.Context, total, most int64) error {
	var before *part
	for i, first := 0, int64(0); first < total; i, first = i+1, first+most {
		next, err := b.queue(ctx, i%2, first, min(most, total-first))
		if before != nil {
			err = errors.Join(err, b.finish(ctx, before))
		}
		if err != nil {
			return errors.Join(err, b.forget(next))
		}
		if before = next; b.Amplitudes { // which the next part changes
			if err := b.finish(ctx, before); err != nil {
				return err
			}
			before = nil
		}
	}
	if before == nil {
		return nil
	}
	return b.finish(ctx, before)
}

// close waits for the work and releases what the batch has.
func (b *batchRun) close(ctx context.Context) error {
	err := b.s.stream.Sync(context.WithoutCancel(ctx))
	for _, end := range b.ends {
		if end != nil {
			err = errors.Join(err, end.Close())
		}
	}
	return errors.Join(err, b.v.close())
}

// circuit checks the batch and returns the circuit with the preparation before it.
func (b *checked) circuit() (*circuit.Circuit, error) {
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
func (b *checked) checkRow(i int) error {
	row := b.Inputs[i]
	if len(row) != len(b.Circuit.Inputs) {
		return fmt.Errorf("%w: row %d has %d values, and the circuit %d inputs; give as many", ErrInvalid, i, len(row),
			len(b.Circuit.Inputs))
	}
	most := uint64(0) // bits of the largest absolute value; NaNs have more than infinities
	for _, v := range row {
		most = max(most, math.Float64bits(v)&^(1<<63))
	}
	if !(math.Float64frombits(most) <= near) {
		b.far.Store(true)
		for k, v := range row {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: row %d has %v for input %s; give a finite value", ErrInvalid, i, v,
					b.Circuit.Inputs[k])
			}
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

// queue begins a part. The part with the same parity before it is finished.
func (b *batchRun) queue(ctx context.Context, parity int, first, n int64) (_ *part, err error) {
	t := &part{first: first, n: n, end: b.ends[parity], r: &rowsOf{
		v: b.v, bits: make([]uint64, n), first: uint32(first), seed: b.Seed, parity: parity, far: b.far.Load(),
	}}
	if b.each == 1 {
		t.r.inputs = b.Inputs[first : first+n]
	} else {
		t.r.inputs = make([][]float64, n)
		for i := range t.r.inputs {
			t.r.inputs[i] = b.Inputs[(first+int64(i))/b.each]
		}
	}
	defer func() { t.scratch, b.v.scratch = b.v.scratch, nil }()
	if b.How == Amplitude {
		if err := b.v.write(ctx, n, b.Prepare); err != nil {
			return t, err
		}
	}
	if err := b.s.apply(ctx, b.p, t.r); err != nil {
		return t, err
	}
	if t.drawn, err = b.s.draw(ctx, t.r, b.shots(), b.p.reads); err != nil {
		return t, err
	}
	if t.expected, err = b.s.expect(b.v, b.Expect, b.p.place); err != nil {
		return t, err
	}
	return t, b.s.stream.Record(t.end)
}

// shots is the number of shots of a run.
func (b *batchRun) shots() int {
	if b.each > 1 {
		return 1
	}
	return b.Shots
}

// forget releases the memory of a part behind the queued work.
func (b *batchRun) forget(t *part) (err error) {
	for _, buffer := range t.scratch {
		err = errors.Join(err, b.s.release(buffer))
	}
	t.scratch = nil
	return err
}

// finish waits for a part and hands its rows over.
func (b *batchRun) finish(ctx context.Context, t *part) (err error) {
	defer func() { err = errors.Join(err, b.forget(t)) }()
	if err := t.end.Sync(ctx); err != nil {
		return err
	}
	samples, weights, err := t.drawn.read()
	if err != nil {
		return err
	}
	values, err := valuesOf(t.expected, int(t.n), len(b.Expect))
	if err != nil {
		return err
	}
	shots, passes := b.shots(), b.p.passes()
	rows := make([]Row, (t.n+b.each-1)/b.each+1)
	for i := range int(t.n) {
		of := values[i*len(b.Expect):][:len(b.Expect):len(b.Expect)]
		if b.row == nil {
			b.row, rows = &rows[0], rows[1:]
			b.row.Values, b.row.Passes = of, passes
		} else {
			for k, v := range of {
				b.row.Values[k] += v
			}
		}
		if shots > 0 {
			of := samples[i*shots:][:shots:shots]
			merge(of, t.r.bits[i], b.p.reads)
			if b.row.Samples == nil {
				b.row.Samples = of
			} else {
				b.row.Samples = append(b.row.Samples, of...)
			}
		}
		b.row.Norm += float64(weights[i]) / quantumset.WeightScale
		if b.Amplitudes {
			if b.row.Amplitudes, err = b.v.read(ctx, i, 1, b.p.place); err != nil {
				return err
			}
		}
		if run := t.first + int64(i) + 1; run%b.each == 0 {
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
