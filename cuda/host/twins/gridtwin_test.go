package twins_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// plainLife is Life, written as its rules.
func plainLife(old [][]byte, periodic bool) (next [][]byte, alive uint64) {
	height, width := len(old), len(old[0])
	at := func(x, y int) int {
		if !periodic && (x < 0 || x >= width || y < 0 || y >= height) {
			return 0
		}
		return int(old[(y+height)%height][(x+width)%width])
	}
	for y := range height {
		row := make([]byte, width)
		for x := range width {
			neighbours := at(x-1, y-1) + at(x, y-1) + at(x+1, y-1) + at(x-1, y) + at(x+1, y) +
				at(x-1, y+1) + at(x, y+1) + at(x+1, y+1)
			if neighbours == 3 || neighbours == 2 && at(x, y) == 1 {
				row[x] = 1
				alive++
			}
		}
		next = append(next, row)
	}
	return next, alive
}

func cells(a *gridset.LifeBound, content []byte, frames []uint32) (rows [][]byte) {
	for y := range a.Height {
		row := make([]byte, a.Width)
		for x := range row {
			id := y*a.Width + uint32(x)
			row[x] = content[uint64(frames[id/a.Per])*a.PageBytes+uint64(id%a.Per)]
		}
		rows = append(rows, row)
	}
	return rows
}

// TestLife compares random generations with the plain ones. Bytes of no cell stay as they are.
func TestLife(t *testing.T) {
	ref, r := launches.Reference(t), rand.New(rand.NewPCG(42, 1))
	for i := range testkit.Of(400, 100) {
		kernel := []string{gridset.LifeRows, gridset.LifeCells}[i%2]
		a := launches.RandomGrid(r, kernel, r.IntN(6000))
		before := launches.Named[gridset.LifeBound](a.Params, nil)
		after := launches.Named[gridset.LifeBound](a.Params, launches.On(t, ref, kernel, a.Params))
		want, alive := plainLife(cells(before, before.From, before.FromFrames), before.Periodic == 1)
		if !slices.EqualFunc(cells(after, after.To, after.ToFrames), want, bytes.Equal) {
			t.Fatalf("%s, launch %d: the generation differs from the plain one", kernel, i)
		}
		written := launches.CountOther(after.To)
		if n := len(want) * len(want[0]); written > n {
			t.Fatalf("%s, launch %d: %d bytes were written for %d cells", kernel, i, written, n)
		}
		if before.Count == 0 {
			alive = 0
		}
		if counted := after.Alive[0] - before.Alive[0]; counted != alive {
			t.Fatalf("%s, launch %d: %d cells are alive, want %d", kernel, i, counted, alive)
		}
	}
}

// shims are the functions of CUDA that the emulation of tallies does not have.
const gridShims = `
static inline unsigned grid_shfl_down(unsigned v, unsigned d) {
  static unsigned lanes[1024];
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  const unsigned got = threadIdx.x % 32 + d < 32 ? lanes[threadIdx.x + d] : v;
  __syncwarp(0);
  return got;
}
#define __shfl_down_sync(mask, v, d) grid_shfl_down(v, d)
`

// TestGridKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestGridKernelsOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: launches.GridKernels(), Random: launches.RandomGrid, Count: testkit.Of(40, 8), Shims: gridShims,
		Size: func(r *rand.Rand) int { return r.IntN(9000) },
	}.Test(t)
}
