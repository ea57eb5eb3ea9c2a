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

// apart is how many units of the last place two numbers differ by.
func apart(a, b float32) int64 {
	order := func(v float32) int64 {
		if bits := int64(math.Float32bits(v)); bits < 1<<31 {
			return bits
		}
		return -int64(math.Float32bits(v) &^ (1 << 31))
	}
	return max(order(a)-order(b), order(b)-order(a))
}

// TestAdam compares 1,000 steps with torch.optim.Adam.
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
		testkit.NoError(t, "Write", p.weights.Write(0, device.Bytes(torchDraws(n, 7))))
		testkit.NoError(t, "Write", p.gradient.Write(0, device.Bytes(zeros)))
		draws, most := torchDraws(n*steps, 11), int64(0)
		for k := range steps {
			g, norm, coefficient := draws[n*k:][:n], 0.0, float32(1)
			for i := range g {
				g[i] *= float32(math.Ldexp(1, i%8-4))
				norm += float64(g[i]) * float64(g[i])
			}
			if name == "clipped" {
				coefficient = min(1, 1/(float32(math.Sqrt(norm))+1e-6))
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
					if d := apart(v, w); d > 2 {
						t.Errorf("%s: step %d: %s %d is %v, PyTorch's %v, %d units of the last place apart", name, k+1, part,
							i, v, w, d)
					} else {
						most = max(most, d)
					}
				}
			}
		}
		t.Logf("%s: at most %d units of the last place", name, most)
	}
}
