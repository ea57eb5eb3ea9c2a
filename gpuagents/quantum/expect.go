package quantum

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
)

// Expect implements Processor. Strings that flip the same qubits, as all strings of I and Z, share
// a pass that reads the state; the sums are of integers of 2^-62, so they do not depend on an
// order.
func (s *Simulator) Expect(ctx context.Context, st State, paulis []string) (values []float64, err error) {
	if err := checkPaulis(paulis, st.Qubits()); err != nil {
		return nil, err
	}
	t, done, err := s.use(ctx, st)
	if err != nil {
		return nil, err
	}
	defer done(&err)
	return s.expectations(ctx, t.v, 1, paulis, t.place)
}

// maxPaulis bounds the strings of a call.
const maxPaulis = 1 << 16

func checkPaulis(paulis []string, qubits int) error {
	if len(paulis) > maxPaulis {
		return fmt.Errorf("%w: %d Pauli strings; give at most %d", ErrInvalid, len(paulis), maxPaulis)
	}
	for i, p := range paulis {
		if len(p) != qubits {
			return fmt.Errorf("%w: Pauli string %d, %q, has %d letters; give one for each of %d qubits",
				ErrInvalid, i, p, len(p), qubits)
		}
		for k, letter := range []byte(p) {
			if letter != 'I' && letter != 'X' && letter != 'Y' && letter != 'Z' {
				return fmt.Errorf("%w: Pauli string %d, %q, has %q at letter %d; use I, X, Y and Z", ErrInvalid, i, p,
					letter, k)
			}
		}
	}
	return nil
}

// pauli is a Pauli string on the bits of an index. It maps an index i to i^flips, with a sign for
// each bit of i&signs, and i for each Y.
type pauli struct {
	flips, signs uint64
	ys           int
}

func newPauli(text string, place []int) (p pauli) {
	for k, letter := range []byte(text) {
		bit := uint64(1) << place[len(text)-1-k]
		if letter == 'X' || letter == 'Y' {
			p.flips |= bit
		}
		if letter == 'Z' || letter == 'Y' {
			p.signs |= bit
		}
	}
	p.ys = bits.OnesCount64(p.flips & p.signs)
	return p
}

// flags returns the word of the string behind its signs: i^ys is 1, i, -1 or -i, and i times a
// number has the negative imaginary part as its real part.
func (p pauli) flags() uint64 {
	const imaginary, negative = quantumset.ExpectImaginary, quantumset.ExpectNegative
	return [4]uint64{0, imaginary | negative, negative, imaginary}[p.ys%4]
}

// expected are sums of strings that flip the same qubits, and are queued.
type expected struct {
	strings []int
	flips   uint64
	sums    device.Buffer
}

// expect queues the sums of Pauli strings in all rows.
func (s *Simulator) expect(v *vector, paulis []string, place []int) (all []expected, err error) {
	together := map[uint64][]int{} // by flips
	var order []uint64
	strings := make([]pauli, len(paulis))
	for i, text := range paulis {
		p := newPauli(text, place)
		if together[p.flips] == nil {
			order = append(order, p.flips)
		}
		strings[i], together[p.flips] = p, append(together[p.flips], i)
	}
	for _, flips := range order {
		for of := together[flips]; len(of) > 0; {
			n := min(len(of), quantumset.MaxStrings)
			e := expected{strings: of[:n], flips: flips}
			if e.sums, err = s.expectTogether(v, e, strings); err != nil {
				return nil, err
			}
			all, of = append(all, e), of[n:]
		}
	}
	return all, nil
}

// expectTogether queues the sums of strings that flip the same qubits.
func (s *Simulator) expectTogether(v *vector, e expected, strings []pauli) (device.Buffer, error) {
	table := make([]uint64, 0, 2*len(e.strings))
	for _, i := range e.strings {
		table = append(table, strings[i].signs, strings[i].flags())
	}
	words, err := upload(v, table)
	if err != nil {
		return nil, err
	}
	out, err := v.alloc(8 * v.rows * int64(len(e.strings)))
	if err != nil {
		return nil, err
	}
	if err := s.stream.Fill(out, 0, out.Size(), 0); err != nil {
		return nil, err
	}
	return out, s.stream.Launch(s.pauli, s.warps(v.runs()), quantumset.ExpectArgs{
		Amplitudes: device.Ptr(v.buffer), Runs: uint64(v.runs()), Qubits: uint32(v.qubits), Flips: e.flips,
		Strings: device.Ptr(words), Count: uint32(len(e.strings)), Sums: device.Ptr(out),
	}.Args()...)
}

// valuesOf returns the expectation values of rows by row and string, when the work is done.
func valuesOf(queued []expected, rows, paulis int) ([]float64, error) {
	values := make([]float64, rows*paulis)
	for _, e := range queued {
		sums := make([]int64, rows*len(e.strings))
		if err := e.sums.Read(0, device.Bytes(sums)); err != nil {
			return nil, fmt.Errorf("read %d expectation values: %w", len(sums), err)
		}
		scale := 1.0 / quantumset.WeightScale
		if e.flips != 0 {
			scale *= 2 // each pair of amplitudes counts once
		}
		for r := range rows {
			for k, i := range e.strings {
				values[r*paulis+i] = float64(sums[r*len(e.strings)+k]) * scale
			}
		}
	}
	return values, nil
}

// expectations returns the expectation values of rows, by row and string.
func (s *Simulator) expectations(ctx context.Context, v *vector, rows int, paulis []string, place []int) (
	values []float64, err error,
) {
	queued, err := s.expect(v, paulis, place)
	if err != nil {
		return nil, err
	}
	if err := s.stream.Sync(ctx); err != nil {
		return nil, err
	}
	return valuesOf(queued, rows, len(paulis))
}
