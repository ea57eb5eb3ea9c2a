// Package kernels is the kernel set as data: the CUDA C++ source of every built-in kernel,
// embedded, and its signature. The Go twin of each kernel is registered in cuda/host/twins under
// the same name.
package kernels

import (
	"fmt"
	"sort"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Source is one built-in kernel.
type Source struct {
	// Name is the kernel's extern "C" symbol.
	Name string
	// Params is its signature, in order: the one of its .cu file, which gen makes Go of.
	Params []device.Param
	params func(kernel string) []device.Param // the generated function of the package
	// File is the .cu file below this package that holds it; Code is that file's text with its
	// includes resolved.
	File string
	Code string
	// Text returns Code. A registration may have it in place of Code: Lookup calls it once, so a
	// program pays for the texts of the kernels that it looks up.
	Text func() string
	// FMA permits the compiler to fuse a multiplication and an addition. Without it the kernel
	// rounds after every operation, as its Go twin does, so their float results are the same bits.
	FMA bool
	// MaxBlock is the largest block that the kernel can be launched with; 0: MaxThreads.
	MaxBlock int
	// WholeWarps reports whether a block must have a multiple of 32 threads.
	WholeWarps bool
	// Grid is the only number of blocks that the kernel can be launched with; 0: any.
	Grid int
}

// Fits refuses a shape that the kernel cannot be launched in.
func (s Source) Fits(g device.Geometry) error {
	switch {
	case s.MaxBlock > 0 && g.Block > s.MaxBlock:
		return fmt.Errorf("launch %s: blocks of %d threads, at most %d: %w", s.Name, g.Block, s.MaxBlock,
			device.ErrInvalidArgument)
	case s.WholeWarps && g.Block%32 != 0:
		return fmt.Errorf("launch %s: blocks of %d threads, which is no multiple of 32: %w", s.Name, g.Block,
			device.ErrInvalidArgument)
	case s.Grid > 0 && g.Grid != s.Grid:
		return fmt.Errorf("launch %s: %d blocks, always %d: %w", s.Name, g.Grid, s.Grid, device.ErrInvalidArgument)
	}
	return nil
}

// Options are the compiler options that the kernel needs for its meaning, the same words for NVRTC
// and nvcc. Fast math is in no kernel of the set: division, square root and subnormals follow IEEE
// 754.
func (s Source) Options() []string {
	if s.FMA {
		return []string{"--fmad=true"}
	}
	return []string{"--fmad=false"}
}

// registry is filled by init functions only, of this package and of those below it, so it is
// constant after start.
var registry = map[string]func() Source{}

func register(s Source) {
	registry[s.Name] = sync.OnceValue(func() Source {
		if s.Text == nil {
			s.Text = func() string { return code(s.File) }
		}
		if s.params == nil {
			s.params = paramsOf
		}
		s.Code, s.Text, s.Params = s.Text(), nil, s.params(s.Name)
		return s
	})
}

// MaxThreads is the largest block on every chip; the host device has the same bound, so that a
// launch which works there is a legal launch everywhere.
const MaxThreads = 1024

// Lookup returns the kernel of that name.
func Lookup(name string) (Source, bool) {
	s, ok := registry[name]
	if !ok {
		return Source{}, false
	}
	return s(), true
}

// Names lists the kernels in alphabetical order.
func Names() []string {
	names := make([]string, 0, len(registry))
	for n := range registry {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
