package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// sets has the number of kernels of each folder, and the function that returns their PTX.
var sets = map[string]struct {
	count int
	ptx   func(name string) (text string, ok bool)
}{
	".":           {90 + 2*kernels.QuantumMostQubits, kernels.PTX},
	"arrayset":    {4*len(arrayset.Elements) + 2 + 2*4 + 1, arrayset.PTX},
	"graphset":    {17, graphset.PTX},
	"gridset":     {4, gridset.PTX},
	"languageset": {2*3 + 6, languageset.PTX},
	"quantumset":  {5, quantumset.PTX},
	"spaceset":    {18, spaceset.PTX},
	"swarmset":    {2*len(swarmset.Widths) - 1 + 6 + 2*3, swarmset.PTX},
	"trainset":    {3*5 + 4, trainset.PTX},
}

func sources(folder string) (all []kernels.Source) {
	for _, name := range kernels.Names() {
		if s, _ := kernels.Lookup(name); path.Dir(s.File) == folder {
			all = append(all, s)
		}
	}
	return all
}

// TestSets: each folder has all of its kernels, the signature of a kernel in Go is the signature of
// its text, and the PTX is made of the present text.
func TestSets(t *testing.T) {
	for folder, set := range sets {
		t.Run(folder, func(t *testing.T) {
			all := sources(folder)
			if len(all) != set.count {
				t.Fatalf("%d kernels, want %d", len(all), set.count)
			}
			archive, err := os.ReadFile(filepath.Join("..", "..", folder, ptxFile))
			if err != nil {
				t.Fatal(err)
			}
			var a kernels.Archive
			if n := len(a.Names(string(archive))); n != set.count {
				t.Errorf("%d kernels have a PTX, want %d", n, set.count)
			}
			for _, s := range all {
				checkSignature(t, s)
				text, ok := set.ptx(s.Name)
				if head, _, _ := strings.Cut(text, "\n"); !ok || head != kernels.PTXHeader(s) {
					t.Errorf("the PTX of %s is not of the present source: run go generate ./cuda/kernels/...", s.Name)
				}
				if err := device.CheckPTX(s.Name, text, s.Params); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// checkSignature compares the signature of a kernel in Go with its text. Kernels of products have
// their signature in a macro.
func checkSignature(t *testing.T, s kernels.Source) {
	t.Helper()
	params, code, err := device.ParseKernel(s.Name, s.Code)
	if err != nil {
		if !strings.Contains(s.Code, s.Name+"(GEMM_PARAMS(") {
			t.Errorf("%s: %v", s.Name, err)
		}
		return
	}
	if err := device.CheckDeclared(s.Name, s.Params, params); err != nil || code != s.Code {
		t.Errorf("%s: %v", s.Name, err)
	}
	for i, p := range params {
		// A parameter may have another name in Go: see the options of gen.
		if p.Name != s.Params[i].Name && !strings.HasPrefix(s.Name, "leaky_") {
			t.Errorf("%s: parameter %d is %s in the text and %s in Go", s.Name, i, p.Name, s.Params[i].Name)
		}
	}
}

// TestSourcesCompile compiles kernels of each folder where nvcc exists.
func TestSourcesCompile(t *testing.T) {
	for folder := range sets {
		compileAll(t, sources(folder))
	}
}

// compileAll compiles a few kernels, each for one of the chips that the project supports, and in a
// long run all for all chips. A text that compiled once is not compiled again.
func compileAll(t *testing.T, sources []kernels.Source) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("no nvcc to compile the kernels with")
	}
	if testing.Short() {
		t.Skip("nvcc takes seconds for each kernel and chip")
	}
	// Later toolkits than the project's know fewer chips.
	known, err := exec.Command(nvcc, "--list-gpu-arch").Output()
	if err != nil {
		t.Fatalf("nvcc --list-gpu-arch: %v", err)
	}
	chips := slices.DeleteFunc([]string{"70", "80", "90"}, func(chip string) bool {
		return !strings.Contains(string(known), "compute_"+chip+"\n")
	})
	for i, s := range testkit.Few(sources, 6) {
		of := chips
		if !testkit.Long() {
			of = chips[i%len(chips):][:1]
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			compileFor(t, nvcc, s, of)
		})
	}
}

func compileFor(t *testing.T, nvcc string, s kernels.Source, chips []string) {
	args := []string{"--fmad=false", "-Werror", "all-warnings", "-fatbin"}
	for _, chip := range chips {
		args = append(args, fmt.Sprintf("-gencode=arch=compute_%s,code=sm_%s", chip, chip))
	}
	parts := append([]string{"nvcc", testkit.CompilerVersion(t, nvcc), s.Code}, args...)
	testkit.CachedFile(t, func(path string) error {
		text := path + ".cu"
		if err := os.WriteFile(text, []byte(s.Code), 0o600); err != nil {
			return err
		}
		out, err := exec.Command(nvcc, append(args, "-o", os.DevNull, text)...).CombinedOutput()
		if err != nil || len(out) > 0 { // a warning is an error
			return fmt.Errorf("%s: nvcc: %w\n%s", s.File, err, out)
		}
		return os.WriteFile(path, nil, 0o600)
	}, parts...)
}
