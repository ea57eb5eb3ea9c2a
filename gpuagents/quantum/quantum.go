// Package quantum is a processor of quantum circuits: a simulator of state vectors on a device. It
// gives no quantum speed-up, and its random numbers are Philox.
//
// A state of n qubits is 2^n amplitudes of two float32. Matrices are made in float64 and rounded
// once. Which operations of float32 are fused, and their order, is fixed by the circuit, so a
// circuit gives the same bits and the same shots on every device.
//
// Qubit 0 is the lowest bit of an index and the last letter of a bit string or a Pauli string.
package quantum

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// Errors of this package. A circuit or an input that breaks the rules of package circuit is a
// circuit.ErrInvalid.
var (
	// ErrInvalid is the class of wrong requests. The sentence has the place and the cure.
	ErrInvalid = errors.New("invalid request")
	// ErrRoom is a state that does not fit. The sentence names its qubits and the most that fit.
	ErrRoom = errors.New("no room for the state")
)

// Processor runs circuits on states. Simulator implements it; a client of a quantum computer could.
type Processor interface {
	// PrepareState returns a state that holds classical numbers. The caller closes it.
	PrepareState(ctx context.Context, classical []float32, how Encoding) (State, error)
	// Run applies a circuit without inputs, which has as many qubits as the state.
	Run(ctx context.Context, s State, c *circuit.Circuit) error
	// Measure reads the state a number of times, from 1 to MaxShots. The state stays. A reading has
	// the bits of the last circuit that ran on the state, or a bit for each qubit if it does not
	// measure.
	Measure(ctx context.Context, s State, shots int, seed uint64) (Counts, error)
	// Expect returns the expectation values of Pauli strings: a letter I, X, Y or Z for each qubit.
	Expect(ctx context.Context, s State, paulis []string) ([]float64, error)
}

// State is a state of qubits that belongs to a Processor.
type State interface {
	// Qubits returns the number of qubits.
	Qubits() int
	// Close releases the state. A second call does nothing.
	Close() error
}

// Encoding tells how classical numbers become a state.
type Encoding uint8

// The encodings.
const (
	// Amplitude makes the numbers the amplitudes, divided by their norm, and 0 behind them, of as few
	// qubits as have room for them.
	Amplitude Encoding = iota + 1
	// Angle turns qubit i by RY of number i, in radians.
	Angle
	// Basis sets qubit i to number i, which is 0 or 1.
	Basis
)

// MaxShots is the largest number of shots of a circuit or a state.
const MaxShots = 1 << 28

// Counts has how often each reading came.
type Counts struct {
	Bits int            // of a reading
	Of   map[uint64]int // by reading, bit 0 lowest
}

// Text returns a reading as a bit string, whose last letter is bit 0.
func (c Counts) Text(reading uint64) string { return fmt.Sprintf("%0*b", c.Bits, reading) }

// CountsOf counts samples of a number of bits.
func CountsOf(samples []uint64, bits int) Counts {
	c := Counts{bits, map[uint64]int{}}
	for _, s := range samples {
		c.Of[s]++
	}
	return c
}
