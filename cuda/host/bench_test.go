package host_test

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
)

// BenchmarkLaunch makes launches that have almost no work, one after the other.
func BenchmarkLaunch(b *testing.B) {
	for _, c := range []struct {
		kernel string
		random func(r *rand.Rand, kernel string, n int) *launches.Arrays
		n      int
	}{
		{gridset.Get, launches.RandomGrid, 1},
		{spaceset.Colony, launches.RandomSpace, 1},
		{graphset.Send, launches.RandomGraph, 1},
		{swarmset.Clear, launches.RandomSwarm, 1},
		{gridset.LifeCells, launches.RandomGrid, 100_000},
		{spaceset.Boids, launches.RandomSpace, 20_000},
		{graphset.SIR, launches.RandomGraph, 20_000},
		{swarmset.Mark, launches.RandomSwarm, 20_000},
		{arrayset.Sum(arrayset.F32), launches.RandomArrays, 100_000},
	} {
		name := c.kernel
		if c.n == 1 {
			name += "/small"
		}
		b.Run(name, func(b *testing.B) {
			d := launches.Reference(b)
			a := c.random(rand.New(rand.NewPCG(1, 2)), c.kernel, c.n)
			args := make([]device.Arg, len(a.Params))
			for i, p := range a.Params {
				if args[i] = p.Arg; p.Arg.Kind() == 0 {
					args[i] = device.Ptr(launches.Upload(b, d, p.Mem))
				}
			}
			s, k := launches.NewStream(b, d), launches.FindKernel(b, d, c.kernel)
			b.ReportAllocs()
			for b.Loop() {
				launches.Start(b, s, k, device.Geometry{Grid: 64, Block: 128}, args...)
				launches.Wait(b, s)
			}
		})
	}
}
