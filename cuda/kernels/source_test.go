package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// TestSourcesCompile compiles every kernel for the chips that the project supports, where nvcc exists.
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
		path := filepath.Join(t.TempDir(), s.File)
		if err := os.WriteFile(path, []byte(s.Code), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, arch := range []string{"sm_70", "sm_80", "sm_90"} {
			out, err := exec.Command(nvcc, "-arch="+arch, "--fmad=false", "-Werror", "all-warnings", "-cubin", "-o", os.DevNull, path).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%s for %s: %v\n%s", s.File, arch, err, out)
			}
		}
	}
}
