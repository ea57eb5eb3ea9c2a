package quantum

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// state is a State of a Simulator. The mutex of the simulator guards it.
type state struct {
	s      *Simulator
	v      *vector // nil once closed
	qubits int
	place  []int // bit of an index for each qubit
	fresh  bool  // all qubits are 0, and the memory is not written yet
	runs   uint32
	// reads, bits and readBits are what the last circuit has read: qubits in the end, by the bit of an
	// index, and the bits before. readBits is 0 where it has not measured.
	reads    []uint32
	bits     uint64
	readBits int
}

// Qubits implements State.
func (t *state) Qubits() int { return t.qubits }

// Close implements State.
func (t *state) Close() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.v == nil {
		return nil
	}
	v := t.v
	t.v = nil
	return v.close()
}

// of returns a state of this simulator that is open, or an error. s.mu is held.
func (s *Simulator) of(st State) (*state, error) {
	t, ok := st.(*state)
	if !ok || t.s != s {
		return nil, fmt.Errorf("%w: the state is of another processor; prepare it with this one", ErrInvalid)
	}
	if t.v == nil {
		return nil, fmt.Errorf("%w: the state is closed; prepare another one", ErrInvalid)
	}
	return t, nil
}

// PrepareState implements Processor. A state in which all qubits are 0 takes no pass.
func (s *Simulator) PrepareState(ctx context.Context, classical []float32, how Encoding) (State, error) {
	c, err := encoded(classical, how)
	if err != nil {
		return nil, err
	}
	if err := s.room(c.Qubits); err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	v, err := s.newVector(1, c.Qubits)
	if err != nil {
		return nil, err
	}
	t := &state{s: s, v: v, qubits: c.Qubits, place: identity(c.Qubits), fresh: true}
	if how == Amplitude {
		t.fresh, err = false, v.write(ctx, 1, classical)
	} else if len(c.Ops) > 0 {
		err = s.runOn(ctx, t, c)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare a state of %d qubits: %w", c.Qubits, err), v.close())
	}
	return t, nil
}

// encoded returns the circuit that prepares a state, or for amplitudes one without operations.
func encoded(classical []float32, how Encoding) (*circuit.Circuit, error) {
	if len(classical) == 0 {
		return nil, fmt.Errorf("%w: no numbers to prepare a state of; give one at least", ErrInvalid)
	}
	c := &circuit.Circuit{Qubits: len(classical)}
	switch how {
	case Amplitude:
		c.Qubits = max(1, bits.Len(uint(len(classical)-1)))
		return c, nil
	case Angle, Basis:
	default:
		return nil, fmt.Errorf("%w: encoding %d; use Amplitude, Angle or Basis", ErrInvalid, how)
	}
	if c.Qubits > circuit.MaxQubits {
		return nil, fmt.Errorf("%w: %d numbers for %d qubits at most; give fewer", ErrInvalid, c.Qubits,
			circuit.MaxQubits)
	}
	for i, x := range classical {
		var err error
		switch {
		case how == Angle:
			c.Ops, err = circuit.Append(c.Ops, "ry", []circuit.Angle{circuit.Number(float64(x))}, i)
		case x == 1:
			c.Ops, err = circuit.Append(c.Ops, "x", nil, i)
		case x != 0:
			err = fmt.Errorf("%w: number %d is %v; give 0 or 1", ErrInvalid, i, x)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, c.Validate()
}

func identity(n int) []int {
	place := make([]int, n)
	for q := range place {
		place[q] = q
	}
	return place
}

// Run implements Processor. A measurement before the end of the circuit, and a reset, leave the
// state at the value that was read; the numbers are of Options.Seed and of the number of the run of
// the state. A failed run leaves a state that can only be closed.
func (s *Simulator) Run(ctx context.Context, st State, c *circuit.Circuit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if len(c.Inputs) > 0 {
		return fmt.Errorf("%w: the circuit has %d inputs; run it by RunBatch with their values", ErrInvalid,
			len(c.Inputs))
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	t, err := s.of(st)
	if err != nil {
		return err
	}
	if c.Qubits != t.qubits {
		return fmt.Errorf("%w: a circuit of %d qubits on a state of %d; give as many", ErrInvalid, c.Qubits, t.qubits)
	}
	return s.runOn(ctx, t, c)
}

// runOn is Run with s.mu held.
func (s *Simulator) runOn(ctx context.Context, t *state, c *circuit.Circuit) error {
	p, err := lower(c, t.place, t.v.qubits, lowerOptions{s.unplanned, t.fresh})
	if err != nil {
		return err
	}
	r := t.rows()
	r.seed, r.first = s.o.Seed, t.runs
	if err := s.hostFor(0, p, t.v.rows); err != nil {
		return err
	}
	if err = s.apply(ctx, p, r); err == nil {
		err = s.stream.Sync(ctx)
	}
	if err != nil { // the next call uses the host memory again
		err = errors.Join(err, s.stream.Sync(context.WithoutCancel(ctx)))
	}
	if err = errors.Join(err, t.v.forget()); err != nil {
		err, t.v = errors.Join(err, t.v.close()), nil
		return err
	}
	t.fresh, t.place, t.bits = false, p.place, r.bits[0]
	t.runs++
	if t.reads, t.readBits = p.reads, 0; p.measured {
		t.readBits = c.Bits
	}
	return nil
}

// rows returns the state as the only row of a call.
func (t *state) rows() *rowsOf { return &rowsOf{v: t.v, inputs: [][]float64{nil}, bits: []uint64{0}} }

// settle makes the memory of a state in which all qubits are 0.
func (t *state) settle(ctx context.Context) error {
	if !t.fresh {
		return nil
	}
	return t.s.runOn(ctx, t, &circuit.Circuit{Qubits: t.qubits})
}

// use begins a call that reads a state. The caller calls done.
func (s *Simulator) use(ctx context.Context, st State) (t *state, done func(*error), err error) {
	if err := s.lock(ctx); err != nil {
		return nil, nil, err
	}
	if t, err = s.of(st); err == nil {
		err = t.settle(ctx)
	}
	if err != nil {
		s.mu.Unlock()
		return nil, nil, err
	}
	return t, func(err *error) {
		*err = errors.Join(*err, t.v.forget())
		s.mu.Unlock()
	}, nil
}

// Measure implements Processor.
func (s *Simulator) Measure(ctx context.Context, st State, shots int, seed uint64) (Counts, error) {
	samples, n, err := s.Samples(ctx, st, shots, seed)
	if err != nil {
		return Counts{}, err
	}
	return CountsOf(samples, n), nil
}

// Samples is Measure with the reading of each shot, and the number of bits of a reading.
func (s *Simulator) Samples(ctx context.Context, st State, shots int, seed uint64) (
	samples []uint64, n int, err error,
) {
	if err := checkShots(shots); err != nil {
		return nil, 0, err
	}
	t, done, err := s.use(ctx, st)
	if err != nil {
		return nil, 0, err
	}
	defer done(&err)
	reads, before, n := t.reads, t.bits, t.readBits
	if n == 0 {
		n, before, reads = t.qubits, 0, allReads(t.place, t.v.qubits)
	}
	r := t.rows()
	r.seed = seed
	if samples, _, err = s.samples(ctx, r, shots, reads); err != nil {
		return nil, 0, err
	}
	merge(samples, before, reads)
	return samples, n, nil
}

// merge adds the bits that were read before the end of a circuit.
func merge(samples []uint64, before uint64, reads []uint32) {
	for _, bit := range reads {
		if bit != quantumset.NoPlace {
			before &^= 1 << bit
		}
	}
	for i := range samples {
		samples[i] |= before
	}
}

// allReads reads each qubit into the bit of its number.
func allReads(place []int, qubits int) []uint32 {
	reads := make([]uint32, qubits)
	for i := range reads {
		reads[i] = quantumset.NoPlace
	}
	for q, at := range place {
		reads[at] = uint32(q)
	}
	return reads
}

func checkShots(shots int) error {
	if shots < 1 || shots > MaxShots {
		return fmt.Errorf("%w: %d shots; give 1 to %d", ErrInvalid, shots, MaxShots)
	}
	return nil
}

// maxRead is the largest state whose amplitudes are copied to the host: 2 GiB.
const maxRead = 28

func checkRead(qubits int) error {
	if qubits > maxRead {
		return fmt.Errorf("%w: the amplitudes of %d qubits; ask for samples or expectation values above %d qubits",
			ErrInvalid, qubits, maxRead)
	}
	return nil
}

// Amplitudes returns the amplitudes of a state of at most 28 qubits, whose index has qubit 0 as its
// lowest bit.
func (s *Simulator) Amplitudes(ctx context.Context, st State) (all []complex64, err error) {
	if err := checkRead(st.Qubits()); err != nil {
		return nil, err
	}
	t, done, err := s.use(ctx, st)
	if err != nil {
		return nil, err
	}
	defer done(&err)
	return t.v.read(ctx, 0, 1, t.place)
}

// Probabilities returns the squared absolute values of the amplitudes of a state of at most 28
// qubits.
func (s *Simulator) Probabilities(ctx context.Context, st State) ([]float32, error) {
	all, err := s.Amplitudes(ctx, st)
	if err != nil {
		return nil, err
	}
	return probabilities(all), nil
}

func probabilities(all []complex64) []float32 {
	p := make([]float32, len(all))
	for i, a := range all {
		p[i] = real(a)*real(a) + imag(a)*imag(a)
	}
	return p
}

// Norm returns the sum of the squared absolute values of the amplitudes, which is 1 but for
// rounding.
func (s *Simulator) Norm(ctx context.Context, st State) (norm float64, err error) {
	t, done, err := s.use(ctx, st)
	if err != nil {
		return 0, err
	}
	defer done(&err)
	_, weights, err := s.samples(ctx, t.rows(), 0, nil)
	if err != nil {
		return 0, err
	}
	return float64(weights[0]) / quantumset.WeightScale, nil
}
