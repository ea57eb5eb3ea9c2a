package host

import (
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestTwinsHaveTheArgumentsOfTheirKernels: each kernel has a twin that takes its arguments.
func TestTwinsHaveTheArgumentsOfTheirKernels(t *testing.T) {
	for _, name := range kernels.Names() {
		source, _ := kernels.Lookup(name)
		if of := twins.Lookup(name); of == nil {
			t.Errorf("%s has no twin", name)
		} else if !slices.Equal(of.Params, source.Params) {
			t.Errorf("%s: the twin takes the arguments %v, want %v", name, of.Params, source.Params)
		}
	}
}
