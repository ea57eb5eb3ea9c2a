package gpujobs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/quantum"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// maxStates bounds the states of the runs of a circuit that are in memory at a time, in bytes,
// unless one state takes more.
const maxStates = 64 << 20

var encodings = map[gpujob.Encoding]quantum.Encoding{
	gpujob.EncodingAmplitude: quantum.Amplitude, gpujob.EncodingAngle: quantum.Angle,
	gpujob.EncodingBasis: quantum.Basis,
}

// circuit returns the work of a job of kind circuit. The text is parsed and compared with the
// specification first, so that a circuit that is wrong or does not fit costs no load and no device.
func (t *task) circuit(s *gpujob.CircuitSpec) func() (any, error) {
	var prepare, parameters *input
	if s.Prepare != nil {
		prepare = t.in("prepare", s.Prepare)
	}
	if s.Parameters != nil {
		parameters = t.in("parameters", s.Parameters)
	}
	c, err := circuitOf(s)
	if err == nil {
		err = fits(s, c)
	}
	if err != nil {
		t.refused = circuitError(err)
		return nil
	}
	if s.Plans() {
		return func() (any, error) { return t.planned(c) }
	}
	states := t.states(s, c)
	return func() (any, error) {
		b := quantum.Batch{
			Circuit: c, Shots: s.Shots, Seed: s.Seed, Expect: s.Expect,
			Amplitudes: s.Returns(gpujob.ReturnProbabilities) || s.Returns(gpujob.ReturnState),
		}
		if prepare != nil {
			b.Prepare, b.How = gpujob.Decode[float32](prepare.data), encodings[s.Encoding]
		}
		if parameters != nil {
			b.Inputs = rowsOfInputs(parameters)
		}
		// The limit of memory has admitted the qubits, on the host device too.
		simulator, err := quantum.New(t.slot.Device(), quantum.Options{
			MaxQubits: circuit.MaxQubits, BatchBytes: states,
		})
		if err != nil {
			return nil, fmt.Errorf("circuit: %w", err)
		}
		t.left = append(t.left, simulator)
		r := newReadout(s, c)
		if err := simulator.RunBatch(t.ctx, b, func(_ int, row *quantum.Row) error {
			return r.take(t.ctx, row)
		}); err != nil {
			return nil, circuitError(err)
		}
		if s.Explain {
			e, err := quantum.Explain(c)
			if err != nil {
				return nil, circuitError(err)
			}
			r.out.Plan = planText(e)
		}
		out := r.output(t.computed())
		var names []string
		var arrays []*gpujob.Array
		for name, a := range out.Arrays() {
			names, arrays = append(names, name), append(arrays, a)
		}
		return out, t.store(names, arrays)
	}
}

// planned returns the output for a circuit that does not run.
func (t *task) planned(c *circuit.Circuit) (any, error) {
	e, err := quantum.Explain(c)
	if err != nil {
		return nil, circuitError(err)
	}
	return &gpujob.CircuitOutput{Qubits: c.Qubits, Passes: len(e.Passes), Plan: planText(e), Ran: t.computed()}, nil
}

// maxPlan bounds the text of a plan in bytes.
const maxPlan = 64 << 10

// planText returns a line for each pass and the sum. Of a long plan it leaves out lines before the
// sum.
func planText(e *quantum.Explanation) string {
	all := e.String()
	if len(all) <= maxPlan {
		return all
	}
	return all[:strings.LastIndexByte(all[:maxPlan], '\n')+1] + "...\n" + all[strings.LastIndexByte(all, '\n')+1:]
}

// fits returns an error unless arrays, strings and shots of a specification fit its circuit.
func fits(s *gpujob.CircuitSpec, c *circuit.Circuit) error {
	if s.Prepare != nil {
		n, unit := int64(c.Qubits), "qubits"
		if s.Encoding == gpujob.EncodingAmplitude {
			n, unit = int64(1)<<c.Qubits, "amplitudes"
		}
		if given := s.Prepare.Shape[0]; given > n {
			return jobs.Errorf(jobs.CodeInvalid, "spec.prepare: %d numbers for %d %s: use at most %d", given, n, unit,
				n)
		}
	}
	columns := int64(0)
	if s.Parameters != nil {
		columns = s.Parameters.Shape[1]
	}
	if columns != int64(len(c.Inputs)) {
		return jobs.Errorf(jobs.CodeInvalid, "spec.parameters: %d columns for %d inputs of the circuit, %.200v: use a "+
			"column for each", columns, len(c.Inputs), c.Inputs)
	}
	for i, p := range s.Expect {
		if len(p) != c.Qubits {
			return jobs.Errorf(jobs.CodeInvalid, "spec.expect[%d] %s: %d letters for %d qubits: use one for each", i, p,
				len(p), c.Qubits)
		}
	}
	if s.Shots > 0 && !slices.ContainsFunc(c.Ops, func(o circuit.Op) bool { return o.Kind == circuit.Measure }) {
		return jobs.Errorf(jobs.CodeInvalid, "spec.shots %d: the circuit has no measurement: add one, as "+
			"c = measure q;", s.Shots)
	}
	return nil
}

// states counts the bytes of states and outputs, and returns the bytes of the states that are in
// memory at a time. It refuses a circuit that does not fit.
func (t *task) states(s *gpujob.CircuitSpec, c *circuit.Circuit) int64 {
	t.limit = max(t.h.o.Memory, t.h.o.CircuitMemory)
	runs := s.Runs()
	t.bytes += 8 * runs * (int64(s.Shots) + int64(len(s.Expect)))
	outputs := func(qubits int) int64 {
		each := int64(0)
		if s.Returns(gpujob.ReturnProbabilities) {
			each += 4 << qubits
		}
		if s.Returns(gpujob.ReturnState) {
			each += 8 << qubits
		}
		return runs * each // below 2^58
	}
	needs := func(qubits int) int64 { return t.bytes + outputs(qubits) + quantum.Bytes(1, qubits) }
	if needs(c.Qubits) > t.limit {
		most := c.Qubits - 1
		for most > 0 && needs(most) > t.limit {
			most--
		}
		t.refused = jobs.Errorf(jobs.CodeInvalid, "%d qubits take %d bytes with the arrays of the job, at most %d: at "+
			"most %d qubits fit: ask for less, or raise --circuit-memory", c.Qubits, needs(c.Qubits), t.limit, most)
		return 0
	}
	t.bytes += outputs(c.Qubits)
	n := min(runs*int64(max(1, s.Shots)), max(1, int64(maxStates)/(8<<c.Qubits)))
	states := max(quantum.Bytes(1, c.Qubits), min(quantum.Bytes(n, c.Qubits), t.limit-t.bytes))
	t.bytes += states
	return states
}

// rowsOfInputs returns the parameters of each run.
func rowsOfInputs(in *input) [][]float64 {
	var all []float64
	if in.of.Type == gpujob.F64 {
		all = gpujob.Decode[float64](in.data)
	} else {
		for _, v := range gpujob.Decode[float32](in.data) {
			all = append(all, float64(v))
		}
	}
	rows := make([][]float64, in.of.Shape[0])
	n := int(in.of.Shape[1])
	for i := range rows {
		rows[i] = all[i*n : (i+1)*n]
	}
	return rows
}

// readout gathers the output of a job, run by run.
type readout struct {
	s      *gpujob.CircuitSpec
	out    *gpujob.CircuitOutput
	bits   int
	counts int // bytes of all counts as JSON

	samples       []uint64
	values        []float64
	probabilities []float32
	state         []float32
}

func newReadout(s *gpujob.CircuitSpec, c *circuit.Circuit) *readout {
	return &readout{s: s, bits: c.Bits, out: &gpujob.CircuitOutput{Qubits: c.Qubits, Norm: 1}}
}

// take adds a run.
func (r *readout) take(ctx context.Context, row *quantum.Row) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if math.Abs(row.Norm-1) > math.Abs(r.out.Norm-1) {
		r.out.Norm = row.Norm
	}
	r.out.Passes = row.Passes
	r.values = append(r.values, row.Values...)
	if r.s.Returns(gpujob.ReturnCounts) {
		counts := quantum.CountsOf(row.Samples, r.bits)
		if len(counts.Of) > gpujob.MaxReadings {
			return jobs.Errorf(jobs.CodeInvalid, "spec.return counts: more than %d different readings: use samples",
				gpujob.MaxReadings)
		}
		texts := map[string]int{}
		r.counts += len("{},")
		for reading, n := range counts.Of {
			texts[counts.Text(reading)] = n
			r.counts += r.bits + len(`"":,`) + len(strconv.Itoa(n))
		}
		if r.counts > gpujob.MaxCounts {
			return jobs.Errorf(jobs.CodeInvalid, "spec.return counts: too many different readings for %d bytes of "+
				"text: use samples", gpujob.MaxCounts)
		}
		r.out.Counts = append(r.out.Counts, texts)
	}
	if r.s.Returns(gpujob.ReturnSamples) {
		r.samples = append(r.samples, row.Samples...)
	}
	if r.s.Returns(gpujob.ReturnProbabilities) {
		r.probabilities = append(r.probabilities, row.Probabilities()...)
	}
	if r.s.Returns(gpujob.ReturnState) {
		for _, a := range row.Amplitudes {
			r.state = append(r.state, real(a), imag(a))
		}
	}
	return nil
}

// output returns what all runs have given.
func (r *readout) output(ran gpujob.Ran) *gpujob.CircuitOutput {
	runs, amplitudes := r.s.Runs(), int64(1)<<r.out.Qubits
	if len(r.s.Expect) > 0 {
		a := gpujob.From(r.values, runs, int64(len(r.s.Expect)))
		r.out.Expect = &a
	}
	if r.s.Returns(gpujob.ReturnSamples) {
		a := gpujob.From(r.samples, runs, int64(r.s.Shots))
		r.out.Samples = &a
	}
	if r.s.Returns(gpujob.ReturnProbabilities) {
		a := gpujob.From(r.probabilities, runs, amplitudes)
		r.out.Probabilities = &a
	}
	if r.s.Returns(gpujob.ReturnState) {
		a := gpujob.From(r.state, runs, amplitudes, 2)
		r.out.State = &a
	}
	r.out.Ran = ran
	return r.out
}

// circuitError returns an error about the text or the request as an error of the specification.
func circuitError(err error) error {
	var known *jobs.Error
	var text *qasm.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &text):
		return jobs.Errorf(jobs.CodeInvalid, "spec.qasm, %v", text)
	case errors.Is(err, quantum.ErrRoom) && !errors.Is(err, device.ErrOutOfMemory): // it never fits this device
		return jobs.Errorf(jobs.CodeInvalid, "spec: %v: ask for less, or start a GPU agent with a larger device", err)
	case errors.Is(err, quantum.ErrInvalid), errors.Is(err, circuit.ErrInvalid):
		sentence := strings.TrimPrefix(err.Error(), quantum.ErrInvalid.Error()+": ")
		return jobs.Errorf(jobs.CodeInvalid, "spec: %s", strings.TrimPrefix(sentence, circuit.ErrInvalid.Error()+": "))
	}
	return fmt.Errorf("circuit: %w", err)
}
