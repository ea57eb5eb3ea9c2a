// Package settest has the tests that every set of kernels passes: a folder of sources with their
// signatures in Go and their PTX.
package settest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testcache"
	"github.com/exoswarm/exoswarm/internal/base/testlong"
)

// Set is a package of kernels.
type Set struct {
	Folder string // of its sources, below cuda/kernels
	Count  int    // of its kernels
	// Compiled are the kernels with a PTX, and PTX returns the text of one.
	Compiled []string
	PTX      func(name string) (text string, ok bool)
}

// sources returns the kernels of the set.
func (c Set) sources(t *testing.T) (all []kernels.Source) {
	t.Helper()
	for _, name := range kernels.Names() {
		if s, _ := kernels.Lookup(name); strings.HasPrefix(s.File, c.Folder+"/") {
			all = append(all, s)
		}
	}
	if len(all) != c.Count {
		t.Fatalf("%d kernels in %s, want %d", len(all), c.Folder, c.Count)
	}
	return all
}

// Signatures tests that the signature of each kernel in Go is the one of the text, and that the PTX
// is of the present text.
func (c Set) Signatures(t *testing.T) {
	for _, s := range c.sources(t) {
		params, code, err := device.ParseKernel(s.Name, s.Code)
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if err := device.CheckDeclared(s.Name, s.Params, params); err != nil || code != s.Code {
			t.Errorf("%s: %v", s.Name, err)
		}
		for i, p := range params {
			if p.Name != s.Params[i].Name {
				t.Errorf("%s: parameter %d is %s in the text and %s in Go", s.Name, i, p.Name, s.Params[i].Name)
			}
		}
		text, ok := c.PTX(s.Name)
		if head, _, _ := strings.Cut(text, "\n"); !ok || head != kernels.PTXHeader(s) {
			t.Errorf("the PTX of %s is not of the present source: run go generate ./cuda/kernels/...", s.Name)
		}
		if err := device.CheckPTX(s.Name, text, s.Params); err != nil {
			t.Error(err)
		}
	}
	if len(c.Compiled) != c.Count {
		t.Errorf("%d kernels have a PTX, want %d", len(c.Compiled), c.Count)
	}
}

// Compile is Compile of the kernels of the set.
func (c Set) Compile(t *testing.T) { Compile(t, c.sources(t)) }

// Compile compiles kernels where nvcc exists: a few of them, each for one of the chips that the project
// supports, and in a long run all for all chips. A text that compiled once is not compiled again.
func Compile(t *testing.T, sources []kernels.Source) {
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
	for i, s := range testlong.Few(sources, 6) {
		of := chips
		if !testlong.Enabled() {
			of = chips[i%len(chips):][:1]
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			compile(t, nvcc, s, of)
		})
	}
}

// compile runs nvcc over a kernel's text for some chips.
func compile(t *testing.T, nvcc string, s kernels.Source, chips []string) {
	args := []string{"--fmad=false", "-Werror", "all-warnings", "-fatbin"}
	for _, chip := range chips {
		args = append(args, fmt.Sprintf("-gencode=arch=compute_%s,code=sm_%s", chip, chip))
	}
	parts := append([]string{"nvcc", testcache.Version(t, nvcc), s.Code}, args...)
	testcache.File(t, func(path string) error {
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
