package gpujobs_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// TestCompute: outputs of each kind of value, of arrays inline and in the object store.
func TestCompute(t *testing.T) {
	r := start(t, gpujobs.Options{})
	x, y := gpujob.From([]float32{3, 5, -8}), gpujob.From([]float32{4, 12, 15})
	m := gpujob.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	out := do[gpujob.ComputeOutput](t, r, &gpujob.ComputeSpec{
		Expr: "sum(sqrt(x*x + y*y)); k = filter(x, x < limit); b = x > y; s = row_sum(m) + x; d = m * x; " +
			"n = count(y > 4.5)",
		In: map[string]*gpujob.Array{
			"x": &x,
			"y": &y,
			"m": &m,
		}, Numbers: map[string]float32{"limit": 4}, Explain: true,
	})
	for name, want := range map[string][]float32{
		"out": {35}, "k": {3, -8}, "s": {6, 12, 3}, "d": {3, 6, 15, 20, -40, -48},
	} {
		if got := gpujob.Decode[float32](out.Values[name].Data); !equalBits(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if b := out.Values["b"]; b.Type != gpujob.U8 || string(b.Data) != "\x00\x00\x00" {
		t.Errorf("b is %+v, want three zeros of u8", b)
	}
	if n := gpujob.Decode[uint32](out.Values["n"].Data); len(n) != 1 || n[0] != 2 {
		t.Errorf("n is %v, want 2", n)
	}
	if shape := out.Values["d"].Shape; len(shape) != 2 || shape[1] != 2 || out.Plan == "" ||
		out.Device != *deviceName {
		t.Errorf("shape %v, plan %q, device %q", shape, out.Plan, out.Device)
	}
	// A large input comes from the store, and a large output goes there.
	values := make([]float32, 200_000)
	for i := range values {
		values[i] = float32(i)
	}
	big := gpujob.From(values)
	r.store.all[jobs.Owner{Tenant: jobs.DefaultTenant}.Named("big")] = big.Data
	out = do[gpujob.ComputeOutput](t, r, &gpujob.ComputeSpec{
		Expr: "x + 1", In: map[string]*gpujob.Array{"x": {Type: gpujob.F32, Shape: big.Shape, Object: "big"}},
	})
	if a := out.Values["out"]; a.Object != "gpu-j-out" || len(a.Data) > 0 {
		t.Errorf("the output is %q with %d bytes, want an object", a.Object, len(a.Data))
	}
}

func equalBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// TestComputeErrors: errors of the text name the column, errors of arrays the array.
func TestComputeErrors(t *testing.T) {
	r := start(t, gpujobs.Options{Memory: 1 << 20})
	x, i := gpujob.From([]float32{1, 2}), gpujob.From([]int32{1, 2, 3})
	for text, want := range map[string]string{
		"x +":                "column 4",
		"x + z":              `column 5: there is no array "z"`,
		"sqrt(i)":            "sqrt of i32",
		"x + f32(i)":         "rows, other inputs have",
		"f(x)":               "no function",
		"bf16(x)":            "use f32",
		"x + matmul(x, x)":   "matmul",
		"x = x; x = x":       "another of this name",
		"x by x":             "only swarms have groups",
		"((((((((((x":        `expected ")"`,
		"filter(x, x)":       "filter",
		"select(x, x, x)":    "select",
		"sum(x) where x + 1": "where",
	} {
		j, err := gpujob.NewJob(
			"j",
			&gpujob.ComputeSpec{Expr: text, In: map[string]*gpujob.Array{"x": &x, "i": &i}},
		)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.try(t.Context(), j)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want code invalid and %q", text, err, want)
		}
	}
	wide := gpujob.From(make([]float32, 300_000), 300_000)
	for _, s := range []gpujob.Spec{
		&gpujob.ComputeSpec{Expr: "sum(x)", In: map[string]*gpujob.Array{"x": &wide}},
		&gpujob.ChainSpec{Factors: []gpujob.Array{
			gpujob.From(make([]float32, 3000), 3000, 1), gpujob.From(make([]float32, 3000), 1, 3000),
		}},
	} {
		j, err := gpujob.NewJob("j", s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.try(t.Context(), j); err == nil || !strings.Contains(err.Error(), "--gpu-job-memory") {
			t.Errorf("too much memory: %v", err)
		}
	}
}

// TestComputeCancelled: a cancelled job ends soon, whatever it computes.
func TestComputeCancelled(t *testing.T) {
	r := start(t, gpujobs.Options{Memory: 1 << 30})
	x := gpujob.From(make([]float32, testkit.Of(10_000_000, 2_000_000)))
	j, err := gpujob.NewJob("j", &gpujob.ComputeSpec{
		Expr: "sum(exp(tanh(log(exp(x) + tanh(exp(x))))))", In: map[string]*gpujob.Array{"x": &x},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(testkit.Of(200, 30))*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err = r.try(ctx, j); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled job: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("it took %v", took)
	}
}

// TestChain: the product of skewed matrices, in the order that is faster.
func TestChain(t *testing.T) {
	r := start(t, gpujobs.Options{})
	matrix := func(rows, columns int64) gpujob.Array {
		v := make([]float32, rows*columns)
		for i := range v {
			v[i] = float32(i%7) - 3
		}
		return gpujob.From(v, rows, columns)
	}
	factors := []gpujob.Array{matrix(300, 200), matrix(200, 300), matrix(300, 2)}
	out := do[gpujob.ChainOutput](t, r, &gpujob.ChainSpec{Factors: factors})
	if out.Plan != "(m1 (m2 m3))" {
		t.Errorf("plan %s", out.Plan)
	}
	want := factors[0]
	for _, f := range factors[1:] {
		a, b := gpujob.Decode[float32](want.Data), gpujob.Decode[float32](f.Data)
		m, k, n := want.Shape[0], want.Shape[1], f.Shape[1]
		c := make([]float32, m*n)
		for i := range m {
			for j := range n {
				for l := range k {
					c[i*n+j] += a[i*k+l] * b[l*n+j]
				}
			}
		}
		want = gpujob.From(c, m, n)
	}
	if got := gpujob.Decode[float32](out.C.Data); !equalBits(
		got,
		gpujob.Decode[float32](want.Data),
	) { // whole numbers
		t.Errorf("the product differs: %v", got[:4])
	}
}
