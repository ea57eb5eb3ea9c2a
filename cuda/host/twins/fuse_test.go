package twins_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestFuseKernelsOnTheCPU runs the CUDA text of the fusion kernels, compiled for the CPU: sums,
// tallies and totals must equal plain loops, whatever the members and the launch shape. Tiles and
// shares are made small, so that few agents fill several and nodes share slots of the hash table.
func TestFuseKernelsOnTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("emulated threads are slow")
	}
	small := strings.NewReplacer(
		fmt.Sprintf("#define FUSE_TILE %d", kernels.FuseTile), "#define FUSE_TILE 128",
		fmt.Sprintf("#define FUSE_SLOTS %d", kernels.FuseSlots), "#define FUSE_SLOTS 256",
		fmt.Sprintf("#define FUSE_SHARE %d\n", kernels.FuseShare), "#define FUSE_SHARE 8\n",
	)
	for _, kernel := range launches.FuseKernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			source, _ := kernels.Lookup(kernel)
			source.Code = small.Replace(source.Code)
			if code := source.Code; strings.Count(code, "FUSE_TILE 128\n")+strings.Count(code, "FUSE_SLOTS 256\n")+
				strings.Count(code, "FUSE_SHARE 8\n") != 3 {
				t.Fatal("the tile or the share is not small")
			}
			args := fmt.Sprintf("-DPARAMS=%d", len(source.Params))
			program := emulation.Compile(t, "emulate_fuse.cpp", source,
				slices.Concat(emulation.Exact, emulation.Sanitized, []string{args})...)
			r := rand.New(rand.NewPCG(23, 24))
			for range testkit.Of(8, 3) {
				f := launches.RandomFuse(r, kernel, []int{0, 1, 17, 33, 129, 300, 1025}[r.IntN(7)])
				threads, blocks := []int{1, 7, 31, 32, 33, 64, 100}[r.IntN(7)], 1+r.IntN(3)
				if err := emulateFuse(t, program, f, threads, blocks); err != nil {
					t.Fatalf("%v, %d threads, %d blocks: %v", f, threads, blocks, err)
				}
			}
		})
	}
}

func emulateFuse(t *testing.T, program string, f launches.Fuse, threads, blocks int) error {
	t.Helper()
	after, err := launches.Emulate(t, program, f.Params, threads, blocks)
	if err != nil {
		return err
	}
	f.Settle(after)
	return launches.Compare(f.Kernel, after, f.Params)
}
