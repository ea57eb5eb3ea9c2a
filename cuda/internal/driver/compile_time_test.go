//go:build cuda

package driver

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestCompileAtOnce: sources that are compiled at the same time become the kernels that they become
// alone, one source becomes one kernel, and an error belongs to its source.
func TestCompileAtOnce(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	const n = 8
	source := func(i int) string {
		return fmt.Sprintf("__global__ void at_once(unsigned *p) { p[0] = %du; }", i)
	}
	var all sync.WaitGroup
	var found [2 * n]device.Kernel
	var bad [n]error
	begin := time.Now()
	for i := range 2 * n {
		all.Go(func() {
			var err error
			if found[i], err = d.Compile("at_once", source(i%n)); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range n {
		all.Go(func() { _, bad[i] = d.Compile("wrong", "__global__ void wrong(int *p) { p[0] = q; }") })
	}
	all.Wait()
	t.Logf("%d sources in %v", n+1, time.Since(begin))
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := d.Alloc(4, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range n {
		if found[i] != found[i+n] {
			t.Errorf("source %d became two kernels", i)
		}
		if err := s.Launch(found[i], device.Geometry{Grid: 1, Block: 1}, device.Ptr(b)); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var v [1]uint32
		if err := b.Read(0, device.Bytes(v[:])); err != nil || v[0] != uint32(i) {
			t.Errorf("kernel %d stores %d, %v", i, v[0], err)
		}
		if bad[i] == nil {
			t.Error("a wrong source was compiled")
		}
	}
}

// TestCompileTimes prints how long the compiler takes for kernels of expressions, with the options
// of the driver and with others.
func TestCompileTimes(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	if d.compiler == nil {
		t.Skip("no NVRTC")
	}
	for _, text := range []string{
		"x * 2", "sum(sqrt(x*x + y*y))", "filter(x * 2 + 1, x > 0.5)", "softmax(m)", "cumsum(x)",
	} {
		p, err := expr.Parse(
			text,
			expr.Source{Name: "x", Type: ir.F32, Rows: 1000},
			expr.Source{
				Name: "y",
				Type: ir.F32,
				Rows: 1000,
			},
			expr.Source{Name: "m", Type: ir.F32, Rows: 1000, Width: 1024},
		)
		if err != nil {
			t.Fatal(err)
		}
		c, err := expr.Compile(d, p, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, code := range c.Sources() {
			src := kernels.Source{Name: name, Code: code, File: name + ".cu"}
			base := d.compilerOptions(src)
			bare := slices.DeleteFunc(slices.Clone(base), func(o string) bool { return o == "--generate-line-info" })
			for what, options := range map[string][]string{
				"driver": base, "no line info": bare, "minimal": append(slices.Clone(bare), "--minimal"),
				"ptxas O1":  append(slices.Clone(bare), "--ptxas-options=-O1"),
				"ptx alone": append(slices.Clone(bare)[1:], "--gpu-architecture=compute_90"),
			} {
				var times []time.Duration
				for range 3 {
					begin := time.Now()
					_, err = d.compiler.compile(src, options)
					times = append(times, time.Since(begin))
				}
				fmt.Printf("compile %-28s %-14s %v %v\n", text, what,
					slices.Min(times).Round(time.Millisecond), err != nil)
			}
		}
	}
}
