package lattice_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
)

// FuzzStep: whatever step, variable and reduction are, they are refused in words, or the frame
// before the step is the same as for any other step, and the braces of the step close inside of it.
func FuzzStep(f *testing.F) {
	const plain = lattice.StepSignature + " { self.v += around.sum.v; }\n"
	cell := func(step, name, op string, dimensions int) (string, error) {
		c := lattice.Cell{
			Vars: []kernels.Var{{Name: "v", Elem: kernels.F32, Width: 1}}, Vote: "v", Candidates: 2,
			Dimensions: dimensions, Step: step, Hear: []lattice.Term{{Op: lattice.Op(op), Var: name}},
		}
		return c.Source()
	}
	for _, step := range []string{
		plain, "}" + plain + "{", "/*" + plain, plain + "#if 0", plain + "\\", strings.Replace(plain, "void", "int", 1),
	} {
		f.Add(step, "v", "sum", 2)
		f.Add(step, "v", "weighted", 0)
	}
	f.Add(plain, "w", "mean", 3)
	f.Add(plain, "v", "median", 2)
	f.Fuzz(func(t *testing.T, step, name, op string, dimensions int) {
		dimensions = []int{0, 2, 3}[uint(dimensions)%3]
		text, err := cell(step, name, op, dimensions)
		if err == nil && (name != "v" || !slices.Contains(lattice.Ops, lattice.Op(op))) {
			t.Fatalf("%s of %s is heard", op, name)
		}
		if err != nil {
			if !errors.Is(err, kernels.ErrStep) && !errors.Is(err, lattice.ErrHear) {
				t.Error(err)
			}
			return
		}
		other, err := cell(plain, name, op, dimensions)
		if err != nil {
			t.Fatalf("another step: %v, want no error", err)
		}
		const mark = "#line 1 \"step\"\n"
		before, inside, _ := strings.Cut(text, mark)
		if want, _, _ := strings.Cut(other, mark); before != want {
			t.Fatalf("%q changes the frame", step)
		}
		depth := 0
		for _, c := range strings.TrimSuffix(inside, "}\n") {
			depth += map[rune]int{'{': 1, '}': -1}[c]
			if depth < 0 {
				t.Fatalf("%q leaves its namespace", step)
			}
		}
		if depth != 0 {
			t.Fatalf("%q is open at its end", step)
		}
	})
}
