package kernels

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Set is a package of kernels below this one. The signature of a kernel is the one of its .cu file:
// gen makes Go of it.
type Set struct {
	Folder string // of the package, below this one
	Files  embed.FS
	Head   string // what the text of each kernel begins with, as numbers that Go and kernels agree on
	// Params is the generated function that returns the signature of a kernel.
	Params func(kernel string) []device.Param
}

// Register adds a kernel. Its File is a name in the folder; without a Text, the kernel has the
// texts of the files before and of this file. It is called by init functions only.
func (set Set) Register(s Source, before ...string) {
	if file := s.File; s.Text == nil {
		s.Text = func() string { return set.Text(append(before[:len(before):len(before)], file)...) }
	}
	s.File, s.params = set.Folder+"/"+s.File, set.Params
	register(s)
}

// Text returns the head and the texts of files, one behind the other. A missing file is a mistake
// in the package and panics at start.
func (set Set) Text(files ...string) string {
	var b strings.Builder
	b.WriteString(set.Head)
	for _, f := range files {
		part, err := set.Files.ReadFile(f)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", set.Folder, err))
		}
		b.WriteString(pragmaOnce.ReplaceAllString(string(part), ""))
	}
	return b.String()
}

// Value is one argument of a launch as a twin sees it: the memory of a buffer, or the bits of a
// scalar.
type Value struct {
	Mem  []byte
	Bits uint64
}

// Bound is a pointer to a generated struct of the arguments that a twin sees.
type Bound[A any] interface {
	*A
	// Signature returns the parameters of the kernel. It uses no field.
	Signature() []device.Param
	// Bind sets the fields from the arguments of a launch, in the order of the kernel.
	Bind(values []Value)
}
