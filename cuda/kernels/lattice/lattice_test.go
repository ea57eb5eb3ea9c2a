package lattice_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/cells/celltest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// sources returns the texts of the test cells, in all forms of grids.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, of := range map[string]cells.Lattice{
		"gray_scott": celltest.GrayScott(), "life": celltest.Life3D(), "fire": celltest.Fire(),
		"diffusion": celltest.Diffusion(), "mix": celltest.Mix(),
	} {
		for _, form := range []struct {
			dimensions      int
			faces, periodic bool
		}{{2, false, true}, {2, true, false}, {3, false, true}, {3, true, false}, {3, false, false}} {
			of.Agents, of.Dimensions, of.Faces, of.Periodic = 1, form.dimensions, form.faces, form.periodic
			c, err := cells.AddressLattice(of)
			if err != nil {
				t.Fatalf("%s: %v, want no error", name, err)
			}
			all[fmt.Sprintf("%s, %+v", name, form)] = c.Cell.Source
		}
	}
	of := celltest.Opinion()
	of.Agents = 1
	c, err := cells.AddressLattice(of)
	if err != nil {
		t.Fatalf("opinion: %v, want no error", err)
	}
	all["opinion"] = c.Cell.Source
	return all
}

// TestSource: the text has the signature of Params and no macro but before the step, which stands
// last, and under its own line numbers.
func TestSource(t *testing.T) {
	for name, text := range sources(t) {
		kernel, declared := lattice.Cell{Dimensions: 2}.Signature()
		if name == "opinion" {
			kernel, declared = lattice.Cell{}.Signature()
		}
		params, code, err := device.ParseKernel(kernel, text)
		if err != nil || code != text || device.CheckDeclared(kernel, declared, params) != nil {
			t.Errorf("%s: %v: %v", name, params, err)
		}
		for i, p := range params {
			if p.Name != declared[i].Name {
				t.Errorf("%s: parameter %d is %s in the text and %s in Go", name, i, p.Name, declared[i].Name)
			}
		}
		frame, step, found := strings.Cut(text, "#line 1 \"step\"\n")
		if !found || !strings.Contains(step, "void step(Agent &self") || !strings.HasSuffix(step, "\n}\n") {
			t.Errorf("%s: the step is\n%s", name, step)
		}
		live := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^#(define|undef) (\w+)`).FindAllStringSubmatch(frame, -1) {
			live[m[2]] = m[1] == "define"
		}
		for macro, is := range live {
			if is {
				t.Errorf("%s: the step sees the macro %s", name, macro)
			}
		}
		if len(live) < 4 || strings.Contains(text, "#include") || strings.Contains(text, "#pragma once") {
			t.Errorf("%s: %d macros, or directives that are not resolved", name, len(live))
		}
	}
}

// TestCompile compiles the texts for the chips that the project supports, where nvcc exists. A text
// that compiled once is not compiled again.
func TestCompile(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("no nvcc to compile the kernels with")
	}
	if testing.Short() {
		t.Skip("nvcc takes seconds for each kernel")
	}
	args := []string{"--fmad=false", "-Werror", "all-warnings", "-cubin", "-arch=sm_90"}
	for name, code := range sources(t) {
		// Forms differ in the frame alone, and the cell of all types takes the compiler seconds.
		if form := "{dimensions:2 faces:false periodic:true}"; !strings.HasPrefix(name, "gray_scott") &&
			name != "opinion" && !strings.HasSuffix(name, form) {
			continue
		}
		testkit.CachedFile(t, func(path string) error {
			text := path + ".cu"
			if err := os.WriteFile(text, []byte(code), 0o600); err != nil {
				return err
			}
			out, err := exec.Command(nvcc, append(args, "-o", os.DevNull, text)...).CombinedOutput()
			if err != nil || len(out) > 0 {
				return fmt.Errorf("%s: nvcc: %w\n%.3000s", name, err, out)
			}
			return os.WriteFile(path, nil, 0o600)
		}, append([]string{"nvcc", testkit.CompilerVersion(t, nvcc), code}, args...)...)
	}
}

// TestDivide: the numbers divide as / does.
func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 4))
	for range 200000 {
		each := uint32(1 + r.Uint64N(1<<31)>>r.IntN(31))
		magic, shift := lattice.Divide(max(1, each))
		for _, n := range []uint32{0, each - 1, each, uint32(r.Uint64N(1 << 31)), 1<<31 - 1} {
			n &= 1<<31 - 1
			if got := uint32(uint64(2*n)*uint64(magic)>>32) >> shift; got != n/each {
				t.Fatalf("%d / %d is %d", n, each, got)
			}
		}
	}
}
