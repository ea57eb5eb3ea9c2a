package training

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// readGolden reads a file that testdata/opponents.py writes.
func readGolden(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	testkit.NoError(t, "ReadFile", err)
	testkit.NoError(t, "Unmarshal", json.Unmarshal(data, to))
}

// torchDraws are the numbers of draws in opponents.py.
func torchDraws(n int, seed uint32) []float32 {
	out := make([]float32, n)
	for i := range out {
		seed = 1664525*seed + 1013904223
		out[i] = float32(int32(seed>>8)-1<<23) / (1 << 23)
	}
	return out
}

// TestTorchGradients compares gradients with the ones of PyTorch in float64.
func TestTorchGradients(t *testing.T) {
	var golden struct {
		Cases []struct {
			Hidden, Inputs, Moments, Sequences, Rows, Items, Candidates int
			X                                                           []float32
			Numbers, Asked, Targets                                     []int32
			Loss                                                        float64
			Weights                                                     map[string][]float32
			Gradients                                                   map[string][]float64
		}
	}
	readGolden(t, "gradients.json", &golden)
	for i, c := range golden.Cases {
		s := Shape{Hidden: c.Hidden, Inputs: c.Inputs, Rows: c.Rows, Items: c.Items, Candidates: c.Candidates}
		if c.Items > 0 {
			s.Candidates = 0
		}
		var w Weights
		for _, part := range s.tensors(&w) {
			*part.values = c.Weights[part.name]
		}
		b := Batch{
			Sequences: c.Sequences, Moments: c.Moments, Inputs: c.X, Numbers: c.Numbers, Items: c.Asked,
			Targets: c.Targets, Lengths: make([]int32, c.Sequences),
		}
		targets := 0
		for n := range b.Lengths {
			b.Lengths[n] = int32(c.Moments)
		}
		for _, target := range c.Targets {
			if target >= 0 {
				targets++
			}
		}
		tr := openTrainer(t, Options{Shape: s, Window: c.Moments}, &w)
		got := gradientOf(t, tr, b)
		if d := distance(s, &got, &reference{Shape: s, g: c.Gradients}, targets); !(d <= 1e-3) {
			t.Errorf("case %d: the gradient is off by %.2g of its norm, want 0.001 at most", i, d)
		}
		if loss, err := tr.Evaluate(t.Context(), b, nil, nil); err != nil || math.Abs(loss.Sum-c.Loss) > 1e-3*c.Loss {
			t.Errorf("case %d: the loss is %v, %v, want %v", i, loss.Sum, err, c.Loss)
		}
	}
}

// TestAdam compares the bits of 1,000 steps with torch.optim.Adam.
func TestAdam(t *testing.T) {
	type kept struct {
		Parameters []string `json:"parameters"`
		M          []string `json:"m"`
		V          []string `json:"v"`
	}
	var golden struct {
		Plain   map[int]kept `json:"plain"`
		Clipped map[int]kept `json:"clipped"`
	}
	readGolden(t, "adam.json", &golden)
	for name, want := range map[string]map[int]kept{"plain": golden.Plain, "clipped": golden.Clipped} {
		const n, steps = 16, 1000
		o := Options{
			Shape: Shape{Hidden: 8, Inputs: 8, Candidates: 2}, Window: 8, Adam: Adam{Rate: 4e-3, Decay: 1e-5},
		}
		tr := openTrainer(t, o, nil)
		p := tr.Optimizer
		zeros := make([]float32, o.size())
		testkit.NoError(t, "set", p.set(zeros, zeros, zeros, make([]int32, 1)))
		testkit.NoError(t, "sync", tr.sync(t.Context()))
		testkit.NoError(t, "Write", p.weights.Write(0, device.Bytes(torchDraws(n, 7))))
		testkit.NoError(t, "Write", p.gradient.Write(0, device.Bytes(zeros)))
		draws := torchDraws(n*steps, 11)
		for k := range steps {
			g, lanes, sum, coefficient := draws[n*k:][:n], [8]float32{}, float32(0), float32(1)
			for i := range g {
				g[i] *= float32(math.Ldexp(1, i%8-4))
				lanes[i%8] += float32(g[i] * g[i]) // in PyTorch's order
			}
			for _, v := range lanes {
				sum += v
			}
			if name == "clipped" {
				coefficient = min(1, 1/(float32(math.Sqrt(float64(sum)))+1e-6))
			}
			control := [trainset.ControlWords]uint32{}
			control[trainset.ControlCoefficient] = math.Float32bits(coefficient)
			testkit.NoError(t, "Write", p.control.Write(0, device.Bytes(control[:])))
			testkit.NoError(t, "Write", p.gradient.Write(0, device.Bytes(g)))
			testkit.NoError(t, "step", p.step(uint64(k+1)))
			testkit.NoError(t, "sync", tr.sync(t.Context()))
			of, ok := want[k+1]
			if !ok {
				continue
			}
			for part, buffer := range map[string]device.Buffer{"parameter": p.weights, "m": p.mean, "v": p.square} {
				values := make([]float32, n)
				testkit.NoError(t, "Read", buffer.Read(0, device.Bytes(values)))
				for i, v := range values {
					text := map[string][]string{"parameter": of.Parameters, "m": of.M, "v": of.V}[part][i]
					bits, err := strconv.ParseUint(text, 16, 32)
					testkit.NoError(t, "ParseUint", err)
					w := math.Float32frombits(uint32(bits))
					if v != w {
						t.Errorf("%s: step %d: %s %d is %v, PyTorch's %v", name, k+1, part, i, v, w)
					}
				}
			}
		}
	}
}
