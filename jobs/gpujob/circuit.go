package gpujob

import (
	"math"
	"slices"
	"strings"
)

// KindCircuit is the kind of job that simulates a quantum circuit: CircuitSpec, CircuitOutput.
const KindCircuit = "circuit"

// Limits of CircuitSpec.
const (
	MaxQASM          = 1 << 20 // bytes of a text
	MaxCircuitQubits = 34
	MaxCircuitRuns   = 1 << 20 // rows of parameters
	MaxShots         = 1 << 28 // of a run, and 2^32-1 of all runs
	MaxPaulis        = 1 << 16 // Pauli strings
	MaxReadings      = 1 << 16 // different readings of a run that are counted
	MaxCounts        = 1 << 19 // bytes of the counts of an output, as JSON: a result is one message
)

// Encoding is how numbers become a state of qubits.
type Encoding string

// The encodings.
const (
	EncodingAmplitude Encoding = "amplitude" // amplitudes, which the agent divides by their norm
	EncodingAngle     Encoding = "angle"     // RY of qubit i by number i, in radians
	EncodingBasis     Encoding = "basis"     // qubit i is number i: 0 or 1
)

// The parts of an output, which CircuitSpec.Return lists.
const (
	ReturnCounts        = "counts"
	ReturnSamples       = "samples"
	ReturnProbabilities = "probabilities"
	ReturnState         = "state"
	ReturnExpect        = "expect" // the name of the expectation values among the arrays; not for Return
)

// CircuitSpec asks for runs of a quantum circuit in a simulator.
type CircuitSpec struct {
	// QASM is a text of OpenQASM 2 or of the subset of OpenQASM 3 in docs/quantum.md.
	QASM string `json:"qasm,omitempty"`
	// Gates is the circuit in place of QASM.
	Gates *CircuitGates `json:"gates,omitempty"`
	// Prepare are f32 of one dimension, which the qubits hold first; nil: all qubits are 0.
	Prepare  *Array   `json:"prepare,omitempty"`
	Encoding Encoding `json:"encoding,omitempty"` // of Prepare; empty without it
	// Parameters are f32 or f64 with a row for each run and a column for each input of the circuit,
	// in the order of their declarations; nil: one run of a circuit without inputs.
	Parameters *Array `json:"parameters,omitempty"`
	Shots      int    `json:"shots,omitempty"` // readings of each run
	Seed       uint64 `json:"seed,omitempty"`  // of the random numbers of the readings
	// Expect are Pauli strings, whose last letter is of qubit 0: one of I, X, Y and Z for each qubit.
	Expect []string `json:"expect,omitempty"`
	// Return lists counts, samples, probabilities and state; empty: counts, if there are shots.
	Return []string `json:"return,omitempty"`
	// Explain asks for the passes too. With no shots, no expect and no return the circuit is planned
	// only.
	Explain bool `json:"explain,omitempty"`
}

// Kind implements Spec.
func (*CircuitSpec) Kind() string { return KindCircuit }

// Runs returns the number of runs.
func (s *CircuitSpec) Runs() int64 {
	if s.Parameters == nil {
		return 1
	}
	return s.Parameters.Shape[0]
}

// Returns reports whether the output has a part, by its name in Return.
func (s *CircuitSpec) Returns(part string) bool {
	if len(s.Return) == 0 {
		return part == ReturnCounts && s.Shots > 0
	}
	return slices.Contains(s.Return, part)
}

// Plans reports whether the circuit is planned only.
func (s *CircuitSpec) Plans() bool {
	return s.Explain && s.Shots == 0 && len(s.Expect) == 0 && len(s.Return) == 0
}

// Check implements Spec. It does not read the text, which the agent does.
func (s *CircuitSpec) Check() error {
	switch {
	case s.QASM == "" && s.Gates == nil:
		return invalid("spec.qasm is missing: use a text of OpenQASM, or gates")
	case s.QASM != "" && s.Gates != nil:
		return invalid("spec.gates: there is qasm too: use one of the two")
	case len(s.QASM) > MaxQASM:
		return invalid("spec.qasm: %d bytes: use at most %d", len(s.QASM), MaxQASM)
	case s.Shots == 0 && len(s.Expect) == 0 && len(s.Return) == 0 && !s.Explain:
		return invalid("spec: the job asks for nothing: use shots, expect, return or explain")
	}
	if s.Gates != nil {
		if err := s.Gates.check(); err != nil {
			return err
		}
	}
	if err := s.checkArrays(); err != nil {
		return err
	}
	if s.Shots < 0 || s.Shots > MaxShots || int64(s.Shots)*s.Runs() > math.MaxUint32 {
		return invalid("spec.shots %d of %d runs: use 0 to %d, and at most %d of all runs", s.Shots, s.Runs(), MaxShots,
			uint32(math.MaxUint32))
	}
	if len(s.Expect) > MaxPaulis {
		return invalid("spec.expect: %d Pauli strings: use at most %d", len(s.Expect), MaxPaulis)
	}
	for i, p := range s.Expect {
		if len(p) < 1 || len(p) > MaxCircuitQubits || strings.Trim(p, "IXYZ") != "" {
			return invalid("spec.expect[%d] %.60q: use I, X, Y or Z for each qubit, at most %d", i, p, MaxCircuitQubits)
		}
	}
	for i, part := range s.Return {
		switch part {
		case ReturnCounts, ReturnSamples:
			if s.Shots == 0 {
				return invalid("spec.return[%d] %s: there are no shots: use shots from 1", i, part)
			}
		case ReturnProbabilities, ReturnState:
		default:
			return invalid("spec.return[%d] %.60q: use counts, samples, probabilities or state", i, part)
		}
	}
	return nil
}

func (s *CircuitSpec) checkArrays() error {
	switch {
	case s.Prepare == nil && s.Encoding != "":
		return invalid("spec.encoding %.60q: there is no prepare: leave it out", s.Encoding)
	case s.Prepare != nil:
		switch s.Encoding {
		case EncodingAmplitude, EncodingAngle, EncodingBasis:
		default:
			return invalid("spec.encoding %.60q: use amplitude, angle or basis", s.Encoding)
		}
		if err := s.Prepare.checkType("prepare", 1, F32); err != nil {
			return err
		}
		if s.Prepare.Shape[0] == 0 {
			return invalid("spec.prepare: no numbers: use one at least, or leave it out")
		}
	}
	if s.Parameters == nil {
		return nil
	}
	if err := s.Parameters.checkType("parameters", 2, F32, F64); err != nil {
		return err
	}
	if runs := s.Parameters.Shape[0]; runs < 1 || runs > MaxCircuitRuns {
		return invalid("spec.parameters.shape %v: use 1 to %d rows, one for each run",
			[]int64(s.Parameters.Shape), MaxCircuitRuns)
	}
	return nil
}

// CircuitOutput is the output of a job of kind circuit. The last letter of a reading is bit 0.
type CircuitOutput struct {
	// Counts has, for each run, how often each reading came.
	Counts []map[string]int `json:"counts,omitempty"`
	// Samples are u64 of shape [runs, shots]: the readings in order.
	Samples *Array `json:"samples,omitempty"`
	// Expect are f64 of shape [runs, Pauli strings].
	Expect *Array `json:"expect,omitempty"`
	// Probabilities are f32 of shape [runs, 2^qubits]. Qubit 0 is the lowest bit of an index.
	Probabilities *Array `json:"probabilities,omitempty"`
	// State is f32 of shape [runs, 2^qubits, 2]: the real and the imaginary part of each amplitude.
	State  *Array `json:"state,omitempty"`
	Qubits int    `json:"qubits"`
	Passes int    `json:"passes"` // over the state, of one run, or of one shot where each shot is a run
	// Norm is the sum of the squared absolute values of the amplitudes of a run, which is 1 but for
	// rounding: of the run where it is farthest from 1. It is 0 for a circuit that is planned only.
	Norm float64 `json:"norm"`
	Plan string  `json:"plan,omitempty"` // a line for each pass, if the specification asks for it
	Ran
}

// Arrays returns the arrays of the output that are there, by name.
func (o *CircuitOutput) Arrays() map[string]*Array {
	all := map[string]*Array{}
	for name, a := range map[string]*Array{
		ReturnSamples: o.Samples, ReturnExpect: o.Expect, ReturnProbabilities: o.Probabilities, ReturnState: o.State,
	} {
		if a != nil {
			all[name] = a
		}
	}
	return all
}
