package lanes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func random(r *rand.Rand, hidden, candidates int, bf16 bool) *Weights {
	w := &Weights{
		Hidden: hidden, BF16: bf16, UnitBits: 14, InputBits: 11,
		Logistic:    fmath.Logistic{1.5e-5, 2e-15, 1e-26, 2, 1e3},
		Bias:        make([]int32, 4*hidden),
		Gates:       make([]Number, 3*hidden*2*hidden),
		ReadoutBias: make([]int32, candidates), Readout: make([]Number, candidates*hidden),
	}
	numbers := func(all []Number) {
		for i := range all {
			n := int32(r.IntN(2*32639+1) - 32639) // 128 more would not be a byte
			all[i] = Number{(n + 128) >> 8, int32(int8(n))}
		}
	}
	numbers(w.Gates)
	numbers(w.Readout)
	for i := range w.Bias {
		w.Bias[i] = int32(r.IntN(1<<20) - 1<<19)
	}
	return w
}

// fixed returns the bytes of a value by 2^bits, as the kernels do.
func fixed(v float32, bits int) Number {
	n := math.Float32bits(fmath.FMA(v, float32(int(1)<<bits), 3<<22))
	return Number{int32(int8((n + 128) >> 8)), int32(int8(n))}
}

// sum returns the bias plus the products, without the products of low bytes.
func sum(bias int32, a, w []Number) int32 {
	for i, x := range a {
		bias += x.High*(256*w[i].High+w[i].Low) + x.Low*w[i].High
	}
	return bias
}

// step is a step of one agent, and its candidate after it.
func step(w *Weights, row []float32) int {
	H := w.Hidden
	a := make([]Number, 2*H)
	fix := func() {
		for k, v := range row {
			a[k] = fixed(v, w.UnitBits)
			if k >= H {
				a[k] = fixed(v, w.InputBits)
			}
		}
	}
	fix()
	next := make([]float32, H)
	for j := range next {
		gate := func(g int) []Number { return w.Gates[(g*H+j)*2*H:][:2*H] }
		b := w.Bias[4*j:][:4]
		at := func(s int32) float32 { return w.Logistic.At(float32(s)) }
		r, z := at(sum(b[0], a, gate(0))), at(sum(b[1], a, gate(1)))
		n, m := float32(sum(b[2], a[H:], gate(2)[H:])), float32(sum(b[3], a[:H], gate(2)[:H]))
		n = fmath.FMA(2, w.Logistic.At(fmath.FMA(r, m, n)), -1)
		next[j] = fmath.FMA(z, row[j]-n, n)
		if w.BF16 {
			next[j] = device.RoundBF16(next[j])
		}
	}
	copy(row, next)
	fix()
	best, most := 0, int32(math.MinInt32)
	for c := range w.ReadoutBias {
		if s := sum(w.ReadoutBias[c], a[:H], w.Readout[c*H:][:H]); s > most {
			best, most = c, s
		}
	}
	return best
}

// TestGRU: the instructions of the processor give the bits of one agent after the other.
func TestGRU(t *testing.T) {
	if !Available() {
		t.Skip("the processor has no AVX2 or no FMA")
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		hidden, bf16 := []int{8, 16, 32}[i%3], i/3%2 == 1
		w := random(r, hidden, 1+r.IntN(16), bf16)
		rows := make([]float32, 2*hidden*Width)
		for k := range rows {
			rows[k] = fmath.Clamp(8*float32(r.NormFloat64()), 15.875)
			if bf16 {
				rows[k] = device.RoundBF16(rows[k])
			}
			if k%(2*hidden) < hidden {
				rows[k] = fmath.Clamp(rows[k], 1)
			}
		}
		steps := 1 + r.IntN(4)
		want := append([]float32(nil), rows...)
		var best [Width]int32
		for a := range Width {
			for range steps {
				best[a] = int32(step(w, want[2*hidden*a:][:2*hidden]))
			}
		}
		for _, wider := range []bool{false, wide} {
			g := New(w)
			g.wide = wider
			got := append([]float32(nil), rows...)
			g.Load(got)
			g.Step(steps)
			g.Store(got)
			for k := range got {
				if math.Float32bits(got[k]) != math.Float32bits(want[k]) {
					t.Fatalf("case %d, %d units, bf16 %t, wide %t: agent %d, element %d is %v, want %v", i, hidden,
						bf16, wider, k/(2*hidden), k%(2*hidden), got[k], want[k])
				}
			}
			if chosen := *g.Choose(); chosen != best {
				t.Fatalf("case %d, %d units, wide %t: candidates %v, want %v", i, hidden, wider, chosen, best)
			}
		}
	}
}

// TestGroups: registers of both widths give the same bits. Package celltwin compares them with one
// agent after the other.
func TestGroups(t *testing.T) {
	if !Available() || !wide {
		t.Skip("the processor has one width")
	}
	defer func() { wide = true }()
	for name, open := range map[string]func() *Group{
		"predictor": NewPredictor, "leaky": NewLeakyGroup, "lif": NewLif,
	} {
		r := rand.New(rand.NewPCG(5, 6))
		for i := range 40 {
			agents, shared := 1+r.IntN(100), i%2 == 0
			arguments := []float32{r.Float32(), r.Float32(), r.Float32(), r.Float32(), 1}
			views := make([][]float32, 4)
			for v := range views {
				views[v] = make([]float32, agents)
				if shared {
					views[v] = views[v][:1]
				}
				for k := range views[v] {
					views[v][k] = float32(3 * r.NormFloat64())
				}
			}
			g := open()
			start := make([][]float32, len(g.rows))
			for row := range start {
				start[row] = make([]float32, agents)
				for k := range start[row] {
					start[row][k] = r.Float32()
				}
			}
			step := func() (rows [][]float32, done int) {
				for row, values := range start {
					rows = append(rows, append([]float32(nil), values...))
					g.Float(row, rows[row])
				}
				for range 3 {
					done = g.Step(agents, arguments, views)
				}
				return rows, done
			}
			wide = false
			want, done := step()
			wide = true
			got, also := step()
			if done != agents&^7 || also != done {
				t.Fatalf("%s: %d and %d of %d agents are stepped", name, done, also, agents)
			}
			for row := range want {
				for k := range want[row] {
					if math.Float32bits(want[row][k]) != math.Float32bits(got[row][k]) {
						t.Fatalf("%s, case %d: row %d of agent %d of %d is %v by eights, %v by sixteens", name, i, row,
							k, agents, want[row][k], got[row][k])
					}
				}
			}
		}
	}
}

// TestLeaky: as TestGRU, for leaky integrators.
func TestLeaky(t *testing.T) {
	if !Available() {
		t.Skip("the processor has no AVX2 or no FMA")
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 50 {
		n, steps := 1+r.IntN(3000), 1+r.IntN(4)
		decay, threshold, rate := r.Float32(), r.Float32(), r.Float32()
		input, potential, trace := make([]float32, 2*n), make([]float32, n), make([]float32, n)
		for k := range n {
			input[2*k], input[2*k+1] = float32(r.NormFloat64()), float32(r.NormFloat64())
			potential[k], trace[k] = float32(r.NormFloat64()), r.Float32()
		}
		p, tr := append([]float32(nil), potential...), append([]float32(nil), trace...)
		spikes := make([]byte, n)
		done := NewLeaky(decay, threshold, rate).Step(input, potential, trace, steps, spikes)
		if done != n&^7 {
			t.Fatalf("case %d: %d of %d agents are stepped, want %d", i, done, n, n&^7)
		}
		for k := range n {
			var spiked byte
			for range steps {
				v, spike := fmath.FMA(decay, p[k], fmath.FMA(input[2*k], input[2*k+1], input[2*k])), float32(0)
				spiked = 0
				if v > threshold {
					v, spike, spiked = v-threshold, 1, 1
				}
				p[k], tr[k] = v, fmath.FMA(rate, spike-tr[k], tr[k])
				if k >= done { // left as it was
					break
				}
			}
			if k < done && (p[k] != potential[k] || tr[k] != trace[k] || spiked != spikes[k]) {
				t.Fatalf("case %d: agent %d of %d is %v, %v, %d, want %v, %v, %d", i, k, n, potential[k], trace[k],
					spikes[k], p[k], tr[k], spiked)
			}
		}
	}
}

// BenchmarkGRU is a step of Width agents, and their candidates, between the rows of a page.
func BenchmarkGRU(b *testing.B) {
	for _, hidden := range []int{8, 16, 32} {
		for _, wider := range []bool{false, true} {
			b.Run(fmt.Sprintf("h%d/wide=%t", hidden, wider), func(b *testing.B) {
				if !Available() || wider && !wide {
					b.Skip("the processor has not the instructions")
				}
				g := New(random(rand.New(rand.NewPCG(1, 2)), hidden, 5, false))
				g.wide = wider
				rows := make([]float32, 2*hidden*Width)
				for b.Loop() {
					g.Load(rows)
					g.Step(1)
					g.Choose()
					g.Store(rows)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*Width), "ns/agent")
			})
		}
	}
}
