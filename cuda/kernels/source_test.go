package kernels_test

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestSourcesAreWhole: a kernel's text must compile without a file system and define its symbol.
func TestSourcesAreWhole(t *testing.T) {
	for _, s := range sources() {
		if strings.Contains(s.Code, "#include") {
			t.Errorf("%s: an include is left", s.File)
		}
		if !strings.Contains(s.Code, s.Name+"(") && !strings.HasPrefix(s.Code, "#define TALLY "+s.Name+"\n") {
			t.Errorf("%s does not define %s", s.File, s.Name)
		}
	}
}

// sources returns the kernels of this folder; the packages of sets test theirs.
func sources() (all []kernels.Source) {
	for _, name := range kernels.Names() {
		if s, _ := kernels.Lookup(name); !strings.Contains(s.File, "/") {
			all = append(all, s)
		}
	}
	return all
}
