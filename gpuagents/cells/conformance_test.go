package cells_test

import (
	"os"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestConformance holds the observe kernels of every cell to the host device, bit for bit: outputs
// and pages, for every size of group, with one feature and with several, where observations that
// come late or twice are dropped, and where groups have weights of their own. In a binary built
// with the tag cuda it runs on the first GPU and fails where there is none, unless
// EXOSWARM_SKIP_GPU=1.
func TestConformance(t *testing.T) {
	name := "host"
	if cuda.Built {
		if os.Getenv("EXOSWARM_SKIP_GPU") == "1" {
			t.Skip("EXOSWARM_SKIP_GPU=1: the kernels are not compared on a GPU")
		}
		name = "cuda:0"
	}
	open := func(t testing.TB, memoryLimit int64) device.Device {
		d, err := cuda.Open(t.Context(), name, cuda.Options{MemoryLimit: memoryLimit, CacheDir: t.TempDir()})
		if err != nil {
			t.Fatalf("cuda.Open: %v, want no error", err)
		}
		return d
	}
	for _, cell := range cells.Names() {
		for _, of := range []struct {
			features int
			drop     kernels.Drop
			own      bool
		}{
			{1, 0, false},
			{3, 0, false},
			{1, kernels.DropLate | kernels.DropDuplicate, false},
			{3, kernels.DropLate, true},
			{3, kernels.DropDuplicate, false}, // relations of the predictor before the variables of both options
			{32, 0, false},                    // and as many of them as there are
		} {
			if of.own && cell != "gru" || of.features == 3 && of.drop == 0 && !testkit.Long() {
				continue
			}
			if cell != "predictor" && (of.features == 32 || of.features == 3 && of.drop == kernels.DropDuplicate) {
				continue
			}
			devicetest.RunObserve(t, open, func(agents int) devicetest.Cell {
				c, _ := cells.Lookup(cell)
				values := map[string]float64{}
				if cell == "predictor" && of.drop != 0 { // the alarm by the observations of a day
					values["alarms_per_day"] = 24
				}
				b, err := c.Bind(values, agents, of.features, cells.Weighted)
				if err != nil {
					t.Fatalf("c.Bind: %v, want no error", err)
				}
				b.Drop, b.Own = of.drop, of.own
				l, err := b.Layout(256 << 20)
				if err != nil {
					t.Fatalf("b.Layout: %v, want no error", err)
				}
				return devicetest.Cell{
					Kernel: c.Kernel, Vars: l.Vars, Params: b.ParamBlock(), Weights: b.Weights(7),
					Inputs: of.features, Candidates: len(c.Candidates),
				}
			})
		}
	}
}
