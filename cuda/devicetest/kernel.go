package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// testSet: the device has every kernel of the set with its name and signature, and each kernel has
// a case. An unknown name is device.ErrNotSupported.
func testSet(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	for i, name := range kernels.Names() {
		if _, ok := cases[name]; !ok && !strings.HasSuffix(name, "_observe") {
			t.Errorf("%s has no case in devicetest/cases.go", name)
		}
		if !compiles(d) && !testkit.Long() && i%6 > 0 {
			continue // the compiler takes most of a second a kernel, for a driver that does not run it
		}
		src, _ := kernels.Lookup(name)
		k, err := d.Kernel(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if k.Name() != name || !slices.Equal(k.Signature(), src.Params) {
			t.Errorf("%s: the device has %s %v", name, k.Name(), k.Signature())
		}
	}
	_, err := d.Kernel("no_such_kernel")
	launches.Want(t, "an unknown kernel", err, device.ErrNotSupported)
}

// blocks and grids are the launch shapes that every case runs at: around a warp, around the usual
// sizes, the largest.
var (
	// blocks and grids are the numbers of threads and blocks of launches, and counts the numbers of
	// elements.
	blocks = []int{1, 31, 32, 33, 64, 100, 128, 256, 512, 1000, 1024}
	grids  = []int{1, 2, 7, 133}
	counts = []int{0, 1, 2, 31, 32, 33, 1000, 4099, 100_003}
)

// param is one parameter of a case: a buffer with content mem if mem is not nil, otherwise the
// scalar arg. out marks a buffer that the kernel may change.
type param struct {
	mem []byte
	out bool // compared after the launch
	arg device.Arg
}

// testCase is the case of one kernel. make returns the parameters of a launch over about n
// elements; equal random numbers make equal parameters.
type testCase struct {
	// bound is the largest |got-want| of a float32 output relative to |want|; 0: the bits are
	// equal.
	bound float64
	// compiled says that only a device that runs the kernel's own code can do it.
	compiled bool
	// settle brings outputs that may come in any order into one; nil: there are none.
	settle func(before []param, after [][]byte)
	make   func(r *rand.Rand, n int) []param
}

// slow reports whether the race detector may be on and the device computes on it: then a launch
// over many elements takes seconds. The run without the detector has all launches.
func slow(d device.Device) bool { return testing.Short() && d.Properties().ComputeMajor == 0 }

// testCases runs each case on the device and on the host reference, in every launch shape that the
// kernel allows. It compares the outputs, and checks that inputs and the bytes around every buffer
// are unchanged. The result must not depend on the shape of the launch.
func testCases(t *testing.T, open launches.Opener) {
	dev, ref := launches.Open(t, open), launches.Reference(t)
	for _, name := range kernels.Names() {
		c, ok := cases[name]
		if !ok || c.compiled && !compiles(dev) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, n := range counts {
				if n > 4099 && slow(dev) {
					continue
				}
				r := rand.New(rand.NewPCG(uint64(n), 3))
				params := c.make(r, n)
				src, _ := kernels.Lookup(name)
				need := runCase(t, ref, name, device.Geometry{Grid: max(src.Grid, 5), Block: 64}, params)
				if c.settle != nil {
					c.settle(params, need)
				}
				for _, grid := range grids {
					for _, block := range blocks {
						if src.Grid > 0 {
							grid = src.Grid
						}
						if src.Fits(device.Geometry{Grid: grid, Block: block}) != nil {
							continue
						}
						if testing.Short() && r.IntN(4) > 0 || !testkit.Long() && r.IntN(25) > 0 {
							continue // compute-sanitizer takes 20 to 50 times as long a launch
						}
						if n > 4099 && grid*block < 32 {
							continue // seconds a launch, and nothing that the smaller counts do not show
						}
						got := runCase(t, dev, name, device.Geometry{Grid: grid, Block: block}, params)
						if c.settle != nil {
							c.settle(params, got)
						}
						for i := range got {
							if err := launches.EqualWithin(got[i], need[i], c.bound); err != nil {
								t.Fatalf("n %d, grid %d, block %d: parameter %d: %v", n, grid, block, i, err)
							}
						}
					}
				}
			}
		})
	}
}

// compiles reports whether the device runs the code of kernels. A driver of host memory for tests
// does not: it knows a few kernels by their names.
func compiles(d device.Device) bool { return d.Properties().Model != "fake" }

// runCase launches a kernel once and returns the content of every buffer parameter, nil for
// scalars. Each buffer lies between two guards of poison, which must be unchanged after the launch.
// The memory is closed at the end.
func runCase(t *testing.T, d device.Device, name string, g device.Geometry, params []param) [][]byte {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	args := make([]device.Arg, len(params))
	buffers := make([]device.Buffer, len(params))
	for i, p := range params {
		args[i] = p.arg
		if p.mem == nil {
			continue
		}
		// A multiple of 16 keeps the guard's start aligned; the part behind the data belongs to the
		// guard.
		b, err := d.Alloc(int64(len(p.mem)+2*launches.Guard), "case")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Fill(0, b.Size(), launches.Poison); err != nil {
			t.Fatal(err)
		}
		launches.Write(t, b, launches.Guard, p.mem)
		buffers[i] = b
		args[i] = device.Range(b, launches.Guard, int64(len(p.mem)))
	}
	launches.Start(t, s, launches.FindKernel(t, d, name), g, args...)
	launches.Wait(t, s)
	out := make([][]byte, len(params))
	for i, b := range buffers {
		if b == nil {
			continue
		}
		whole := launches.Download(t, b)
		end := len(whole) - launches.Guard
		if n := launches.CountOther(whole[:launches.Guard]) + launches.CountOther(whole[end:]); n > 0 {
			t.Fatalf("%s, grid %d, block %d: %d bytes around parameter %d were overwritten", name, g.Grid, g.Block, n,
				i)
		}
		out[i] = whole[launches.Guard:end]
		if !params[i].out && !bytes.Equal(out[i], params[i].mem) {
			t.Fatalf("%s: the input %d was changed", name, i)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// testCover: the shape that a kernel suggests covers all elements with whole warps in one
// dimension.
func testCover(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	k := launches.FindKernel(t, d, "fill_u32")
	for _, n := range []int64{1, 31, 9_999, 100_000, 1_000_003} {
		g := k.Cover(n)
		if threads := int64(g.Grid) * int64(g.Block); threads < n || g.Block < 32 || !g.Flat() {
			t.Errorf("%d elements: %+v", n, g)
		}
		b := launches.Alloc(t, d, 4*n)
		launches.Start(t, s, k, g, device.Ptr(b), device.Uint64(uint64(n)), device.Uint32(5))
		launches.Wait(t, s)
		for i, v := range device.Of[uint32](launches.Download(t, b)) {
			if v != 5 {
				t.Fatalf("word %d of %d is %d", i, n, v)
			}
		}
	}
	if g := k.Cover(1 << 40); int64(g.Grid)*int64(g.Block) < 1<<40 {
		t.Errorf("%+v", g)
	}
}

// fillSource is the source of a kernel of the set as a user would write it. Every device knows its
// name and signature.
const fillSource = `// Fills n words.
__global__ void fill_u32(unsigned int *out, unsigned long long n, unsigned int value)
{
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        out[i] = value;
}
`

// testCompile compiles a kernel from source. A device that cannot compile says which device can.
// Names, signatures and declared parameters that differ are refused, and an error of the source has
// the words of the compiler and the line.
func testCompile(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	fits := []device.Param{
		{Name: "out", Kind: device.KindBuffer},
		{Name: "n", Kind: device.KindUint64},
		{Name: "value", Kind: device.KindUint32},
	}
	for what, call := range map[string]func() error{
		"no such kernel":   func() error { _, err := d.Compile("other", fillSource); return err },
		"no name":          func() error { _, err := d.Compile("", fillSource); return err },
		"another type":     func() error { _, err := d.Compile("k", "__global__ void k(double x) {}"); return err },
		"too few declared": func() error { _, err := d.Compile("fill_u32", fillSource, fits[:2]...); return err },
		"others declared": func() error {
			_, err := d.Compile("fill_u32", fillSource, fits[0], fits[2], fits[1])
			return err
		},
	} {
		launches.Want(t, what, call(), device.ErrInvalidArgument)
	}
	k, err := d.Compile("fill_u32", fillSource, fits...)
	if !compiled(t, err) {
		return
	}
	if k.Name() != "fill_u32" || !slices.Equal(k.Signature(), fits) {
		t.Errorf("%s %v", k.Name(), k.Signature())
	}
	s := launches.NewStream(t, d)
	b := launches.Alloc(t, d, 4*1000)
	launches.Want(t, "a wrong argument",
		s.Launch(k, k.Cover(1000), device.Ptr(b), device.Uint32(1000), device.Uint32(7)),
		device.ErrInvalidArgument)
	launches.Start(t, s, k, k.Cover(1000), device.Ptr(b), device.Uint64(1000), device.Uint32(7))
	launches.Wait(t, s)
	for i, v := range device.Of[uint32](launches.Download(t, b)) {
		if v != 7 {
			t.Fatalf("word %d is %d", i, v)
		}
	}
	_, err = d.Compile("fill_u32", strings.Replace(fillSource, "out[i] = value", "out[i] = valu", 1))
	launches.Want(t, "an error of the source", err, device.ErrInvalidArgument)
	if refused := (*device.SourceError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Log, "valu") {
		t.Errorf("the error has not the compiler's words: %v", err)
	}
	if err != nil && !strings.Contains(err.Error(), "line 6") {
		t.Errorf("the error does not name its line: %v", err)
	}
}

// compiled reports whether a device has compiled a kernel. A device that compiles nothing must say
// which device does.
func compiled(t *testing.T, err error) bool {
	t.Helper()
	if !errors.Is(err, device.ErrNotSupported) {
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if text := err.Error(); !strings.Contains(text, "cuda:N") && !strings.Contains(text, "NVRTC") {
		t.Errorf("the refusal does not help: %v", err)
	}
	return false
}

// testCompileExact compiles a kernel whose result shows whether a multiplication and an addition
// were fused. CompileExact must round twice; Compile may do either.
func testCompileExact(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	const source = `__global__ void fused(float *v, float a, float b) { v[0] = a * a + b; }`
	_, err := d.CompileExact("other", source)
	launches.Want(t, "no such kernel", err, device.ErrInvalidArgument)
	exact, err := d.CompileExact("fused", source)
	if !compiled(t, err) {
		return
	}
	fused, err := d.Compile("fused", source)
	if err != nil {
		t.Fatal(err)
	}
	s := launches.NewStream(t, d)
	b := launches.Alloc(t, d, 4)
	const a = 1 + 0x1p-12 // a * a has a last bit that float32 has no place for
	for what, k := range map[string]device.Kernel{"exact": exact, "fused": fused} {
		launches.Start(t, s, k, device.Geometry{Grid: 1, Block: 1}, device.Ptr(b), device.Float32(a),
			device.Float32(-1-0x1p-11))
		launches.Wait(t, s)
		if got := device.Of[float32](launches.Download(t, b))[0]; what == "exact" && got != 0 ||
			what == "fused" && got != 0 &&
				got != 0x1p-24 {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// testArguments: a launch with wrong arguments, a wrong shape, or a kernel of another device is an
// error before it reaches the device, and a correct launch works afterwards.
func testArguments(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	k := launches.FindKernel(t, d, "fill_u32")
	b := launches.Alloc(t, d, 64)
	foreign := launches.Alloc(t, launches.Reference(t), 64)
	good := []device.Arg{device.Ptr(b), device.Uint64(16), device.Uint32(1)}
	g := device.Geometry{Grid: 1, Block: 32}
	for what, args := range map[string][]device.Arg{
		"none":             nil,
		"too few":          good[:2],
		"too many":         append(slices.Clone(good), device.Uint32(1)),
		"wrong order":      {good[1], good[0], good[2]},
		"wrong size":       {good[0], device.Uint32(16), good[2]},
		"wrong sign":       {good[0], good[1], device.Int32(1)},
		"a float":          {good[0], good[1], device.Float32(1)},
		"the zero Arg":     {{}, good[1], good[2]},
		"a nil buffer":     {device.Ptr(nil), good[1], good[2]},
		"a range past":     {device.Range(b, 16, 49), good[1], good[2]},
		"a range before":   {device.Range(b, -16, 16), good[1], good[2]},
		"a negative range": {device.Range(b, 16, -16), good[1], good[2]},
		"an overflow":      {device.Range(b, 16, math.MaxInt64), good[1], good[2]},
		"an unaligned one": {device.Range(b, 4, 16), good[1], good[2]},
		"another device":   {device.Ptr(foreign), good[1], good[2]},
	} {
		launches.Want(t, what, s.Launch(k, g, args...), device.ErrInvalidArgument)
	}
	most := d.Properties().MaxThreadsPerBlock
	for _, g := range []device.Geometry{
		{},
		{Grid: 1},
		{Block: 1},
		{Grid: -1, Block: 1},
		{Grid: 1, Block: -1},
		{Grid: 1, Block: most + 1},
		{Grid: math.MaxInt32 + 1, Block: 1},
		{Grid: 1, Block: 1, Shared: -1},
		{Grid: 1, Block: 1, GridY: 2},
		{Grid: 1, Block: 1, BlockY: 2},
		{Grid: 1, Block: 1, GridZ: 2},
		{Grid: 1, Block: 1, BlockZ: -1},
		{Grid: 1, Block: 1, Shared: 1 << 30},
	} {
		launches.Want(t, fmt.Sprint(g), s.Launch(k, g, good...), device.ErrInvalidArgument)
	}
	launches.Want(t, "no kernel", s.Launch(nil, g, good...), device.ErrInvalidArgument)
	launches.Want(t, "a kernel of another kind of device", s.Launch(otherKernel{}, g, good...),
		device.ErrInvalidArgument)
	launches.Want(t, "a kernel of another device",
		s.Launch(launches.FindKernel(t, launches.Open(t, open), "fill_u32"), g, good...),
		device.ErrInvalidArgument)
	launches.Wait(t, s)
	if n := launches.CountOther(launches.Download(t, b)); n != 0 {
		t.Errorf("a refused launch wrote %d bytes", n)
	}
	launches.Start(t, s, k, g, good...) // and a right call still works
	launches.Wait(t, s)
}

// otherKernel is a kernel that no device has made.
type otherKernel struct{}

func (otherKernel) Name() string              { return "other" }
func (otherKernel) Signature() []device.Param { return nil }
func (otherKernel) Cover(int64) device.Geometry {
	return device.Geometry{Grid: 1, Block: 1}
}
