package expr_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var spilled = regexp.MustCompile(`Compiling entry function '([^']*)'|([1-9][0-9]*) bytes spill stores`)

// TestNVCC: the kernels of the workloads are CUDA C++ to nvcc, and none spills registers.
func TestNVCC(t *testing.T) {
	testkit.OnlyLong(t)
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("no nvcc")
	}
	if *deviceName != "emulated" {
		t.Skip("a GPU compiles with its own compiler")
	}
	d, _ := open(t)
	all := map[string]*expr.Program{}
	for _, w := range workloads {
		p, err := expr.Parse(w.text, w.in(1<<28)...)
		if err != nil {
			t.Fatal(err)
		}
		all[w.name] = p
	}
	for i := range *programs {
		p, _, _ := generate(1_000_000 + *seed + uint64(i))
		all[fmt.Sprintf("seed %d", i)] = p
	}
	var text strings.Builder
	seen := map[string]bool{}
	expected := map[string]bool{} // kernels of the workloads
	for of, p := range all {
		k, err := expr.Compile(d, p, expr.Options{})
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		for name, source := range k.Sources() {
			expected[name] = expected[name] || !strings.HasPrefix(of, "seed")
			if !seen[name] {
				seen[name] = true
				fmt.Fprintf(&text, "namespace text_%s {\n%s\n}\n", name, source)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "kernels.cu")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(nvcc, "-arch=sm_90", "-std=c++17", "--fmad=false", "--resource-usage", "-cubin", "-o",
		path+".cubin", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.6000s", err, out)
	}
	name := ""
	for _, m := range spilled.FindAllStringSubmatch(string(out), -1) {
		if m[1] != "" {
			name = m[1]
		} else if expected[name] {
			t.Errorf("%s spills %s bytes", name, m[2])
		}
	}
}
