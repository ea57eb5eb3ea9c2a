package gpujob

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestKinds: each kind has a specification that names it, and no other kind has one.
func TestKinds(t *testing.T) {
	for _, kind := range Kinds() {
		if s := NewSpec(kind); s == nil || s.Kind() != kind {
			t.Errorf("specification of %s: %T", kind, s)
		} else if err := s.Check(); err == nil || jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("an empty specification of %s: %v; want code invalid", kind, err)
		}
	}
	if s := NewSpec("stream"); s != nil {
		t.Errorf("specification of stream: %T, want none", s)
	}
}

// TestFrom: an array keeps its elements on the way through JSON.
func TestFrom(t *testing.T) {
	want := []float64{1.5, math.Inf(-1), math.MaxFloat64}
	data, err := json.Marshal(From(want, 3, 1))
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	var a Array
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("Unmarshal: %v", err)
	}
	got := Decode[float64](a.Data)
	if a.Type != F64 || !slices.Equal(a.Shape, Shape{3, 1}) || !slices.Equal(got, want) {
		t.Errorf("%s: %+v, %v; want %v", data, a, got, want)
	}
}

// TestInline: numbers of every type at their limits, and those beyond.
func TestInline(t *testing.T) {
	for _, c := range []struct {
		of         Type
		text, want string
	}{
		{I32, "[-2147483648,2147483647]", "\x00\x00\x00\x80\xff\xff\xff\x7f"},
		{U32, "[4294967295]", "\xff\xff\xff\xff"},
		{U64, "[18446744073709551615]", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{I64, "[-1]", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{F32, "[1]", "\x00\x00\x80\x3f"},
		{U8, "[0,255]", "\x00\xff"},
		{U8, "[256]", ""},
		{U8, "[-1]", ""},
		{I32, "[2147483648]", ""},
		{U64, "[1.5]", ""},
		{F32, "[1e39]", ""},
		{F64, "[[1]]", ""},
		{F64, "{}", ""},
	} {
		n := int64(strings.Count(c.text, ",") + 1)
		a := Array{Type: c.of, Shape: Shape{n}, Values: json.RawMessage(c.text)}
		got, err := a.Inline("in")
		if c.want == "" {
			if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid ||
				!strings.Contains(err.Error(), "spec.in.values") {
				t.Errorf("%s of %s: %q, %v; want code invalid and the field", c.text, c.of, got, err)
			}
			continue
		}
		if err != nil || string(got) != c.want {
			t.Errorf("%s of %s: %q, %v; want %q", c.text, c.of, got, err, c.want)
		}
	}
}

// TestKernelSpec: what a launch cannot have is refused with its field.
func TestKernelSpec(t *testing.T) {
	x := From([]float32{1})
	good := func() *KernelSpec {
		return &KernelSpec{
			Source: "__global__ void k(float *x) {}", Entry: "k", Grid: []int{1}, Block: []int{1, 2},
			Args: []Arg{{Array: &x}, {Type: I32, Value: "1"}},
		}
	}
	if err := good().Check(); err != nil {
		t.Errorf("a good specification: %v", err)
	}
	for want, change := range map[string]func(*KernelSpec){
		"spec.source is missing": func(s *KernelSpec) { s.Source = "" },
		"at most 1048576":        func(s *KernelSpec) { s.Source = strings.Repeat("x", MaxSource+1) },
		"#include":               func(s *KernelSpec) { s.Source = "//\n # include <x>\n" },
		"spec.entry":             func(s *KernelSpec) { s.Entry = "k(" },
		"spec.grid":              func(s *KernelSpec) { s.Grid = []int{0} },
		"spec.block":             func(s *KernelSpec) { s.Block = []int{1, 1, 1, 1} },
		"spec.shared":            func(s *KernelSpec) { s.Shared = -1 },
		"use at most 64":         func(s *KernelSpec) { s.Args = make([]Arg, 65) },
		"use type and value":     func(s *KernelSpec) { s.Args[0].Type = F32 },
		"for a scalar":           func(s *KernelSpec) { s.Args[1].Type = F64 },
		"is no i32":              func(s *KernelSpec) { s.Args[1].Value = "1.5" },
		"another argument has":   func(s *KernelSpec) { s.Args[0].Name, s.Args[1].Name = "a", "a" },
		"spec.args[0].out.type":  func(s *KernelSpec) { s.Args[0] = Arg{Out: &Zero{Type: "f16", Shape: Shape{1}}} },
		"spec.args[0].out.shape": func(s *KernelSpec) { s.Args[0] = Arg{Out: &Zero{Type: F32}} },
	} {
		s := good()
		change(s)
		var e *jobs.Error
		if err := s.Check(); !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want code invalid and %q", err, want)
		}
	}
}

// TestCircuitSpec: what no circuit can have is refused with its field and its cure.
func TestCircuitSpec(t *testing.T) {
	good := func() *CircuitSpec {
		prepare, parameters := From([]float32{1, 0}), From([]float64{1, 2}, 2, 1)
		return &CircuitSpec{
			QASM: "qubit q;", Prepare: &prepare, Encoding: EncodingBasis, Parameters: &parameters, Shots: 1,
			Expect: []string{"IXYZ"}, Return: []string{ReturnCounts, ReturnState},
		}
	}
	if s := good(); s.Check() != nil || s.Runs() != 2 || !s.Returns(ReturnState) || s.Returns(ReturnSamples) ||
		s.Plans() {
		t.Errorf("a good specification: %v, %d runs", s.Check(), s.Runs())
	}
	if s := (&CircuitSpec{QASM: "qubit q;", Explain: true}); s.Check() != nil || !s.Plans() || s.Returns(ReturnCounts) {
		t.Errorf("a specification that only explains: %v", s.Check())
	}
	wide, seventeen := From(make([]float32, 1<<20+1), 1<<20+1, 1), From(make([]float32, 17), 17, 1)
	for want, change := range map[string]func(*CircuitSpec){
		"spec.qasm is missing":         func(s *CircuitSpec) { s.QASM = "" },
		"use at most 1048576":          func(s *CircuitSpec) { s.QASM = strings.Repeat(" ", MaxQASM+1) },
		"asks for nothing":             func(s *CircuitSpec) { s.Shots, s.Expect, s.Return = 0, nil, nil },
		"use amplitude, angle or":      func(s *CircuitSpec) { s.Encoding = "" },
		"there is no prepare":          func(s *CircuitSpec) { s.Prepare = nil },
		"spec.prepare: no numbers":     func(s *CircuitSpec) { *s.Prepare = From([]float32{}) },
		"spec.prepare.type":            func(s *CircuitSpec) { *s.Prepare = From([]float64{1}) },
		"spec.prepare.shape":           func(s *CircuitSpec) { *s.Prepare = From([]float32{1}, 1, 1) },
		"spec.parameters.type":         func(s *CircuitSpec) { *s.Parameters = From([]int32{1}, 1, 1) },
		"spec.parameters.shape [1]":    func(s *CircuitSpec) { *s.Parameters = From([]float32{1}) },
		"use 1 to 1048576 rows":        func(s *CircuitSpec) { s.Parameters = &wide },
		"spec.shots -1 of 2 runs":      func(s *CircuitSpec) { s.Shots = -1 },
		"use 0 to 268435456":           func(s *CircuitSpec) { s.Shots = MaxShots + 1 },
		"at most 4294967295":           func(s *CircuitSpec) { s.Parameters, s.Shots = &seventeen, MaxShots },
		"use at most 65536":            func(s *CircuitSpec) { s.Expect = make([]string, MaxPaulis+1) },
		`spec.expect[1] "ZA"`:          func(s *CircuitSpec) { s.Expect = []string{"ZZ", "ZA"} },
		`spec.expect[0] ""`:            func(s *CircuitSpec) { s.Expect = []string{""} },
		"for each qubit, at most 34":   func(s *CircuitSpec) { s.Expect = []string{strings.Repeat("Z", 35)} },
		"spec.return[0] samples":       func(s *CircuitSpec) { s.Return, s.Shots = []string{ReturnSamples}, 0 },
		`spec.return[1] "amplitudes":`: func(s *CircuitSpec) { s.Return = []string{ReturnState, "amplitudes"} },
	} {
		s := good()
		change(s)
		var e *jobs.Error
		if err := s.Check(); !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200v; want code invalid and %q", err, want)
		}
	}
}

// FuzzSpec: no specification makes Check panic, or allocate what a shape alone says.
func FuzzSpec(f *testing.F) {
	f.Add(`{"op":"sum","in":{"type":"f32","shape":[2],"values":[1,2]}}`)
	f.Add(`{"a":{"type":"f32","shape":[2,-1]},"b":{"type":"f32","shape":[2]}}`)
	f.Add(`{"source":"x","entry":"k","grid":[1],"block":[1],"args":[{"out":{"type":"f32","shape":[1099511627776]}}]}`)
	f.Add(`{"qasm":"qubit q;","parameters":{"type":"f32","shape":[0]},"shots":1}`)
	f.Fuzz(func(_ *testing.T, text string) {
		for _, kind := range Kinds() {
			s := NewSpec(kind)
			if json.Unmarshal([]byte(text), s) == nil {
				_ = s.Check()
			}
		}
	})
}
