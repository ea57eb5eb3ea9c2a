package quantum

import (
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/internal/plan"
)

// Explanation is what a simulator would do for a circuit from |0...0>.
type Explanation struct {
	Qubits int
	// Bytes is the memory of the state, with the sums of its weights.
	Bytes  int64
	Passes []PassInfo
	// Trajectories reports whether the circuit measures before its end, or resets: it runs once for
	// each shot.
	Trajectories bool
}

// PassInfo is a pass over the state.
type PassInfo struct {
	Gates      int
	Phases     int   // exchanges in shared memory, and one more
	Tile       []int // the bits of an index that a tile spans
	Bytes      int64 // that the pass reads and writes
	Operations int64 // of float32, about
	// Time is the prediction for an H200, whose rates the constants of this package are.
	Time time.Duration
}

// Bytes returns the memory on the device of some states that have as many qubits, in bytes:
// amplitudes and the sums of their weights. A simulator needs a few MiB beside them.
func Bytes(states int64, qubits int) int64 { return bytesOf(states, rowQubits(qubits)) }

// Explain returns the passes of a circuit, without a device.
func Explain(c *circuit.Circuit) (*Explanation, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	qubits := rowQubits(c.Qubits)
	p, err := lower(c, identity(c.Qubits), qubits, lowerOptions{fresh: true})
	if err != nil {
		return nil, err
	}
	e := &Explanation{Qubits: c.Qubits, Bytes: Bytes(1, c.Qubits), Trajectories: len(p.segments) > 1}
	for _, s := range p.segments {
		for k := range s.passes {
			e.Passes = append(e.Passes, passInfo(&s.passes[k], tileRows(1, qubits)<<qubits))
		}
	}
	return e, nil
}

// Rates of an H200 by which a pass is predicted, in a second: the bytes of a copy, and operations
// of 132 multiprocessors with 128 lanes at 1.7 GHz; a fifth of it is lost.
const (
	rateBytes      = 4.2e12
	rateOperations = 132 * 128 * 1.7e9 * 0.8
)

func passInfo(p *plan.Pass, amplitudes int64) PassInfo {
	cost := p.Cost(uint64(amplitudes))
	seconds := max(float64(cost.Bytes)/rateBytes, float64(cost.Operations)/rateOperations)
	return PassInfo{
		Gates: len(p.Gates), Phases: cost.Phases, Tile: p.TileQubits(), Bytes: int64(cost.Bytes),
		Operations: int64(cost.Operations), Time: time.Duration(seconds * float64(time.Second)),
	}
}

// String is a table for people: a line for each pass, and the sum.
func (e *Explanation) String() string {
	var b strings.Builder
	var bytes int64
	var took time.Duration
	for i, p := range e.Passes {
		fmt.Fprintf(&b, "pass %d: %d gates in %d phases, %d MiB, %d million operations, %v, tile %v\n", i, p.Gates,
			p.Phases, p.Bytes>>20, p.Operations/1e6, p.Time.Round(time.Microsecond), p.Tile)
		bytes, took = bytes+p.Bytes, took+p.Time
	}
	fmt.Fprintf(&b, "%d qubits in %d MiB: %d passes, %d MiB, %v on an H200", e.Qubits, e.Bytes>>20, len(e.Passes),
		bytes>>20, took.Round(time.Microsecond))
	if e.Trajectories {
		b.WriteString(", for each shot")
	}
	return b.String()
}
