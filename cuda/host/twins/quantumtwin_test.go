package twins_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// quantumShims are the functions of CUDA that the emulation of tallies does not have.
const quantumShims = `
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
`

// TestQuantumKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestQuantumKernelsOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: launches.QuantumKernels(), Random: launches.RandomQuantum, Count: testkit.Of(40, 12),
		Shims: quantumShims, Size: func(r *rand.Rand) int { return r.IntN(20_000) },
	}.Test(t)
}

// TestWholeTilesOnTheCPU has a thread for each set of held amplitudes, which then stay in registers
// between phases.
func TestWholeTilesOnTheCPU(t *testing.T) {
	launches.Texts{
		Kernels: []string{quantumset.Tile}, Random: launches.RandomQuantum, Count: testkit.Of(40, 12),
		Shims: quantumShims, Size: func(r *rand.Rand) int { return r.IntN(20_000) }, Block: quantumset.Block,
	}.Test(t)
}

// TestTilesWithoutVectors: passes have the same bits by the routines of package lanes and by
// routines in Go.
func TestTilesWithoutVectors(t *testing.T) {
	d, r := launches.Reference(t), rand.New(rand.NewPCG(35, 36))
	for i := range testkit.Of(400, 100) {
		a := launches.RandomQuantum(r, quantumset.Tile, r.IntN(20_000))
		got := launches.On(t, d, quantumset.Tile, a.Params)
		twins.WithoutVectors(func() {
			if want := launches.On(t, d, quantumset.Tile, a.Params); !bytes.Equal(got[0], want[0]) {
				t.Fatalf("pass %d: the amplitudes differ", i)
			}
		})
	}
}
