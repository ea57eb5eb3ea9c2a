package expr_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

var (
	models     = flag.Int("models", 0, "random programs of TestModel")
	chainTimes = flag.Int("chains", 0, "random chains of TestChainTimes whose orders are all timed")
	chainFile  = flag.String("chain-file", "", "file for the timed chains as lines of JSON, for torch_chain.py")
)

func fillMemory(t *testing.T, d device.Device, src expr.Source, piece []byte) expr.Memory {
	t.Helper()
	if src.Scalar {
		return expr.Memory{Bits: math.Float32bits(0.75)}
	}
	n := src.Rows * max(src.Width, 1) * src.Type.Bytes()
	b, err := d.Alloc(max(n, 1), "test")
	must(t, err)
	for at := int64(0); at < n; at += int64(len(piece)) {
		must(t, b.Write(at, piece[:min(int64(len(piece)), n-at)]))
	}
	return expr.Memory{Buffer: b, Rows: src.Rows}
}

// TestModel compares the predicted with the measured time of random programs of 4 to 16 million
// rows, and the time of fused with the time of unfused programs. The programs are compiled ahead,
// at the same time.
func TestModel(t *testing.T) {
	d, s := onGPU(t)
	if *models == 0 {
		t.Skip("-models says how many programs")
	}
	type one struct {
		g *generator
		k [2]*expr.Compiled
	}
	all := make([]one, *models)
	var compiling sync.WaitGroup
	for i := range all {
		g := newGenerator(*seed + uint64(i))
		g.large, g.rows, g.width = true, 1<<(22+g.r.Int64N(3)), []int64{1, 1, 1, 4, 8}[g.r.IntN(5)]
		g.program()
		all[i].g = g
		for j := range 2 {
			compiling.Go(func() {
				k, err := expr.Compile(d, g.p, expr.Options{Unfused: j == 1, Rows: g.rows})
				if err != nil {
					t.Errorf("program %d: %v", i, err)
				}
				all[i].k[j] = k
			})
		}
	}
	compiling.Wait()
	r := rand.New(rand.NewPCG(5, 6))
	pieces := map[ir.Type][]byte{}
	for _, of := range types {
		pieces[of] = fill(r, of, 1<<20)
	}
	var ratios []float64
	slower, runs := 0, 0
	for i, p := range all {
		if p.k[0] == nil || p.k[1] == nil {
			continue
		}
		in := map[string]expr.Memory{"": {Rows: p.g.rows}}
		for _, src := range p.g.inputs {
			in[src.Name] = fillMemory(t, d, src, pieces[src.Type])
		}
		*repeats = 7
		fused, unfused := timeRuns(t, d, s, p.k[0], in), timeRuns(t, d, s, p.k[1], in)
		text, err := p.k[0].Measure(t.Context(), s, in)
		must(t, err)
		for _, m := range in {
			if m.Buffer != nil {
				must(t, m.Buffer.Close())
			}
		}
		predicted := p.k[0].Predicted()
		ratio := float64(predicted) / float64(fused)
		fmt.Printf("model %d: rows %d x %d, predicted %.1f, fused %.1f, unfused %.1f us, ratio %.3f\n%s", i, p.g.rows,
			p.g.width, us(predicted), us(fused), us(unfused), ratio, text)
		ratios = append(ratios, max(ratio, 1/ratio))
		runs++
		if float64(fused) > 1.05*float64(unfused) {
			slower++
			fmt.Printf("model %d: SLOWER than unfused\n", i)
		}
	}
	slices.Sort(ratios)
	fmt.Printf("MODEL %d programs: predicted by measured, median %.3f, p90 %.3f; fused slower by 5 %%: %d\n", runs,
		ratios[len(ratios)/2], ratios[len(ratios)*9/10], slower)
}

// TestProductTimes prints the measured and the predicted time of products of all sizes of a grid,
// as lines for a fit of plan.Model.Product.
func TestProductTimes(t *testing.T) {
	d, s := onGPU(t)
	if *chainTimes == 0 {
		t.Skip("-chains says that products are timed")
	}
	piece := pieceOfFloats(rand.New(rand.NewPCG(*seed, 9)))
	sizes := []int64{1, 16, 64, 128, 200, 512, 1024, 2048, 4096}
	for _, inner := range sizes {
		for _, columns := range sizes {
			b := fillMemory(t, d, expr.Source{Type: ir.F32, Rows: inner, Width: columns}, piece)
			for _, rows := range sizes {
				p := expr.New()
				p.Out("c", expr.MatMul(p.In("a", ir.F32, expr.Shape{Rows: rows, Width: inner}),
					p.In("b", ir.F32, expr.Shape{Rows: inner, Width: columns})))
				k, err := expr.Compile(d, p, expr.Options{})
				must(t, err)
				a := fillMemory(t, d, expr.Source{Type: ir.F32, Rows: rows, Width: inner}, piece)
				*repeats = 9
				took := timeRuns(t, d, s, k, map[string]expr.Memory{"a": a, "b": b})
				fmt.Printf("product %d %d %d: %.2f us, predicted %.2f, %s\n", rows, inner, columns, us(took),
					us(k.Predicted()), strings.Fields(k.Explain())[1])
				must(t, a.Buffer.Close())
			}
			must(t, b.Buffer.Close())
		}
	}
}

// pieceOfFloats returns a mebibyte of small random numbers.
func pieceOfFloats(r *rand.Rand) []byte {
	values := make([]float32, 1<<18)
	for i := range values {
		values[i] = r.Float32()/64 - 1.0/128
	}
	return device.Bytes(values)
}

// orders returns all orders in which factors from..to can be multiplied, as functions.
func orders(from, to int) []func([]expr.Value) expr.Value {
	if from == to {
		return []func([]expr.Value) expr.Value{func(v []expr.Value) expr.Value { return v[from] }}
	}
	var all []func([]expr.Value) expr.Value
	for k := from; k < to; k++ {
		for _, left := range orders(from, k) {
			for _, right := range orders(k+1, to) {
				all = append(all, func(v []expr.Value) expr.Value { return expr.MatMul(left(v), right(v)) })
			}
		}
	}
	return all
}

// chainRun is a chain that is timed.
type chainRun struct {
	Dims   []int64 `json:"dims"`
	US     float64 `json:"us"`   // in the predicted order
	Best   float64 `json:"best"` // of all orders
	Skewed bool    `json:"skewed"`
	Order  string  `json:"order"`
}

// TestChainTimes plans 10,000 random chains, and compares, for some of them, the time of the
// planned order with the times of all orders. Every other one is skewed: it ends with a vector or a
// narrow matrix.
func TestChainTimes(t *testing.T) {
	d, s := onGPU(t)
	if *chainTimes == 0 {
		t.Skip("-chains says how many chains")
	}
	r := rand.New(rand.NewPCG(*seed, 9))
	begin := time.Now()
	for range 10_000 {
		dims := make([]int64, 4+r.IntN(6))
		for i := range dims {
			dims[i] = 1 + r.Int64N(4096)
		}
		plan.Order(plan.Default, dims)
	}
	fmt.Printf("CHAINS 10,000 planned in %v\n", time.Since(begin))
	piece := pieceOfFloats(r)
	sizes := []int64{16, 32, 64, 128, 200, 256, 512, 1000, 1024, 2048, 4096}
	within, worst := 0, 0.0
	var lines []byte
	for i := range *chainTimes {
		dims := make([]int64, 4+r.IntN(3))
		for j := range dims {
			dims[j] = sizes[r.IntN(len(sizes))]
		}
		run := chainRun{Skewed: i%2 == 0}
		if run.Skewed {
			for j := range dims {
				dims[j] = max(dims[j], 512)
			}
			dims[len(dims)-1] = []int64{1, 8, 16}[r.IntN(3)]
		}
		run.Dims = dims
		in := map[string]expr.Memory{}
		build := func(product func([]expr.Value) expr.Value) *expr.Program {
			p := expr.New()
			p.Expect(dims[0])
			var factors []expr.Value
			for j := range len(dims) - 1 {
				shape := expr.Shape{Rows: dims[j], Width: dims[j+1]}
				factors = append(factors, p.In(fmt.Sprintf("m%d", j+1), ir.F32, shape))
			}
			p.Out("c", product(factors))
			return p
		}
		for j := range len(dims) - 1 {
			src := expr.Source{Name: fmt.Sprintf("m%d", j+1), Type: ir.F32, Rows: dims[j], Width: dims[j+1]}
			in[src.Name] = fillMemory(t, d, src, piece)
		}
		*repeats = 11
		timed := func(p *expr.Program) float64 {
			k, err := expr.Compile(d, p, expr.Options{})
			must(t, err)
			return min(us(timeRuns(t, d, s, k, in)), us(timeRuns(t, d, s, k, in)))
		}
		planned := build(func(v []expr.Value) expr.Value { return expr.Chain(v...) })
		programs := []*expr.Program{planned}
		for _, product := range orders(0, len(dims)-2) {
			programs = append(programs, build(product))
		}
		// All orders are timed twice, because the device is slower after it has waited for a compiler.
		times := make([]float64, len(programs))
		for pass := range 2 {
			for j, p := range programs {
				if took := timed(p); pass == 0 || took < times[j] {
					times[j] = took
				}
			}
		}
		run.Order, run.US, run.Best = expr.Order(planned, "c"), times[0], slices.Min(times)
		best := expr.Order(programs[slices.Index(times, run.Best)], "c")
		if best == run.Order {
			run.US = run.Best // the same program
		}
		ratio := run.US / run.Best
		worst = max(worst, ratio)
		if ratio <= 1.05 {
			within++
		}
		fmt.Printf("chain %v: %.1f us %s, best %.1f us %s, %.3f\n", dims, run.US, run.Order, run.Best, best, ratio)
		line, err := json.Marshal(run)
		must(t, err)
		lines = append(append(lines, line...), '\n')
		for _, m := range in {
			must(t, m.Buffer.Close())
		}
	}
	fmt.Printf("CHAINS %d timed, %d within 1.05 of the best order, the worst %.3f\n", *chainTimes, within, worst)
	if *chainFile != "" {
		must(t, os.WriteFile(*chainFile, lines, 0o600))
	}
}
