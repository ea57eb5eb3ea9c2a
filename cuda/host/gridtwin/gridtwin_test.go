package gridtwin_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/fixture"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// plainLife is Life as its rules are told.
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

// cells returns the cells of a launch of Life: those of the parameter mem in the frames of the next one.
func cells(a *launches.Arrays, mem int, content []byte) (rows [][]byte) {
	number := func(i int) int { return int(a.Params[i].Arg.Bits()) }
	frames := device.Of[uint32](a.Params[mem+1].Mem)
	pageBytes, per, width, height := number(4), number(5), number(6), number(7)
	for y := range height {
		row := make([]byte, width)
		for x := range row {
			id := y*width + x
			row[x] = content[int(frames[id/per])*pageBytes+id%per]
		}
		rows = append(rows, row)
	}
	return rows
}

// TestLife compares random generations with the plain ones. Bytes of no cell stay as they are.
func TestLife(t *testing.T) {
	ref, r := fixture.Reference(t), rand.New(rand.NewPCG(42, 1))
	for i := range testlong.Of(400, 100) {
		kernel := []string{gridset.LifeRows, gridset.LifeCells}[i%2]
		a := launches.RandomGrid(r, kernel, r.IntN(6000))
		got := onHost(t, ref, kernel, a)
		want, alive := plainLife(cells(a, 0, a.Params[0].Mem), a.Params[8].Arg.Bits() == 1)
		if !slices.EqualFunc(cells(a, 2, got[2]), want, bytes.Equal) {
			t.Fatalf("%s, launch %d: the generation differs from the plain one", kernel, i)
		}
		poison := fixture.Poisoned(len(got[2]))
		kept := 0
		for j := range poison {
			if got[2][j] == poison[j] {
				kept++
			}
		}
		if n := len(want) * len(want[0]); len(poison)-kept > n {
			t.Fatalf("%s, launch %d: %d bytes were written for %d cells", kernel, i, len(poison)-kept, n)
		}
		before := device.Of[uint64](a.Params[10].Mem)[0]
		if a.Params[9].Arg.Bits() == 0 {
			alive = 0
		}
		if counted := device.Of[uint64](got[10])[0]; counted != before+alive {
			t.Fatalf("%s, launch %d: %d cells are alive, want %d", kernel, i, counted-before, alive)
		}
	}
}

// shims are the functions of CUDA that the emulation of tallies does not have.
const shims = `
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

// TestGridKernelsOnTheCPU runs the CUDA text of the kernels, compiled for the processor: they leave
// in memory what their twins leave, for all grids and launch shapes.
func TestGridKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	ref := fixture.Reference(t)
	for _, kernel := range launches.GridKernels() {
		t.Run(kernel, func(t *testing.T) {
			source, _ := kernels.Lookup(kernel)
			source.Code = shims + source.Code
			program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Exact,
				emulation.Sanitized, []string{fmt.Sprintf("-DPARAMS=%d", len(source.Params))})...)
			r := rand.New(rand.NewPCG(33, 34))
			for range testlong.Of(40, 8) {
				a := launches.RandomGrid(r, kernel, r.IntN(9000))
				threads, blocks := 32*(1+r.IntN(3)), 1+r.IntN(3)
				var params []emulation.Param
				for _, p := range a.Params {
					params = append(params, emulation.Param{Mem: p.Mem, Scalar: p.Arg.Kind() != 0, Bits: p.Arg.Bits()})
				}
				got, err := emulation.Launch(t, program, params, threads, blocks)
				if err != nil {
					t.Fatalf("%d threads, %d blocks: %v", threads, blocks, err)
				}
				for i, want := range onHost(t, ref, kernel, a) {
					if want != nil && !bytes.Equal(got[i], want) {
						t.Fatalf("%d threads, %d blocks: parameter %d differs from the twin's", threads, blocks, i)
					}
				}
			}
		})
	}
}

// onHost returns the memory of each parameter after the launch on the host device; nil for scalars.
func onHost(t *testing.T, ref device.Device, kernel string, a *launches.Arrays) [][]byte {
	t.Helper()
	s := fixture.NewStream(t, ref)
	args, buffers := make([]device.Arg, len(a.Params)), make([]device.Buffer, len(a.Params))
	for i, p := range a.Params {
		if args[i] = p.Arg; p.Arg.Kind() == 0 {
			buffers[i] = fixture.Alloc(t, ref, int64(len(p.Mem)))
			fixture.Write(t, buffers[i], 0, p.Mem)
			args[i] = device.Ptr(buffers[i])
		}
	}
	fixture.Launch(t, s, fixture.FindKernel(t, ref, kernel), device.Geometry{Grid: 5, Block: 64}, args...)
	fixture.Wait(t, s)
	after := make([][]byte, len(buffers))
	for i, b := range buffers {
		if b != nil {
			after[i] = fixture.Download(t, b)
		}
	}
	return after
}
