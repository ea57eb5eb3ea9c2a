package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/testcache"
)

// TestSourcesAreWhole: a kernel's text must compile without a file system and define its symbol.
func TestSourcesAreWhole(t *testing.T) {
	for _, name := range Names() {
		s, _ := Lookup(name)
		if strings.Contains(s.Code, "#include") {
			t.Errorf("%s: an include is left", s.File)
		}
		if !strings.Contains(s.Code, name+"(") && !strings.HasPrefix(s.Code, "#define TALLY "+name+"\n") {
			t.Errorf("%s does not define %s", s.File, name)
		}
	}
}

// TestSourcesCompile compiles every kernel for the chips that the project supports, where nvcc
// exists.
func TestSourcesCompile(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("no nvcc to compile the kernels with")
	}
	if testing.Short() {
		t.Skip("nvcc takes seconds for each kernel and chip")
	}
	for _, name := range Names() {
		s, _ := Lookup(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compile(t, nvcc, s)
		})
	}
}

// compile runs nvcc over a kernel's text for each chip. A text that compiled once is not compiled
// again (internal/testcache).
func compile(t *testing.T, nvcc string, s Source) {
	args := []string{"--fmad=false", "-Werror", "all-warnings", "-fatbin"}
	for _, arch := range []string{"70", "80", "90"} {
		args = append(args, fmt.Sprintf("-gencode=arch=compute_%s,code=sm_%s", arch, arch))
	}
	parts := append([]string{"nvcc", testcache.Version(t, nvcc), s.Code}, args...)
	testcache.File(t, func(path string) error {
		text := path + ".cu"
		if err := os.WriteFile(text, []byte(s.Code), 0o600); err != nil {
			return err
		}
		out, err := exec.Command(nvcc, append(args, "-o", os.DevNull, text)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", s.File, err, out)
		}
		if len(out) > 0 {
			return fmt.Errorf("%s: nvcc warns:\n%s", s.File, out)
		}
		return os.WriteFile(path, nil, 0o600)
	}, parts...)
}
