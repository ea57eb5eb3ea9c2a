// Package twin is the registry of the Go twins of kernels, and what a twin sees of its launch.
//
// A twin computes the same results as the kernel of its name, in the plainest way, block by block.
// The packages of twins register theirs when they are initialised; the host device looks them up.
package twin

import (
	"math"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Block is what one block of a launch sees on the host device: its place in the grid and the
// arguments of the launch. There are no threads: a twin loops over 0..Threads-1 itself if it must.
type Block struct {
	// Index is the number of the block, 0..Grid-1, and Threads the number of threads of each block.
	Index, Grid, Threads int
	// Args are the arguments in the kernel's order. All blocks share them.
	Args []Argument
}

// Argument is one argument of a launch: the memory of a buffer, or the bits of a scalar.
type Argument struct {
	Mem  []byte
	Bits uint64
}

// Mem returns the whole memory of buffer argument i as elements of type T. Other blocks use the
// same memory at the same time.
func Mem[T device.Scalar](b *Block, i int) []T { return device.Of[T](b.Args[i].Mem) }

// Uint32 returns scalar argument i.
func (b *Block) Uint32(i int) uint32 { return uint32(b.Args[i].Bits) }

// Uint64 returns scalar argument i.
func (b *Block) Uint64(i int) uint64 { return b.Args[i].Bits }

// Int32 returns scalar argument i.
func (b *Block) Int32(i int) int32 { return int32(uint32(b.Args[i].Bits)) }

// Float32 returns scalar argument i.
func (b *Block) Float32(i int) float32 { return math.Float32frombits(uint32(b.Args[i].Bits)) }

// Part returns the share [lo, hi) of this block in 0..n-1, when n is divided evenly and in order
// over the blocks. A twin may divide its work differently from its kernel if the result does not
// depend on it.
func (b *Block) Part(n uint64) (lo, hi uint64) {
	grid, i := uint64(b.Grid), uint64(b.Index)
	size, rest := n/grid, n%grid
	return i*size + min(i, rest), (i+1)*size + min(i+1, rest)
}

// Func is the twin of a kernel: it does the work of one block. Blocks run on all cores at once, in
// any order. A panic breaks the device, as a fault of a kernel breaks a GPU.
type Func func(b *Block)

// twins has the twins by the names of their kernels. Only init functions write it, through
// Register.
var twins = map[string]Func{}

// Register adds a twin. It is called by init functions only.
func Register(name string, fn Func) { twins[name] = fn }

// Lookup returns the twin of a kernel, nil if there is none.
func Lookup(name string) Func { return twins[name] }

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
