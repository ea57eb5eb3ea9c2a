package expr_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// onGPU skips a test of times where no GPU is.
func onGPU(t *testing.T) (device.Device, device.Stream) {
	t.Helper()
	if *deviceName == "emulated" || *deviceName == "host" {
		t.Skip("the model has the times of a GPU")
	}
	return open(t)
}

// hundred returns a program of 100 operations, which become one kernel.
func hundred(t testing.TB) *expr.Program {
	t.Helper()
	text := "z0 := (x + y) * y + 0.5"
	for i := 1; i < 49; i++ {
		text += fmt.Sprintf("; z%d := z%d * y + 0.5", i, i-1)
	}
	p, err := expr.Parse(text+"; sum(z48)", vectors("x", "y")(1<<20)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// BenchmarkPlan plans and writes 100 operations.
func BenchmarkPlan(b *testing.B) {
	d, _ := open(b)
	p := hundred(b)
	for b.Loop() {
		if _, err := expr.Compile(d, p, expr.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestLong: arrays of more than 2^31 elements are mapped, folded, scanned and filtered to their
// ends.
func TestLong(t *testing.T) {
	d, s := onGPU(t)
	const n = 1<<31 + 5
	x, err := d.Alloc(n, "test")
	must(t, err)
	defer x.Close()
	must(t, x.Fill(0, n-5, 1))
	must(t, x.Write(n-5, []byte{7, 7, 7, 7, 7}))
	in := map[string]expr.Memory{"x": {Buffer: x, Rows: n}}
	p, err := expr.Parse("x + u8(1); s = sum(x); m = max(x); k = filter(x, x > 1); c = cumsum(x)",
		expr.Source{Name: "x", Type: ir.U8, Rows: n})
	must(t, err)
	for _, unfused := range []bool{false, true} {
		k, err := expr.Compile(d, p, expr.Options{Rows: n, Unfused: unfused})
		must(t, err)
		out, err := k.Run(t.Context(), s, in, nil)
		must(t, err)
		must(t, s.Sync(t.Context()))
		word := func(name string, off int64) uint32 {
			var v [1]uint32
			must(t, out[name].Buffer.Read(off, device.Bytes(v[:])))
			return v[0]
		}
		last := make([]byte, 6)
		must(t, out["out"].Buffer.Read(n-6, last))
		if want := []byte{2, 8, 8, 8, 8, 8}; !slices.Equal(last, want) {
			t.Errorf("x + 1 ends with %v, want %v", last, want)
		}
		if got, want := word("s", 0), uint32(1<<31+35); got != want {
			t.Errorf("sum %d, want %d", got, want)
		}
		if got := word("m", 0); got != 7 {
			t.Errorf("max %d, want 7", got)
		}
		if rows := out["k"].Rows; rows != 5 {
			t.Errorf("%d elements are kept, want 5", rows)
		}
		if got, want := word("c", 4*(n-1)), uint32(1<<31+35); got != want {
			t.Errorf("cumsum ends with %d, want %d", got, want)
		}
		for _, m := range out {
			must(t, m.Buffer.Close())
		}
	}
}
