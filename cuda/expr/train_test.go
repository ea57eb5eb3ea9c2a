package expr_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

var (
	trainRows  = flag.Int64("trainrows", 1000, "rows of TestAutoencoder")
	trainSteps = flag.Int("trainsteps", 20, "steps of TestAutoencoder")
)

// TestAutograd: derivatives equal PyTorch's, within the rounding of float32.
// testdata/torch_grad.py writes the table.
func TestAutograd(t *testing.T) {
	text, err := os.ReadFile("testdata/autograd.json")
	must(t, err)
	var all []struct {
		Text      string
		Loss      float64
		Inputs    map[string][]float32
		Gradients map[string][]float32
	}
	must(t, json.Unmarshal(text, &all))
	if len(all) < 15 {
		t.Fatalf("%d losses in the table", len(all))
	}
	for _, c := range all {
		in := map[string]expr.Array{}
		for _, s := range gradSources {
			values := c.Inputs[s.Name]
			if s.Type == ir.I32 {
				numbers := make([]int32, len(values))
				for i, v := range values {
					numbers[i] = int32(v)
				}
				in[s.Name] = expr.Array{Data: device.Bytes(numbers), Rows: s.Rows}
				continue
			}
			in[s.Name] = expr.Array{Data: device.Bytes(values), Rows: s.Rows}
		}
		for name, want := range c.Gradients {
			p, err := expr.Parse(fmt.Sprintf("l0 := %s; l = l0; g = grad(l0, %s)", c.Text, name), gradSources...)
			must(t, err)
			out, err := expr.Interpret(t.Context(), p, in)
			must(t, err)
			got := device.Of[float32](out["g"].Data)
			off, length := 0.0, 1e-6
			for i, v := range want {
				off += math.Pow(float64(v-got[i]), 2)
				length += math.Pow(float64(v), 2)
			}
			if off = math.Sqrt(off / length); off > 2e-6 || len(got) != len(want) {
				t.Errorf("%s by %s: %v, PyTorch has %v: %.2g", c.Text, name, got, want, off)
			}
		}
	}
}

// TestAdam: steps equal steps of Adam in float64, within the rounding of float32.
func TestAdam(t *testing.T) {
	const text = "mean(square(matmul(x, w) + b - y))"
	sources := []expr.Source{
		{Name: "x", Type: ir.F32, Rows: 4, Width: 2},
		{Name: "y", Type: ir.F32, Rows: 4},
		{Name: "w", Type: ir.F32, Rows: 2, Width: 1},
		{Name: "b", Type: ir.F32, Rows: 1, Width: 1},
	}
	in := map[string]expr.Array{
		"x": {Data: device.Bytes([]float32{1, 2, -1, 0.5, 3, -2, 0.25, 1}), Rows: 4}, "y": vector(1, -2, 0.5, 3),
		"w": vector(0.5, -0.25), "b": vector(0),
	}
	a := expr.Adam{Rate: 0.05, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Decay: 0.01}
	s, err := expr.ParseTraining(text, []string{"w", "b"}, a, false, sources...)
	must(t, err)
	w := []float64{0.5, -0.25, 0}
	var m, v [3]float64
	for _, name := range []string{"w.m", "w.v", "b.m", "b.v"} {
		in[name] = expr.Array{Data: make([]byte, 8), Rows: map[bool]int64{true: 2, false: 1}[name[0] == 'w']}
	}
	x, y := []float64{1, 2, -1, 0.5, 3, -2, 0.25, 1}, []float64{1, -2, 0.5, 3}
	for step := 1; step <= 200; step++ {
		for name, v := range s.Step(int64(step)) {
			in[name] = expr.Scalar(v)
		}
		out, err := expr.Interpret(t.Context(), s.Program, in)
		must(t, err)
		loss, g := 0.0, [3]float64{a.Decay * w[0], a.Decay * w[1], a.Decay * w[2]}
		for i := range y {
			e := x[2*i]*w[0] + x[2*i+1]*w[1] + w[2] - y[i]
			loss += e * e / 4
			g[0], g[1], g[2] = g[0]+e*x[2*i]/2, g[1]+e*x[2*i+1]/2, g[2]+e/2
		}
		for i := range w {
			m[i] = a.Beta1*m[i] + (1-a.Beta1)*g[i]
			v[i] = a.Beta2*v[i] + (1-a.Beta2)*g[i]*g[i]
			first, second := 1-math.Pow(a.Beta1, float64(step)), 1-math.Pow(a.Beta2, float64(step))
			w[i] -= a.Rate / first * m[i] / (math.Sqrt(v[i]/second) + a.Epsilon)
		}
		if got := float64(device.Of[float32](out["out"].Data)[0]); math.Abs(got-loss) > 1e-4*loss {
			t.Fatalf("step %d: loss %v, want %v", step, got, loss)
		}
		for _, name := range []string{"w", "b", "w.m", "w.v", "b.m", "b.v"} {
			in[name] = out[name]
		}
	}
	got := append(slices.Clone(device.Of[float32](in["w"].Data)), device.Of[float32](in["b"].Data)...)
	for i := range w {
		if math.Abs(float64(got[i])-w[i]) > 1e-4 {
			t.Errorf("weights %v, want %v", got, w)
		}
	}
}

// TestTrainingErrors: a text that is no loss of its weights is refused.
func TestTrainingErrors(t *testing.T) {
	for text, want := range map[string]string{
		"x = sum(v); y = sum(v)":         "2 outputs",
		"sum(v * a)":                     `weight "w": use an array`,
		"w = sum(matmul(x, w))":          `weight "w"`,
		"matmul(x, w)":                   "use one number",
		"sum(f32(i)) + sum(matmul(x, w)": "column",
	} {
		_, err := expr.ParseTraining(text, []string{"w"}, expr.DefaultAdam, false, gradSources...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	wide := []expr.Source{
		{Name: "x", Type: ir.F32, Rows: 5, Width: 100}, {Name: "w", Type: ir.F32, Rows: 100, Width: 2},
	}
	if _, err := expr.ParseTraining("sum(matmul(x, w))", []string{"w"}, expr.DefaultAdam, false, wide...); err == nil ||
		!strings.Contains(err.Error(), "matmul of 100 and 2 columns has no fixed order") {
		t.Errorf("a product of 100 columns: %v", err)
	}
	if _, err := expr.ParseTraining("sum(matmul(x, w))", []string{"w"}, expr.DefaultAdam, true, wide...); err != nil {
		t.Errorf("a product of 100 columns that is allowed: %v", err)
	}
}

// autoencoderInputs are rows of 32 that follow from five numbers, and first weights, as in
// testdata/torch_grad.py.
func autoencoderInputs(rows int64) map[string][]float32 {
	x := make([]float32, 32*rows)
	primes := []int64{7919, 104729, 15485863, 32452843, 49979687}
	var mix [5][32]float32
	for k := range mix {
		for c := range mix[k] {
			mix[k][c] = (float32((k*37+c*101+13)%97)/97 - 0.5) * 4
		}
	}
	var all sync.WaitGroup
	cores := int64(runtime.GOMAXPROCS(0))
	for core := range cores {
		all.Go(func() {
			for r := core; r < rows; r += cores {
				for k, p := range primes {
					z := float32(r*p%1000003)/1000003 - 0.5
					for c := range mix[k] {
						x[32*r+int64(c)] += z * mix[k][c]
					}
				}
			}
		})
	}
	all.Wait()
	weight := func(n, m int, scale float32) []float32 {
		w := make([]float32, n*m)
		for i := range w {
			w[i] = (float32((i/m*53+i%m*29+7)%89)/89 - 0.5) * scale
		}
		return w
	}
	return map[string][]float32{
		"x": x, "w1": weight(32, 8, 0.5), "b1": make([]float32, 8), "w2": weight(8, 32, 0.8), "b2": make([]float32, 32),
	}
}

// TestAutoencoder prints the median time of a step of Adam over rows of 32, and the loss behind the
// last one, which has fallen.
func TestAutoencoder(t *testing.T) {
	d, s := open(t)
	text := autoencoder[:strings.Index(autoencoder, "l = ")] + "l = loss"
	names := []string{"w1", "b1", "w2", "b2"}
	training, err := expr.ParseTraining(text, names, expr.DefaultAdam, false, sumSources(*trainRows)...)
	must(t, err)
	k, err := expr.Compile(d, training.Program, expr.Options{Rows: *trainRows})
	must(t, err)
	steps := *trainSteps
	if *deviceName == "emulated" {
		steps = 2 // each launch is a process
	}
	in, sets := map[string]expr.Memory{}, [2]map[string]expr.Memory{{}, {}}
	memory := func(values []float32, rows int64) expr.Memory {
		b, err := d.Alloc(4*int64(len(values)), "test")
		must(t, err)
		t.Cleanup(func() { b.Close() })
		must(t, b.Write(0, device.Bytes(values)))
		return expr.Memory{Buffer: b, Rows: rows}
	}
	values := autoencoderInputs(*trainRows)
	in["x"] = memory(values["x"], *trainRows)
	for i, name := range names {
		m, v := expr.Moments(name)
		rows := []int64{32, 1, 8, 1}[i]
		for at := range sets {
			sets[at][name] = memory(values[name], rows)
			zero := make([]float32, len(values[name]))
			sets[at][m], sets[at][v] = memory(zero, rows), memory(zero, rows)
		}
	}
	losses := memory(make([]float32, steps), int64(steps))
	var events []device.Event
	for range 2 * min(steps, 3+*repeats) {
		e, err := d.NewEvent()
		must(t, err)
		t.Cleanup(func() { e.Close() })
		events = append(events, e)
	}
	ctx := context.Background()
	begin := time.Now()
	for i := range steps {
		for name, m := range sets[0] {
			in[name] = m
		}
		for name, v := range training.Step(int64(i + 1)) {
			in[name] = expr.Memory{Bits: math.Float32bits(v)}
		}
		sets[1]["l"] = expr.Memory{Buffer: losses.Buffer, Off: 4 * int64(i)}
		if 2*i < len(events) {
			must(t, s.Record(events[2*i]))
		}
		_, err := k.Run(ctx, s, in, sets[1])
		must(t, err)
		if 2*i < len(events) {
			must(t, s.Record(events[2*i+1]))
		}
		delete(sets[1], "l")
		sets[0], sets[1] = sets[1], sets[0]
		if i%50 == 49 {
			must(t, s.Sync(ctx))
		}
	}
	must(t, s.Sync(ctx))
	wall := time.Since(begin)
	var took []time.Duration
	for i := 3; 2*i < len(events); i++ {
		v, err := events[2*i+1].Since(events[2*i])
		must(t, err)
		took = append(took, v)
	}
	slices.Sort(took)
	all := make([]float32, steps)
	must(t, losses.Buffer.Read(0, device.Bytes(all)))
	if !(all[steps-1] < all[0]) {
		t.Errorf("the loss is %v, and %v after %d steps", all[0], all[steps-1], steps)
	}
	if len(took) > 0 {
		fmt.Printf("a step of %d rows %.1f us in %d kernels, loss %.8g, after %d steps %.8g, wall %v\n", *trainRows,
			us(took[len(took)/2]), k.Kernels(), all[0], steps, all[steps-1], wall)
	}
	if *explain {
		for name, m := range sets[0] {
			in[name] = m
		}
		text, err := k.Measure(ctx, s, in)
		must(t, err)
		fmt.Print(text)
	}
}
