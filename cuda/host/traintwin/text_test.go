package traintwin_test

import (
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// shims are the functions of CUDA that the emulation of agents does not have.
const shims = `
static inline long long __float2ll_rn(float v) { return std::llrint(v); }
static inline int __double2int_rn(double v) { return (int)std::rint(v); }
static inline float __ldcg(const float *p) { return *p; }
`

func texts() launches.Texts {
	return launches.Texts{
		Kernels: launches.TrainKernels(), Random: launches.RandomTrain, Count: testkit.Of(60, 12), Shims: shims,
		Size:    func(r *rand.Rand) int { return r.IntN(1200) },
		Program: "emulate_fuse.cpp", Options: []string{"-DEMULATED_MMA"},
	}
}

// TestKernelsOnTheCPU compares the CUDA text of the kernels with their twins.
func TestKernelsOnTheCPU(t *testing.T) { texts().Test(t) }

// TestWholeBlocksOnTheCPU: whole blocks of Outer read ahead.
func TestWholeBlocksOnTheCPU(t *testing.T) {
	c := texts()
	c.Kernels, c.Block, c.Count = nil, trainset.WideBlock, testkit.Of(30, 6)
	for _, class := range trainset.Classes() {
		c.Kernels = append(c.Kernels, trainset.Name(trainset.Outer, class))
	}
	c.Test(t)
}
