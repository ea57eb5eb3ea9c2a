package gpujobs_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// arrowOf returns an Arrow IPC stream with the columns x and more.
func arrowOf(t *testing.T, x []float32) []byte {
	t.Helper()
	s := arrow.NewSchema([]arrow.Field{
		{Name: "x", Type: arrow.PrimitiveTypes.Float32}, {Name: "more", Type: arrow.PrimitiveTypes.Float32},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i := range 2 {
		b.Field(i).(*array.Float32Builder).AppendValues(x, nil)
	}
	r := b.NewRecordBatch()
	defer r.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	if err := w.Write(r); err != nil {
		t.Fatalf("write: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return out.Bytes()
}

// TestFormats: an array may be an Arrow stream or a .npy file, inline and as an object.
func TestFormats(t *testing.T) {
	r := start(t, gpujobs.Options{})
	x := []float32{1, 2, 3.5}
	var file bytes.Buffer
	if err := numpy.Write(&file, &numpy.Array{Type: "<f4", Shape: []int64{3}, Data: gpujob.From(x).Data}); err != nil {
		t.Fatalf("numpy.Write: %v", err)
	}
	table := arrowOf(t, x)
	r.store.all["acme/table"], r.store.all["acme/file"] = table, file.Bytes()
	r.store.all["acme/long"] = append(file.Bytes(), make([]byte, 3<<20)...)
	in := gpujob.Array{Type: gpujob.F32, Shape: gpujob.Shape{3}}
	for _, c := range []struct {
		change func(a *gpujob.Array)
		code   jobs.Code // empty: the sum is 6.5
		text   string
	}{
		{func(a *gpujob.Array) { a.Format, a.Data, a.Column = "arrow", table, "x" }, "", ""},
		{func(a *gpujob.Array) { a.Format, a.Data = "npy", file.Bytes() }, "", ""},
		{func(a *gpujob.Array) { a.Format, a.Object, a.Column = "arrow", "table", "more" }, "", ""},
		{func(a *gpujob.Array) { a.Format, a.Object = "npy", "file" }, "", ""},
		{func(a *gpujob.Array) { a.Format, a.Data = "arrow", table }, jobs.CodeInvalid, "name one"},
		{func(a *gpujob.Array) { a.Format, a.Data = "npy", table }, jobs.CodeInvalid, "spec.in"},
		{func(a *gpujob.Array) { a.Format, a.Object = "npy", "table" }, jobs.CodeInput, `object "table"`},
		{func(a *gpujob.Array) { a.Format, a.Object = "npy", "long" }, jobs.CodeInput, `object "long"`},
		{func(a *gpujob.Array) {
			a.Format, a.Data, a.Type = "npy", file.Bytes(), gpujob.I32
		}, jobs.CodeInvalid, "[3] of <f4"},
		{func(a *gpujob.Array) {
			a.Format, a.Data, a.Shape = "npy", file.Bytes(), gpujob.Shape{2}
		}, jobs.CodeInvalid, "spec.in"},
		{func(a *gpujob.Array) { a.Format, a.Data = "csv", table }, jobs.CodeInvalid, "spec.in.format"},
		{func(a *gpujob.Array) { a.Column, a.Data = "x", table }, jobs.CodeInvalid, "spec.in.column"},
		{func(a *gpujob.Array) {
			a.Format, a.Values = "npy", json.RawMessage("[1,2,3]")
		}, jobs.CodeInvalid, "use data"},
	} {
		a := in
		c.change(&a)
		data, err := json.Marshal(&gpujob.ReduceSpec{Op: "sum", In: a})
		if err != nil {
			t.Fatal(err)
		}
		out, err := r.try(t.Context(), jobs.Job{ID: "j", Kind: "reduce", Tenant: "acme", Spec: data})
		switch {
		case c.code == "":
			if err != nil || out.(*gpujob.ReduceOutput).Text != "6.5" {
				t.Errorf("%+v: %+v, %v; want 6.5", a, out, err)
			}
		case err == nil || jobs.AsError(err).Code != c.code || !strings.Contains(err.Error(), c.text):
			t.Errorf("%.80v: %v; want code %s and %q", a, err, c.code, c.text)
		}
	}
}

// ptxAdd returns a job that adds two vectors by the PTX of the set.
func ptxAdd(t *testing.T) *gpujob.KernelSpec {
	t.Helper()
	text, ok := kernels.PTX("vector_add_f32")
	if !ok {
		t.Fatal("no PTX of vector_add_f32")
	}
	x, y := gpujob.From([]float32{1, 2, 3}), gpujob.From([]float32{10, 20, 30})
	return &gpujob.KernelSpec{PTX: text, Entry: "vector_add_f32", Grid: []int{1}, Block: []int{32}, Args: []gpujob.Arg{
		{Array: &x},
		{Array: &y},
		{Name: "z", Out: &gpujob.Zero{Type: gpujob.F32, Shape: gpujob.Shape{3}}},
		{Type: gpujob.U64, Value: "3"},
	}}
}

// TestPTX: a GPU launches PTX of a submitter, and its arguments are compared with the entry.
func TestPTX(t *testing.T) {
	r := start(t, gpujobs.Options{AllowKernels: true})
	if *deviceName == "host" {
		refused(t, r, ptxAdd(t), jobs.CodeInvalid, "device host compiles no kernels")
	} else {
		out := do[gpujob.KernelOutput](t, r, ptxAdd(t))
		if z := gpujob.Decode[float32](out.Arrays["z"].Data); len(z) != 3 || z[0] != 11 || z[2] != 33 {
			t.Errorf("the sum is %v", z)
		}
		damaged := ptxAdd(t)
		damaged.PTX = strings.Replace(damaged.PTX, "ret;", "return;", 1)
		refused(t, r, damaged, jobs.CodeInvalid, "spec.ptx")
	}
	for want, change := range map[string]func(s *gpujob.KernelSpec){
		"4 parameters, 3 arguments": func(s *gpujob.KernelSpec) { s.Args = s.Args[:3] },
		"parameter 3":               func(s *gpujob.KernelSpec) { s.Args[3].Type = gpujob.U32 },
		"no such .entry":            func(s *gpujob.KernelSpec) { s.Entry = "other" },
		".version":                  func(s *gpujob.KernelSpec) { s.PTX = "__global__ void vector_add_f32() {}" },
		"use one of them":           func(s *gpujob.KernelSpec) { s.Source = "x" },
		"spec.exact":                func(s *gpujob.KernelSpec) { s.Exact = true },
		"at most 1048576":           func(s *gpujob.KernelSpec) { s.PTX += strings.Repeat(" ", 10<<20) },
	} {
		s := ptxAdd(t)
		change(s)
		refused(t, r, s, jobs.CodeInvalid, want)
	}
}
