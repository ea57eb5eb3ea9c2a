package swarmtwin_test

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
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/internal/testlong"
)

// shims are the functions of CUDA that the emulation of tallies does not have.
const shims = `
template <class T> static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline unsigned __shfl_sync(unsigned, unsigned v, int lane) {
  static unsigned lanes[1024];
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  const unsigned got = lanes[threadIdx.x / 32 * 32 + lane];
  __syncwarp(0);
  return got;
}
static inline unsigned __shfl_up_sync(unsigned, unsigned v, unsigned d) {
  static unsigned lanes[1024];
  lanes[threadIdx.x] = v;
  __syncwarp(0);
  const unsigned got = threadIdx.x % 32 >= d ? lanes[threadIdx.x - d] : v;
  __syncwarp(0);
  return got;
}
`

// TestSwarmKernelsOnTheCPU runs the CUDA text of the kernels, compiled for the processor: they leave
// in memory what their twins leave, for all elements, spans and launch shapes.
func TestSwarmKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	ref := fixture.Reference(t)
	for _, kernel := range launches.SwarmKernels() {
		t.Run(kernel, func(t *testing.T) {
			source, _ := kernels.Lookup(kernel)
			source.Code = shims + source.Code
			program := emulation.Compile(t, "emulate_tally.cpp", source, slices.Concat(emulation.Exact,
				emulation.Sanitized, []string{fmt.Sprintf("-DPARAMS=%d", len(source.Params))})...)
			r := rand.New(rand.NewPCG(33, 34))
			sizes, count := []int{0, 1, 31, 64, 300, 1025, 5000}[:testlong.Of(7, 6)], testlong.Of(12, 3)
			if kernel == swarmset.Bids { // it passes over most agents only where a block has many
				sizes, count = []int{1025, 20_000, 20_000, 20_000}, testlong.Of(40, 10)
			}
			for range count {
				n := sizes[r.IntN(len(sizes))]
				launch := launches.RandomSwarm(r, kernel, n)
				threads, blocks := 32*(1+r.IntN(3)), 1+r.IntN(3)
				var params []emulation.Param
				for _, p := range launch.Params {
					params = append(params, emulation.Param{Mem: p.Mem, Scalar: p.Arg.Kind() != 0, Bits: p.Arg.Bits()})
				}
				got, err := emulation.Launch(t, program, params, threads, blocks)
				if err != nil {
					t.Fatalf("%d elements, %d threads, %d blocks: %v", n, threads, blocks, err)
				}
				for i, want := range onHost(t, ref, kernel, launch) {
					if want != nil && !bytes.Equal(got[i], want) {
						t.Fatalf("%d elements, %d threads, %d blocks: parameter %d differs from the twin's", n, threads,
							blocks, i)
					}
				}
			}
		})
	}
}

// onHost returns the memory of each parameter after the launch on the host device; nil for scalars.
func onHost(t *testing.T, ref device.Device, kernel string, launch *launches.Arrays) [][]byte {
	t.Helper()
	s := fixture.NewStream(t, ref)
	args, buffers := make([]device.Arg, len(launch.Params)), make([]device.Buffer, len(launch.Params))
	for i, p := range launch.Params {
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
