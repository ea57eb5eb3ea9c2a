package host

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Block is what one block of a launch sees on the host device: its place in the grid and the
// launch's arguments. The block's threads do not exist as such: a Go twin loops over 0..Threads-1
// itself.
type Block struct {
	// Index is 0..Grid-1.
	Index, Grid, Threads int
	args                 []argument
}

type argument struct {
	mem  []byte
	bits uint64
}

// Mem views buffer argument i as elements of type T: the whole buffer.
func Mem[T device.Scalar](b *Block, i int) []T { return device.Of[T](b.args[i].mem) }

// Uint32 is scalar argument i.
func (b *Block) Uint32(i int) uint32 { return uint32(b.args[i].bits) }

// Uint64 is scalar argument i.
func (b *Block) Uint64(i int) uint64 { return b.args[i].bits }

// Int32 is scalar argument i.
func (b *Block) Int32(i int) int32 { return int32(uint32(b.args[i].bits)) }

// Float32 is scalar argument i.
func (b *Block) Float32(i int) float32 { return math.Float32frombits(uint32(b.args[i].bits)) }

// Part is the share [lo, hi) of this block in 0..n-1 when the launch cuts it evenly, in order, over
// its blocks. A twin may cut otherwise than its kernel does wherever the result does not depend on
// it.
func (b *Block) Part(n uint64) (lo, hi uint64) {
	grid, i := uint64(b.Grid), uint64(b.Index)
	size, rest := n/grid, n%grid
	return i*size + min(i, rest), (i+1)*size + min(i+1, rest)
}

// twin is the Go twin of a kernel: it does the work of one block. Blocks run at once on all cores,
// in any order.
type twin func(b *Block)

// twins is filled by init functions of this package only, one beside each Go twin.
var twins = map[string]twin{}

func register(name string, fn twin) { twins[name] = fn }

// kernel is a twin as the contract hands it out.
type kernel struct {
	dev  *Device
	name string
	sig  []device.Param
	fn   twin
	src  kernels.Source
}

func (k *kernel) Name() string              { return k.name }
func (k *kernel) Signature() []device.Param { return k.sig }

// Cover goes by the table, whose blocks are as good as any here.
func (k *kernel) Cover(n int64) device.Geometry {
	block := device.TableBlock(n)
	if k.src.MaxBlock > 0 {
		block = min(block, k.src.MaxBlock)
	}
	g := device.Cover(n, block)
	if k.src.Grid > 0 {
		g.Grid = k.src.Grid
	}
	return g
}
