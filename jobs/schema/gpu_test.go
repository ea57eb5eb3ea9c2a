package schema_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// specs returns a specification of each kind of pool gpu.
func specs() []gpujob.Spec {
	f, u := gpujob.From([]float32{1, 2}), gpujob.From([]uint32{1, 2})
	matrix := gpujob.From(make([]float32, 8), 1, 8)
	angles, rows := gpujob.From([]float32{1}), gpujob.From([]float64{1, 2}, 2, 1)
	asked := gpujob.From([]int32{0, 1, 2})
	return []gpujob.Spec{
		&gpujob.ReduceSpec{Op: "sum", In: f},
		&gpujob.AllreduceSpec{In: []gpujob.Array{f, f}},
		&gpujob.SortSpec{In: f, Indices: true},
		&gpujob.HistogramSpec{In: f, Bins: 2, Max: 1},
		&gpujob.TallySpec{Ballots: gpujob.From([]uint8{0, 1}), Candidates: 2, Weights: &u, Priorities: &u},
		&gpujob.FuseSpec{Embeddings: matrix, Members: gpujob.From([]uint32{0}), Nodes: 1},
		&gpujob.GemmSpec{A: matrix, B: matrix, TB: true, Alpha: 2},
		&gpujob.ComputeSpec{
			Expr: "sum(x * a)", In: map[string]*gpujob.Array{"x": &f}, Numbers: map[string]float32{"a": 2},
			Explain: true,
		},
		&gpujob.ChainSpec{Factors: []gpujob.Array{matrix, gpujob.From(make([]float32, 16), 8, 2)}},
		&gpujob.CircuitSpec{
			QASM: "input float a; qubit q; bit c; U(a, 0, 0) q; c = measure q;", Prepare: &angles, Encoding: "angle",
			Parameters: &rows, Shots: 10, Seed: math.MaxUint64, Expect: []string{"Z"},
			Return: []string{"counts", "samples"}, Explain: true,
		},
		&gpujob.TrainSpec{
			Model: "m", Hidden: 8, Width: 4, Rows: 2, Items: 3, Window: 10, Batch: 2, Epochs: 3, Patience: 1,
			Rate: 0.004, Clip: 1, Decay: 1e-5, Dropout: 0.2, Validate: 0.1, Seed: math.MaxUint64,
			Lengths: gpujob.From([]uint32{1, 1, 1}), HeldOut: 1, Inputs: gpujob.From([]uint32{0, 1, 1}), Asked: &asked,
			Targets: gpujob.From([]int32{0, 1, -1}), Continue: "j",
		},
		&gpujob.TrainProgramSpec{
			Expr: "mean(square(x * w - a))", In: map[string]*gpujob.Array{"x": &f},
			Weights: map[string]*gpujob.Array{"w": &f},
			Numbers: map[string]float32{"a": 2}, Steps: 10, Rate: 0.01, Decay: 0.1, Inexact: true, Continue: "j",
		},
		&gpujob.KernelSpec{
			Source: "__global__ void k(float *x, float *y, int n) {}", Entry: "k", Grid: []int{1}, Block: []int{1},
			Args: []gpujob.Arg{
				{Array: &f, Return: true},
				{Name: "y", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{2}}},
				{Type: gpujob.I32, Value: "2"},
			},
		},
	}
}

// TestGPUSpecs: what package gpujob writes passes the schemas, and a wrong field is named with its
// cure.
func TestGPUSpecs(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range specs() {
		seen[s.Kind()] = true
		j, err := gpujob.NewJob("j", s)
		if err != nil {
			t.Fatalf("NewJob: %v", err)
		}
		if err := schema.CheckSpec(j); err != nil {
			t.Errorf("%s: %v", s.Kind(), err)
		}
	}
	if len(seen) != len(gpujob.Kinds()) {
		t.Errorf("specifications of %d kinds, want %d", len(seen), len(gpujob.Kinds()))
	}
	for _, c := range [][3]string{
		{"reduce", `{"op":"product","in":{"type":"f32","shape":[1],"values":[1]}}`, "/spec/op"},
		{"reduce", `{"op":"sum","in":{"type":"f16","shape":[1],"values":[1]}}`, "/spec/in/type"},
		{"sort", `{"in":{"type":"f32","shape":[-1]}}`, "/spec/in/shape/0"},
		{"gemm", `{"a":{"type":"f32","shape":[1,1]}}`, "/spec"},
		{"tally", `{"ballots":{"type":"u8","shape":[0]},"candidates":0}`, "/spec/candidates"},
		{"compute", `{"expr":""}`, "/spec/expr"},
		{"chain", `{"factors":[]}`, "/spec/factors"},
		{"circuit", `{"qasm":""}`, "/spec/qasm"},
		{"circuit", `{"qasm":"qubit q;","expect":["Q"]}`, "/spec/expect/0"},
		{"circuit", `{"qasm":"qubit q;","return":["all"]}`, "/spec/return/0"},
		{"train", `{"model":"a b"}`, "/spec"},
		{"train_program", `{"expr":"x","weights":{},"steps":1,"rate":1}`, "/spec/weights"},
		{"train_program", `{"expr":"x","weights":{"w":{"type":"f32","shape":[1]}},"steps":1,"rate":0}`, "/spec/rate"},
		{"kernel", `{"source":"x","entry":"a b","grid":[1],"block":[1],"args":[]}`, "/spec/entry"},
	} {
		var e *schema.Error
		err := schema.CheckSpec(jobs.Job{Pool: jobs.PoolGPU, Kind: c[0], Spec: json.RawMessage(c[1])})
		if !errors.As(err, &e) || e.Field != c[2] || e.Cure == "" {
			t.Errorf("%s %s: %v; want the field %s with a cure", c[0], c[1], err, c[2])
		}
	}
}
