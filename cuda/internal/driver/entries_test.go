//go:build cuda

package driver

import (
	"debug/elf"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestEntries examines the linked binary: where entries.h lacks an entry that something calls, the
// linker takes it from libcuda, and the binary no longer starts without a driver.
func TestEntries(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range libraries {
		if strings.HasPrefix(lib, "libcu") || strings.HasPrefix(lib, "libnv") {
			t.Errorf("the binary needs %s to start", lib)
		}
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	foreign := regexp.MustCompile(`^(cu|cublas|nvrtc|nvml)[A-Z]`)
	for _, s := range symbols {
		if foreign.MatchString(s.Name) {
			t.Errorf("%s is not in entries.h", s.Name)
		}
	}
}
