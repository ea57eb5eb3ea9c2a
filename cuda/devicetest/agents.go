package devicetest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func init() {
	for _, name := range launches.AgentKernels {
		cases[name] = testCase{compiled: true, make: func(r *rand.Rand, n int) []param {
			return asCase(launches.RandomAgents(r, name, n))
		}}
	}
}

// testReciprocals asks for the reciprocal of every mantissa, with the exponents at both ends of
// what is promised and two that the logistic function has, and requires 1/x to the bit. Cells
// divide by multiplying with this reciprocal, so a different last bit would make results depend on
// the device.
func testReciprocals(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	if !compiles(d) {
		t.Skip("this driver runs no compiled code")
	}
	const n = 1 << 23
	exponents := []uint32{127 - 100, 127, 127 + 10, 127 + 40, 127 + 124}
	if testing.Short() || !testkit.Long() {
		exponents = exponents[2:3]
	}
	x := make([]float32, n)
	for _, e := range exponents {
		for i := range x {
			x[i] = math.Float32frombits(e<<23 | uint32(i))
		}
		got := runCase(t, d, "reciprocal_f32", device.Geometry{Grid: 1000, Block: 256},
			[]param{input(append([]byte{}, device.Bytes(x)...)), output(4 * n), {arg: device.Uint64(n)}})
		for i, v := range device.Of[float32](got[1]) {
			if v != 1/x[i] {
				t.Fatalf("the reciprocal of %v is %v, want %v", x[i], v, 1/x[i])
			}
		}
	}
}
