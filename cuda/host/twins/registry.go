// Package twins has the Go twins of kernels, except the twins of cells (package celltwin), and the
// registry of all twins.
//
// A twin computes the same results as the kernel of its name, in the plainest way, block by block.
// The function of a twin has the name of its .cu file, unless it says otherwise. Packages of twins
// register theirs when they are initialised; the host device finds them by name.
package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Block is the place of one block in the grid of a launch. There are no threads: a twin loops over
// 0..Threads-1 itself if it must.
type Block struct {
	// Index is the number of the block, 0..Grid-1, and Threads the number of threads of each block.
	Index, Grid, Threads int
}

// Part returns the share [lo, hi) of this block in 0..n-1, when n is divided evenly and in order
// over the blocks. A twin may divide its work differently from its kernel if the result does not
// depend on it.
func (b *Block) Part(n uint64) (lo, hi uint64) {
	grid, i := uint64(b.Grid), uint64(b.Index)
	size, rest := n/grid, n%grid
	return i*size + min(i, rest), (i+1)*size + min(i+1, rest)
}

// Twin is the twin of a kernel.
type Twin struct {
	// Params is the signature of the kernel whose arguments the twin takes.
	Params []device.Param
	// Bind returns the work of a launch with these arguments, in the order of the kernel.
	Bind func(values []kernels.Value) Launch
	run  any // of Of
}

// Launch is the work of a launch. Blocks run on all cores at once, in any order. A panic breaks the
// device, as a fault of a kernel breaks a GPU.
type Launch interface {
	// Run does the work of one block.
	Run(b *Block)
}

// twins has the twins by the names of their kernels. Only init functions write it, through
// Register.
var twins = map[string]*Twin{}

// launch is a Launch with the arguments of a kernel, which all blocks share.
type launch[A any] struct {
	args A
	run  func(b *Block, args *A)
}

func (l *launch[A]) Run(b *Block) { l.run(b, &l.args) }

// Of returns a twin. run does the work of one block, with the arguments of the launch, which it
// must not change.
func Of[A any, P kernels.Bound[A]](run func(b *Block, args *A)) *Twin {
	return &Twin{P(nil).Signature(), func(values []kernels.Value) Launch {
		l := &launch[A]{run: run}
		P(&l.args).Bind(values)
		return l
	}, run}
}

// Register adds the twin of a kernel, as Of makes it. It is called by init functions only.
func Register[A any, P kernels.Bound[A]](kernel string, run func(b *Block, args *A)) {
	twins[kernel] = Of[A, P](run)
}

// Run does the work of a launch of a kernel, block by block, with arguments of its type.
func Run[A any](kernel string, grid int, args *A) {
	run := twins[kernel].run.(func(b *Block, args *A))
	for i := range grid {
		run(&Block{Index: i, Grid: grid, Threads: 1}, args)
	}
}

// Lookup returns the twin of a kernel, nil if there is none.
func Lookup(kernel string) *Twin { return twins[kernel] }

// LastBlock reports whether the block is the last one of its launch to call it, and prepares the
// ticket in the scratch memory for the next launch. The writes of the other blocks are visible to
// the last one.
func LastBlock(b *Block, scratch []uint64) bool {
	if atomic.AddUint64(&scratch[kernels.TallyTicket], 1) != uint64(b.Grid) {
		return false
	}
	scratch[kernels.TallyTicket] = 0
	return true
}
