package expr_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// chip is a device that says that it is another chip.
type chip struct {
	device.Device
	major, minor int
}

// Properties implements device.Device.
func (c chip) Properties() device.Properties {
	p := c.Device.Properties()
	p.ComputeMajor, p.ComputeMinor = c.major, c.minor
	return p
}

// TestTiles: filters and scans give the bits of the interpreter over many tiles, with one and with
// several groups of them, from starts that are no vectors, and on chips with less shared memory.
func TestTiles(t *testing.T) {
	d, s := open(t)
	r := rand.New(rand.NewPCG(3, 4))
	lengths := []int64{ir.ScanTile - 1, ir.ScanTile + 1, 2*ir.ScanTile + 5, 33*ir.ScanTile + 9}
	lengths = lengths[:testkit.Of(4, 2)]
	if *deviceName != "emulated" {
		lengths = append(lengths, 1023*ir.ScanTile, 1025*ir.ScanTile+3) // a third level
	}
	for _, dev := range []device.Device{d, chip{d, 7, 5}} {
		_, small := dev.(chip)
		if small && *deviceName == "host" {
			continue
		}
		c := &checker{d: dev, s: s}
		for i, text := range []string{
			"filter(x*2, x > 0)",
			"cumsum(x)",
			"a = filter(x, y > 0); b = filter(y + 1, y > 0); c = filter(i, y > 0)",
			"cumsum(i + 1)",
			"filter(i, x > 1e30 || x <= 1e30); k = filter(x, x != x)",
			"cumsum(x * y)",
		} {
			for j, n := range lengths {
				if i > 1 && (j > 3 || *deviceName == "emulated" && j > 1) || small && j > 3 {
					continue // each of these takes seconds
				}
				p, err := expr.Parse(text, vectorsOf(n)...)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				in := map[string]expr.Array{}
				for _, src := range vectorsOf(n) {
					in[src.Name] = expr.Array{Data: fill(r, src.Type, n), Rows: n}
				}
				c.add(t, fmt.Sprintf("%s of %d on %T", text, n, dev), p, in, nil, n%2*4)
			}
			c.run()
		}
	}
}

func vectorsOf(n int64) []expr.Source {
	return []expr.Source{
		{Name: "x", Type: ir.F32, Rows: n}, {Name: "y", Type: ir.F32, Rows: n}, {Name: "i", Type: ir.I32, Rows: n},
	}
}

// greedy is a device whose kernels never have enough registers.
type greedy struct{ device.Device }

type greedyKernel struct{ device.Kernel }

// Registers reports what the driver reports of a kernel.
func (greedyKernel) Registers() (used, spilled int) { return 255, 1000 }

// CompileExact implements device.Device.
func (g greedy) CompileExact(name, source string, params ...device.Param) (device.Kernel, error) {
	k, err := g.Device.CompileExact(name, source, params...)
	return greedyKernel{k}, err
}

// TestSpill: a program whose kernels spill is planned with smaller kernels, and compiles also where
// none are possible.
func TestSpill(t *testing.T) {
	if *deviceName != "emulated" {
		t.Skip("a GPU says itself what its kernels need")
	}
	d, _ := open(t)
	for _, text := range []string{
		"filter(x, x > 1e30 || x < 1e30); k = filter(x, x != x)", "sqrt(x * x + y * y) * 2", "cumsum(x * y)",
	} {
		p, err := expr.Parse(text, vectorsOf(1000)...)
		if err != nil {
			t.Fatal(err)
		}
		rich, err := expr.Compile(d, p, expr.Options{})
		if err != nil {
			t.Fatal(err)
		}
		poor, err := expr.Compile(greedy{d}, p, expr.Options{})
		if err != nil || poor.Kernels() <= rich.Kernels() && rich.Kernels() == 1 {
			t.Errorf("%s: %v; kernels that spill are not divided", text, err)
		}
	}
}
