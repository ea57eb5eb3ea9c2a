// Package launches makes random launches of kernels, and computes what they must write.
//
// A launch has a kernel and its parameters: memory with its content before and after, and scalars.
// The wanted content comes from loops that are as plain as possible. The suite of devicetest runs
// the launches on a device; tests of the host device run them on the sources of the kernels,
// compiled for the processor. Launches are reproducible: they depend on the random source, the
// kernel and the number of elements only.
package launches

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Param is one parameter of a launch, memory or a scalar.
type Param struct {
	// Mem is the content of the memory before the launch and Want the wanted content after it. A
	// nil Want means any content.
	Mem, Want []byte
	// Arg is the scalar; its zero value means that the parameter is memory.
	Arg device.Arg
}

// fresh returns memory that the kernel must write as a whole: all of it is poison before.
func fresh(want []byte) Param { return Param{Mem: Poisoned(len(want)), Want: want} }

// Launch is a launch of a kernel. Its String describes it in failures.
type Launch interface {
	fmt.Stringer
	// Name returns the name of the kernel.
	Name() string
	// Params returns the parameters, in the kernel's order. Each call makes them again.
	Params() []Param
}

// Kernels returns the kernels that RandomLaunch knows, in a fixed order: weighted tallies and
// rasters.
func Kernels() []string {
	return append(slices.Sorted(maps.Keys(kernels.WeightedKernels())), rasterKernel)
}

// rasterKernel reduces a variable to cells.
const rasterKernel = "raster"

// RandomLaunch returns a random launch of a kernel over n ballots, or over units for rasters. It
// returns nil for a kernel that is not one of Kernels.
func RandomLaunch(r *rand.Rand, kernel string, n int) Launch {
	if kernel == rasterKernel {
		return RandomRaster(r, n)
	}
	if _, ok := kernels.WeightedKernels()[kernel]; ok {
		t := RandomWeighted(r, kernel, n)
		return &t
	}
	return nil
}
