package gpujobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

const (
	ghz  = "qubit[3] q; bit[3] c; h q[0]; cx q[0], q[1]; cx q[1], q[2]; c = measure q;"
	turn = "input float a; input float b; qubit[2] q; bit[2] c; rx(a) q[0]; rx(b) q[1]; c = measure q;"
)

func text(qasm string) string { return `OPENQASM 3.0; include "stdgates.inc"; ` + qasm }

// TestCircuit: counts, samples, probabilities, states and expectation values of known circuits.
func TestCircuit(t *testing.T) {
	r := start(t, gpujobs.Options{})
	out := do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{
		QASM: text(ghz), Shots: 1000, Seed: 1, Expect: []string{"IZZ", "IIZ", "XXX"}, Explain: true,
		Return: []string{"counts", "samples", "probabilities", "state"},
	})
	counts := out.Counts[0]
	if len(out.Counts) != 1 || len(counts) != 2 || counts["000"]+counts["111"] != 1000 || counts["000"] < 400 {
		t.Errorf("counts of GHZ: %v", out.Counts)
	}
	again := map[string]int{}
	for _, s := range gpujob.Decode[uint64](out.Samples.Data) {
		again[fmt.Sprintf("%03b", s)]++
	}
	if !maps.Equal(again, counts) || !slices.Equal(out.Samples.Shape, gpujob.Shape{1, 1000}) {
		t.Errorf("samples of shape %v count %v, want %v", out.Samples.Shape, again, counts)
	}
	near(t, "expectation values", gpujob.Decode[float64](out.Expect.Data), 1, 0, 1)
	near(t, "probabilities", gpujob.Decode[float32](out.Probabilities.Data), 0.5, 0, 0, 0, 0, 0, 0, 0.5)
	state := make([]float64, 16)
	state[0], state[14] = math.Sqrt2/2, math.Sqrt2/2
	near(t, "state", gpujob.Decode[float32](out.State.Data), state...)
	near(t, "norm", []float64{out.Norm}, 1)
	if out.Qubits != 3 || out.Passes != 1 || !strings.Contains(out.Plan, "1 passes") || out.Device == "" {
		t.Errorf("output %+v; want 3 qubits, 1 pass and its plan", out)
	}
}

func near[T float32 | float64](t *testing.T, what string, got []T, want ...float64) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = math.Abs(float64(got[i])-want[i]) < 1e-5
	}
	if !ok {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestCircuitRuns: each run has the parameters of its row, of both types, and what one run gives
// does not depend on the others.
func TestCircuitRuns(t *testing.T) {
	r := start(t, gpujobs.Options{})
	rows := []float64{0, math.Pi, math.Pi, 0, math.Pi / 2, math.Pi / 3}
	narrow := make([]float32, len(rows))
	for i, v := range rows {
		narrow[i] = float32(v)
	}
	for _, a := range []gpujob.Array{gpujob.From(rows, 3, 2), gpujob.From(narrow, 3, 2)} {
		out := do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{
			QASM: text(turn), Parameters: &a, Shots: 100, Expect: []string{"IZ", "ZI"}, Return: []string{"counts"},
		})
		near(t, "expectation values", gpujob.Decode[float64](out.Expect.Data), 1, -1, -1, 1, 0, 0.5)
		if !slices.Equal(out.Expect.Shape, gpujob.Shape{3, 2}) || out.Counts[0]["10"] != 100 ||
			out.Counts[1]["01"] != 100 {
			t.Errorf("shape %v and counts %v", out.Expect.Shape, out.Counts)
		}
	}
}

// TestCircuitPrepares: each encoding gives its state.
func TestCircuitPrepares(t *testing.T) {
	r := start(t, gpujobs.Options{})
	for _, c := range []struct {
		how     gpujob.Encoding
		numbers []float32
		want    []float64
	}{
		{gpujob.EncodingAmplitude, []float32{3, 0, 4}, []float64{0.36, 0, 0.64, 0}},
		{gpujob.EncodingAngle, []float32{math.Pi, math.Pi / 2}, []float64{0, 0.5, 0, 0.5}},
		{gpujob.EncodingBasis, []float32{0, 1}, []float64{0, 0, 1, 0}},
	} {
		a := gpujob.From(c.numbers)
		out := do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{
			QASM: "qubit[2] q;", Prepare: &a, Encoding: c.how, Return: []string{"probabilities"},
		})
		near(t, string(c.how), gpujob.Decode[float32](out.Probabilities.Data), c.want...)
	}
}

// TestCircuitRefused: each mistake is named with its place and cure, before a device is taken
// unless the numbers of an array are wrong.
func TestCircuitRefused(t *testing.T) {
	r := start(t, gpujobs.Options{Memory: 1 << 20, CircuitMemory: 4 << 20})
	zeros, angles := gpujob.From([]float32{0, 0}), gpujob.From([]float64{1, 2, 3}, 1, 3)
	missing := gpujob.Array{Type: gpujob.F32, Shape: gpujob.Shape{1}, Object: "missing"}
	many := gpujob.From(make([]float32, 9))
	prepared := func(a *gpujob.Array, how gpujob.Encoding) gpujob.CircuitSpec {
		return gpujob.CircuitSpec{QASM: text(ghz), Shots: 1, Prepare: a, Encoding: how}
	}
	nan := gpujob.From([]float64{1, math.NaN()}, 1, 2)
	wide := text("qubit[19] q; bit[19] c; h q; c = measure q;")
	twice := text("qubit[2] q; cx q[0], q[0];")
	for _, c := range []struct {
		want  string
		spec  gpujob.CircuitSpec
		loads bool
	}{
		{`spec.qasm, line 1, column 51: "cy2"`, gpujob.CircuitSpec{QASM: text("qubit[2] q; cy2 q;"), Shots: 1}, false},
		{"name each qubit once", gpujob.CircuitSpec{QASM: twice, Return: []string{"state"}}, false},
		{"19 qubits take 42", gpujob.CircuitSpec{QASM: wide, Shots: 10, Prepare: &missing, Encoding: "angle"}, false},
		{"at most 18 qubits fit", gpujob.CircuitSpec{QASM: wide, Shots: 10}, false},
		{"at most 17 qubits fit", gpujob.CircuitSpec{QASM: wide, Return: []string{"state"}}, false},
		{"at most 0 qubits fit", gpujob.CircuitSpec{QASM: text(ghz), Shots: 1 << 20}, false},
		{"add one, as c = measure q", gpujob.CircuitSpec{QASM: "qubit q;", Shots: 1}, false},
		{"3 columns for 2 inputs", gpujob.CircuitSpec{QASM: text(turn), Shots: 1, Parameters: &angles}, false},
		{"0 columns for 2 inputs of the circuit, [a b]", gpujob.CircuitSpec{QASM: text(turn), Shots: 1}, false},
		{"spec.expect[1] ZZ: 2 letters", gpujob.CircuitSpec{QASM: text(ghz), Expect: []string{"ZZZ", "ZZ"}}, false},
		{"9 numbers for 8 amplitudes", prepared(&many, gpujob.EncodingAmplitude), false},
		{"9 numbers for 3 qubits", prepared(&many, gpujob.EncodingBasis), false},
		{"norm 0", prepared(&zeros, gpujob.EncodingAmplitude), true},
		{"row 0 has NaN for input b", gpujob.CircuitSpec{QASM: text(turn), Shots: 1, Parameters: &nan}, true},
	} {
		taken := r.places.Load()
		refused(t, r, &c.spec, jobs.CodeInvalid, c.want)
		if got := r.places.Load() - taken; got > 0 != c.loads {
			t.Errorf("%s: %d places were taken", c.want, got)
		}
	}
}

// TestCircuitMemory: the larger limit counts.
func TestCircuitMemory(t *testing.T) {
	s := &gpujob.CircuitSpec{QASM: text("qubit[17] q; h q;"), Expect: []string{strings.Repeat("Z", 17)}}
	for _, o := range []gpujobs.Options{{Memory: 2 << 20, CircuitMemory: 1}, {Memory: 1, CircuitMemory: 2 << 20}} {
		out := do[gpujob.CircuitOutput](t, start(t, o), s)
		near(t, "expectation values", gpujob.Decode[float64](out.Expect.Data), 0)
	}
}

// TestCircuitGates: a list of gates gives what its text gives, and its mistakes have their place.
func TestCircuitGates(t *testing.T) {
	r := start(t, gpujobs.Options{})
	a := gpujob.From([]float64{0.4, 1.1}, 1, 2)
	written := text("include \"qelib1.inc\"; input float a; input float b; qubit[3] q; bit[2] c; h q[0]; ry(a) q[1]; " +
		"ctrl @ negctrl @ rx(b) q[0], q[1], q[2]; cswap q[0], q[1], q[2]; cu3(0.1, a, b) q[2], q[0]; " +
		"c[0] = measure q[2]; c[1] = measure q[0];")
	list := `{"qubits": 3, "bits": 2, "inputs": ["a", "b"], "list": [{"name": "h", "qubits": [0]},
		{"name": "ry", "qubits": [1], "angles": ["a"]},
		{"name": "rx", "qubits": [2], "angles": ["b"], "controls": [0], "zeros": [1]},
		{"name": "swap", "qubits": [1, 2], "controls": [0]},
		{"name": "cu3", "qubits": [2, 0], "angles": [0.1, "a", "b"]},
		{"name": "measure", "qubits": [2]}, {"name": "measure", "qubits": [0], "bit": 1}]}`
	gates := func(text string) *gpujob.CircuitGates {
		g := &gpujob.CircuitGates{}
		testkit.NoError(t, "json.Unmarshal", json.Unmarshal([]byte(text), g))
		return g
	}
	want := &gpujob.CircuitSpec{QASM: written, Parameters: &a, Shots: 500, Expect: []string{"XYZ"}}
	got := &gpujob.CircuitSpec{Gates: gates(list), Parameters: &a, Shots: 500, Expect: []string{"XYZ"}}
	one, two := do[gpujob.CircuitOutput](t, r, want), do[gpujob.CircuitOutput](t, r, got)
	if !maps.Equal(one.Counts[0], two.Counts[0]) || string(one.Expect.Data) != string(two.Expect.Data) {
		t.Errorf("gates give %v, the text %v", two.Counts, one.Counts)
	}
	for _, c := range []struct{ want, text string }{
		{"spec.gates.qubits 0: use 1 to 34", `{}`},
		{"spec.gates.list[0] h: qubit 1 is outside", `{"qubits": 1, "list": [{"name": "h", "qubits": [1]}]}`},
		{
			"spec.gates.list[0] x: qubit 0 is named twice",
			`{"qubits": 1, "list": [{"name": "x", "qubits": [0], "controls": [0]}]}`,
		},
		{
			`spec.gates.list[0] rx: the angle "t" is no input`,
			`{"qubits": 1, "list": [{"name": "rx", "qubits": [0], "angles": ["t"]}]}`,
		},
		{
			"spec.gates.list[0] reset: it takes one qubit",
			`{"qubits": 2, "list": [{"name": "reset", "qubits": [0, 1]}]}`,
		},
		{
			"spec.gates.list[0] measure: bit 0 is outside of the 0 bits",
			`{"qubits": 1, "list": [{"name": "measure", "qubits": [0]}]}`,
		},
		{`spec.gates.inputs[1] "a": it is empty or named twice`, `{"qubits": 1, "inputs": ["a", "a"]}`},
		{
			`spec.gates.list[0]: invalid circuit: "foo" is no standard gate`,
			`{"qubits": 1, "list": [{"name": "foo", "qubits": [0]}]}`,
		},
		{
			`spec.gates.list[0]: invalid circuit: "cx" takes 2 qubits and gets 1`,
			`{"qubits": 1, "list": [{"name": "cx", "qubits": [0]}]}`,
		},
	} {
		refused(t, r, &gpujob.CircuitSpec{Gates: gates(c.text), Return: []string{"state"}}, jobs.CodeInvalid, c.want)
	}
	refused(t, r, &gpujob.CircuitSpec{QASM: "qubit q;", Gates: gates(list)}, jobs.CodeInvalid, "use one of the two")
	if err := json.Unmarshal([]byte(`[true]`), &[]gpujob.CircuitAngle{}); err == nil ||
		!strings.Contains(err.Error(), "use a number, or the name of an input") {
		t.Errorf("an angle that is true: %v", err)
	}
}

// TestCircuitNeverFits: a state that the device has no memory for, whatever else it does, is
// refused and not tried again.
func TestCircuitNeverFits(t *testing.T) {
	r := startOn(t, cuda.Options{MemoryLimit: 64 << 20}, gpujobs.Options{CircuitMemory: 1 << 40})
	refused(t, r, &gpujob.CircuitSpec{QASM: "qubit[24] q;", Return: []string{"samples"}, Shots: 1}, jobs.CodeInvalid,
		"no measurement")
	z := strings.Repeat("Z", 24)
	refused(t, r, &gpujob.CircuitSpec{QASM: "qubit[24] q;", Expect: []string{z}}, jobs.CodeInvalid,
		"24 qubits take 128 MiB, and the device has 64 of 64 MiB free; at most 22 qubits fit: ask for less")
}

// TestCircuitOfManyQubits: with a larger limit the host device has more qubits than by default.
func TestCircuitOfManyQubits(t *testing.T) {
	testkit.OnlyLong(t)
	r := start(t, gpujobs.Options{CircuitMemory: 4 << 30})
	out := do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{
		QASM: text("qubit[27] q; bit c; h q[26]; c = measure q[26];"), Expect: []string{"X" + strings.Repeat("I", 26)},
	})
	near(t, "expectation values", gpujob.Decode[float64](out.Expect.Data), 1)
}

// TestCircuitReadings: counts that are too long for a message are refused, and samples are not.
func TestCircuitReadings(t *testing.T) {
	r := start(t, gpujobs.Options{})
	s := &gpujob.CircuitSpec{QASM: text("qubit[20] q; bit[20] c; h q; c = measure q;"), Shots: 80_000}
	refused(t, r, s, jobs.CodeInvalid, "more than 65536 different readings: use samples")
	s.Shots = 30_000
	refused(t, r, s, jobs.CodeInvalid, "too many different readings for 524288 bytes of text: use samples")
	s.Shots = 17_500
	if data, err := json.Marshal(do[gpujob.CircuitOutput](t, r, s)); err != nil || len(data) < 400_000 ||
		len(data) > gpujob.MaxCounts+1000 {
		t.Errorf("an output of %d bytes, error %v", len(data), err)
	}
	s.Return, s.Shots = []string{"samples"}, 80_000
	if out := do[gpujob.CircuitOutput](t, r, s); out.Samples.Object == "" || out.Counts != nil {
		t.Errorf("samples of 640 kB: %+v; want an object", out.Samples)
	}
}

// TestCircuitPlans: a plan needs no memory of a state.
func TestCircuitPlans(t *testing.T) {
	r := start(t, gpujobs.Options{})
	out := do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{QASM: text("qubit[34] q; h q;"), Explain: true})
	if out.Qubits != 34 || out.Passes < 2 || !strings.Contains(out.Plan, "34 qubits in ") {
		t.Errorf("the plan of 34 qubits: %+v", out)
	}
	long := text("qubit[20] q; for int i in [1:3000] { h q[i % 20]; reset q[i % 20]; }")
	out = do[gpujob.CircuitOutput](t, r, &gpujob.CircuitSpec{QASM: long, Explain: true})
	if lines := strings.Split(out.Plan, "\n"); len(out.Plan) > 66_000 || out.Passes < 3000 || len(lines) < 100 ||
		lines[len(lines)-2] != "..." || !strings.HasSuffix(out.Plan, ", for each shot") {
		t.Errorf("the plan of %d passes has %d bytes", out.Passes, len(out.Plan))
	}
}

// TestCircuitCancelled: a job that is cancelled or late ends between passes and leaves no memory.
// It would take minutes.
func TestCircuitCancelled(t *testing.T) {
	qasm := text("qubit[20] q; bit[20] c; for int i in [1:1000] { h q; c[0] = measure q[0]; if (c[0]) x q[1]; }")
	j, err := gpujob.NewJob("j", &gpujob.CircuitSpec{QASM: qasm, Shots: 100_000})
	testkit.NoError(t, "NewJob", err)
	late := start(t, gpujobs.Options{Timeout: 20 * time.Millisecond})
	if _, err := late.try(t.Context(), j); !errors.Is(err, jobs.ErrDeadline) {
		t.Errorf("a late job: %v", err)
	}
	r := start(t, gpujobs.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = r.Jobs()[j.Kind](ctx, j, func(v any) {
		if v == (gpujobs.Stage{Stage: "computing"}) {
			time.AfterFunc(20*time.Millisecond, func() { cancel(jobs.ErrCancelled) })
		}
	})
	if !errors.Is(err, jobs.ErrCancelled) {
		t.Errorf("a cancelled job: %v", err)
	}
}

// FuzzCircuit: no text and no numbers of a specification make a job panic.
func FuzzCircuit(f *testing.F) {
	r := start(f, gpujobs.Options{Memory: 1 << 20, CircuitMemory: 1 << 20, Timeout: time.Second})
	f.Add(text(ghz), 10, "ZZZ", "basis", float32(1), true)
	f.Add(text(turn), 0, "IX", "", float32(0), false)
	f.Fuzz(func(t *testing.T, qasm string, shots int, pauli, how string, number float32, plan bool) {
		s := &gpujob.CircuitSpec{QASM: qasm, Shots: shots, Expect: []string{pauli}, Explain: plan}
		if how != "" {
			a := gpujob.From([]float32{number})
			s.Prepare, s.Encoding = &a, gpujob.Encoding(how)
		}
		data, err := json.Marshal(s)
		if err != nil || shots > 100 {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _ = r.try(ctx, jobs.Job{ID: "j", Kind: gpujob.KindCircuit, Spec: data})
	})
}
