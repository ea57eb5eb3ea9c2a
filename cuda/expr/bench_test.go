package expr_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	elements = flag.Int64("n", 1<<20, "elements of the workloads of TestWorkloads")
	repeats  = flag.Int("repeats", 30, "timed runs of each workload")
	explain  = flag.Bool("explain", false, "print the plan of each workload with the measured time of each kernel")
)

// workload is a program and what its inputs are.
type workload struct {
	name, text string
	in         func(n int64) []expr.Source
	// bytes is what one run must read and write, for n elements.
	bytes func(n int64) int64
	// reads: the rate is compared with a read, not with a copy.
	reads bool
}

func vectors(names ...string) func(n int64) []expr.Source {
	return func(n int64) (all []expr.Source) {
		for _, name := range names {
			all = append(all, expr.Source{Name: name, Type: ir.F32, Rows: n})
		}
		return all
	}
}

func rowsOf(width int64) func(n int64) []expr.Source {
	return func(n int64) []expr.Source {
		return []expr.Source{{Name: "x", Type: ir.F32, Rows: max(n/width, 1), Width: width}}
	}
}

func words(k float64) func(n int64) int64 {
	return func(n int64) int64 { return int64(k * 4 * float64(n)) }
}

var workloads = []workload{
	{"copy", "x * 1", vectors("x"), words(2), false},
	{"read", "sum(x)", vectors("x"), words(1), true},
	{"map_reduce", "sum(sqrt(x*x + y*y))", vectors("x", "y"), words(2), true},
	{"axpb_sum", "sum(x * 2.5 + 1.25)", vectors("x"), words(1), true},
	{"filter_half", "filter(x * 2 + 1, x > 0.5)", vectors("x"), words(1.5), false},
	{
		"chain_of_10",
		"z := x*x + 1; w := (z - x) * 0.5 + z*0.25; (w + abs(x)) * 2 - 1",
		vectors("x"),
		words(2),
		false,
	},
	{"softmax_1024", "softmax(x)", rowsOf(1024), words(2), false},
	{"normalize_1024", "normalize(x)", rowsOf(1024), words(2), false},
	{"softmax_4096", "softmax(x)", rowsOf(4096), words(2), false},
	{"row_sum_1024", "row_sum(x * x)", rowsOf(1024), words(1), true},
	{"mean_variance", "sum(x); v = sum(x * x); l = max(x)", vectors("x"), words(1), true},
	{"cumsum", "cumsum(x)", vectors("x"), words(2), false},
	{"uniform", "uniform(1) + x", vectors("x"), words(2), false},
	{"mlp_8_32_8", "matmul(relu(matmul(x, p) + b), q)", func(n int64) []expr.Source {
		return []expr.Source{
			{Name: "x", Type: ir.F32, Rows: max(n/26, 1), Width: 8}, // 10 million rows for 2^28
			{Name: "p", Type: ir.F32, Rows: 8, Width: 32},
			{Name: "b", Type: ir.F32, Rows: 1, Width: 32},
			{Name: "q", Type: ir.F32, Rows: 32, Width: 8},
		}
	}, func(n int64) int64 { return n / 26 * 64 }, false},
}

// TestWorkloads prints one line for each workload of the bars: the medians of the device's time of
// fused and unfused runs, and the rate in relation to a copy or a read of the same run. It compares
// a part of the outputs with the unfused ones.
func TestWorkloads(t *testing.T) {
	d, s := open(t)
	n, of := *elements, workloads
	if *deviceName == "emulated" {
		n = min(n, int64(testkit.Of(20_000, 5_000)))
		of = testkit.Few(workloads, 2) // the compiler takes seconds for each
	}
	rates := map[bool]float64{}
	for _, w := range of {
		t.Run(w.name, func(t *testing.T) {
			sources := w.in(n)
			p, err := expr.Parse(w.text, sources...)
			if err != nil {
				t.Fatal(err)
			}
			in := uniformInputs(t, d, sources)
			var took [2]time.Duration
			var kernels [2]int
			var first time.Duration
			var results [2][]byte
			for i, unfused := range []bool{false, true} {
				begin := time.Now()
				k, err := expr.Compile(d, p, expr.Options{Unfused: unfused, Rows: sources[0].Rows})
				if err != nil {
					t.Fatal(err)
				}
				if !unfused {
					first = time.Since(begin)
				}
				took[i] = timeRuns(t, d, s, k, in)
				kernels[i] = k.Kernels()
				if !unfused && *explain {
					text, err := k.Measure(context.Background(), s, in)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Print(text)
				}
				results[i] = runOnce(t, p, k, s, in)
			}
			if !slices.Equal(results[0], results[1]) {
				t.Errorf("fused and unfused results differ")
			}
			bytes := float64(w.bytes(n))
			rate := bytes / took[0].Seconds() / 1e9
			if w.name == "copy" || w.name == "read" {
				rates[w.reads] = rate
			}
			fmt.Printf(
				"%-16s fused %9.1f us (%d kernels), unfused %9.1f us (%d), %5.2fx, %12.0f bytes, %7.1f GB/s, "+
					"%5.1f %% of %s, compiled in %d ms\n",
				w.name,
				us(took[0]),
				kernels[0],
				us(took[1]),
				kernels[1],
				float64(took[1])/float64(max(took[0], 1)),
				bytes,
				rate,
				100*rate/rates[w.reads],
				map[bool]string{true: "read", false: "copy"}[w.reads],
				first.Milliseconds(),
			)
		})
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func uniformInputs(t *testing.T, d device.Device, sources []expr.Source) map[string]expr.Memory {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	in := map[string]expr.Memory{}
	piece := make([]float32, 1<<20)
	for i := range piece {
		piece[i] = r.Float32()
	}
	for _, src := range sources {
		n := src.Rows * max(src.Width, 1)
		b, err := device.Make[float32](d, n, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		for at := int64(0); at < n; at += int64(len(piece)) {
			// Every piece is another one: the same values from another start on.
			from := r.Int64N(int64(len(piece)))
			part := piece[from:min(int64(len(piece)), from+n-at)]
			if err := b.Set(at, part); err != nil {
				t.Fatal(err)
			}
			if at+int64(len(part)) < min(at+int64(len(piece)), n) {
				rest := piece[:min(int64(len(piece)), n-at)-int64(len(part))]
				if err := b.Set(at+int64(len(part)), rest); err != nil {
					t.Fatal(err)
				}
			}
		}
		in[src.Name] = expr.Memory{Buffer: b.Buffer, Rows: src.Rows}
	}
	return in
}

// timeRuns returns the median time between events around a run.
func timeRuns(
	t *testing.T,
	d device.Device,
	s device.Stream,
	k *expr.Compiled,
	in map[string]expr.Memory,
) time.Duration {
	t.Helper()
	var events [2]device.Event
	for i := range events {
		e, err := d.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		events[i] = e
	}
	ctx := context.Background()
	var all []time.Duration
	count := *repeats
	if *deviceName == "emulated" {
		count = 1
	}
	for i := range count + 2 {
		must(t, s.Record(events[0]))
		out, err := k.Run(ctx, s, in, nil)
		must(t, err)
		must(t, s.Record(events[1]))
		released := map[device.Buffer]bool{} // outputs of several names share one
		for _, m := range out {
			if !released[m.Buffer] {
				released[m.Buffer] = true
				must(t, s.Release(m.Buffer))
			}
		}
		must(t, s.Sync(ctx))
		took, err := events[1].Since(events[0])
		must(t, err)
		if i >= 2 {
			all = append(all, took)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// runOnce returns the first megabyte of the first output.
func runOnce(t *testing.T, p *expr.Program, k *expr.Compiled, s device.Stream, in map[string]expr.Memory) []byte {
	t.Helper()
	out, err := k.Run(context.Background(), s, in, nil)
	must(t, err)
	must(t, s.Sync(context.Background()))
	first := p.Outputs()[0]
	m := out[first.Name]
	data := make([]byte, min(m.Rows*expr.RowBytes(p, first.Name), 1<<20))
	must(t, m.Buffer.Read(m.Off, data))
	for _, m := range out {
		must(t, m.Buffer.Close())
	}
	return data
}
