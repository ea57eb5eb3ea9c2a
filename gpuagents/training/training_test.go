package training

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// open returns a trainer on the device of the tests.
func openTrainer(t testing.TB, o Options, w *Weights) *Trainer {
	t.Helper()
	tr, err := New(t.Context(), opentest.Device(t), o, w)
	testkit.NoError(t, "New", err)
	testkit.Close(t, tr)
	return tr
}

// randomBatch returns a batch of sequences of up to T moments, and a share of the moments asks no
// target.
func randomBatch(r *rand.Rand, s Shape, N, T int, silent float64) Batch {
	b := Batch{Sequences: N, Moments: T}
	for range N {
		b.Lengths = append(b.Lengths, int32(1+r.IntN(T)))
	}
	b.Lengths[0] = int32(T)
	for range N * T {
		if s.Rows > 0 {
			b.Numbers = append(b.Numbers, int32(r.IntN(s.Rows)))
		} else {
			for range s.Inputs {
				b.Inputs = append(b.Inputs, float32(r.NormFloat64()))
			}
		}
		target := int32(r.IntN(max(2, s.Candidates)))
		if r.Float64() < silent {
			target = -1
		}
		b.Targets = append(b.Targets, target)
		if s.Items > 0 {
			b.Items = append(b.Items, int32(r.IntN(s.Items)))
		}
	}
	return b
}

// gradientOf returns the gradient of the mean loss of a batch, with scales that have settled.
func gradientOf(t testing.TB, tr *Trainer, b Batch) Weights {
	t.Helper()
	targets, err := tr.o.Shape.check(&b, tr.o.Window)
	testkit.NoError(t, "check", err)
	for range 3 {
		testkit.NoError(t, "gradients", tr.gradients(t.Context(), &b))
		testkit.NoError(t, "gather", tr.Optimizer.gather(b.Moments, targets))
		testkit.NoError(t, "tables", tr.Optimizer.tables())
		_, err = tr.read(t.Context(), targets)
		testkit.NoError(t, "read", err)
	}
	v := make([]float32, tr.o.size())
	testkit.NoError(t, "Read", tr.Optimizer.gradient.Read(0, device.Bytes(v)))
	return tr.o.weights(v)
}

// distance returns the norm of the difference of a gradient from the one of the reference, for one
// target, as a share of its norm.
func distance(s Shape, got *Weights, want *reference, targets int) float64 {
	var off, norm float64
	for _, part := range s.tensors(got) {
		for i, v := range want.g[part.name] {
			v /= float64(targets)
			off += (float64((*part.values)[i]) - v) * (float64((*part.values)[i]) - v)
			norm += v * v
		}
	}
	return math.Sqrt(off / norm)
}

// shapes are shapes of each class.
func shapes(hidden int) []Shape {
	return []Shape{
		{Hidden: hidden, Inputs: 3, Candidates: 3},
		{Hidden: hidden, Inputs: hidden, Rows: 20, Items: 10},
	}
}

// TestReference compares the gradient of the reference with central differences.
func TestReference(t *testing.T) {
	for _, s := range shapes(5) {
		r := rand.New(rand.NewPCG(1, uint64(s.Items)))
		w := s.draw(7)
		ref := newReference(s, &w)
		ref.keep, ref.drop, ref.seed, ref.now = 1/(1-0.25), 16384, 3, 9
		b := randomBatch(r, s, 3, 6, 0.3)
		ref.loss(&b, true)
		for _, part := range s.tensors(&w) {
			for i, g := range ref.g[part.name] {
				value := &ref.w[part.name][i]
				at := func(d float64) float64 {
					old := *value
					*value = old + d
					probe := *ref
					probe.g = map[string][]float64{}
					for name, v := range ref.g {
						probe.g[name] = make([]float64, len(v))
					}
					sum, _ := probe.loss(&b, true)
					*value = old
					return sum
				}
				const d = 1e-5
				if diff := (at(d) - at(-d)) / (2 * d); math.Abs(diff-g) > 1e-6*max(1, math.Abs(g)) {
					t.Errorf("%s[%d]: the gradient is %v, and the difference %v", part.name, i, g, diff)
				}
			}
		}
	}
}

// TestGradient compares the gradient of the kernels with the reference, for each class and many
// lengths.
func TestGradient(t *testing.T) {
	for _, hidden := range testkit.Few([]int{8, 32, 16, 13}, 3) {
		for _, s := range shapes(hidden) {
			for _, T := range testkit.Few([]int{1, 9, 64, 2, 7, 8, 31}, 3) {
				t.Run(fmt.Sprintf("%d units, %d items, %d moments", hidden, s.Items, T), func(t *testing.T) {
					r := rand.New(rand.NewPCG(2, uint64(hidden*T)))
					o := Options{Shape: s, Window: 64, Dropout: 0.25, Seed: 5}
					w := s.draw(5)
					tr := openTrainer(t, o, &w)
					b := randomBatch(r, s, testkit.Of(40, 20), T, 0.2)
					got := gradientOf(t, tr, b)
					ref := newReference(s, &w)
					ref.keep, ref.drop, ref.seed = 1/(1-0.25), 16384, 5
					sum, count := ref.loss(&b, true)
					if d := distance(s, &got, ref, count); d > 1e-3 || math.IsNaN(d) {
						t.Errorf("the gradient is off by %.2g of its norm, want 0.001 at most", d)
					}
					loss, err := tr.TrainStep(t.Context(), b)
					testkit.NoError(t, "TrainStep", err)
					if int(loss.Count) != count || math.Abs(loss.Sum-sum) > 2e-3*sum {
						t.Errorf("the loss is %v of %d, want %v of %d", loss.Sum, loss.Count, sum, count)
					}
				})
			}
		}
	}
}

// TestLearning: a training learns what one in float64 learns: a parity of the sum of the rows so
// far. The losses stay together from step to step.
func TestLearning(t *testing.T) {
	s := Shape{Hidden: 12, Inputs: 6, Rows: 6, Items: 3}
	o := Options{
		Shape: s, Window: 12, Dropout: 0.25, Clip: 1, Seed: 9, Adam: Adam{Rate: 0.02, Decay: 1e-5},
	}
	w := s.draw(9)
	tr, ref := openTrainer(t, o, &w), newReference(s, &w)
	ref.keep, ref.drop, ref.seed = 1/(1-0.25), 16384, 9
	m, v := map[string][]float64{}, map[string][]float64{}
	first, last := 0.0, 0.0
	for step := range 120 { // later the two are apart, as any two trainings that round otherwise
		b := randomBatch(rand.New(rand.NewPCG(6, uint64(step))), s, 32, 12, 0.2)
		for n := range b.Sequences {
			sum := int32(0)
			for at := range b.Moments {
				i := at*b.Sequences + n
				if sum += b.Numbers[i]; b.Targets[i] >= 0 {
					b.Targets[i] = (sum/3 + b.Items[i]) % 2
				}
			}
		}
		loss, err := tr.TrainStep(t.Context(), b)
		testkit.NoError(t, "TrainStep", err)
		sum, count := ref.loss(&b, true)
		ref.step(tr.o.Adam, o.Clip, count, step+1, m, v)
		last = sum / float64(count)
		if got := loss.Sum / float64(loss.Count); math.Abs(got-last) > 0.01*last {
			t.Fatalf("step %d: the loss is %v, in float64 %v", step, got, last)
		}
		if step == 0 {
			first = last
		}
	}
	if last > 0.98*first {
		t.Errorf("the loss has gone from %v to %v: nothing is learned", first, last)
	}
}
