package expr_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/cuda/host/emulation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	deviceName = flag.String("device", "emulated", "device of the tests: emulated, host or cuda:0")
	programs   = flag.Int("programs", 8, "random programs of TestRandom")
	cacheDir   = flag.String("cache", "", "directory for compiled kernels; empty: none")
	limit      = flag.Duration("limit", 0, "TestRandom ends after this time; 0: after all programs")
	seed       = flag.Uint64("seed", 1, "seed of the random programs")
)

// open returns the device of the tests and a stream.
func open(t testing.TB) (device.Device, device.Stream) {
	t.Helper()
	var d device.Device
	var err error
	if *deviceName == "emulated" || *deviceName == "host" {
		d, err = host.Open(host.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	} else {
		o := cuda.Options{CacheDir: *cacheDir, Logger: slog.New(slog.DiscardHandler)}
		d, err = cuda.Open(t.Context(), *deviceName, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw := d
	if *deviceName == "emulated" {
		d = emulation.NewDevice(t, d)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), raw.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, s
}

// upload copies the inputs of a run to a device, each from the offset on.
func upload(
	t testing.TB,
	d device.Device,
	in map[string]expr.Array,
	scalars map[string]bool,
	off int64,
) map[string]expr.Memory {
	t.Helper()
	all := map[string]expr.Memory{}
	for name, a := range in {
		if scalars[name] {
			var bits [4]byte
			copy(bits[:], a.Data)
			all[name] = expr.Memory{Bits: binary.LittleEndian.Uint32(bits[:])}
			continue
		}
		b, err := d.Alloc(max(int64(len(a.Data))+off, 1), "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		if err := b.Write(off, a.Data); err != nil {
			t.Fatal(err)
		}
		all[name] = expr.Memory{Buffer: b, Off: off, Rows: a.Rows}
	}
	return all
}

// download returns the outputs of a run, and closes them.
func download(t testing.TB, p *expr.Program, s device.Stream, out map[string]expr.Memory) map[string][]byte {
	t.Helper()
	if err := s.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for name, m := range out {
		data := make([]byte, m.Rows*expr.RowBytes(p, name))
		if err := m.Buffer.Read(m.Off, data); err != nil {
			t.Fatal(err)
		}
		all[name] = data
	}
	for _, m := range out {
		if err := m.Buffer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// special are values that operations treat specially.
var special = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
	1e-40, -1e-42, math.MaxFloat32, -math.MaxFloat32, 89, -104, 2147483648, -2147483648, 4294967296, 255, 256, 1e-30,
	8388608.5, -0.3, 1.17549435e-38, 88.72284, -87.5, 0.625, 9.1,
}

func fill(r *rand.Rand, t ir.Type, n int64) []byte {
	data := make([]byte, 0, n*4)
	float := func() float32 {
		switch r.IntN(12) {
		case 0:
			return special[r.IntN(len(special))]
		case 1:
			return math.Float32frombits(r.Uint32())
		}
		return float32(r.NormFloat64() * 3)
	}
	for range n {
		switch t {
		case ir.F32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float()))
		case ir.BF16:
			data = binary.LittleEndian.AppendUint16(data, device.ToBF16(float()))
		case ir.U8:
			data = append(data, byte(r.Uint32()))
		case ir.Bool:
			data = append(data, byte(r.Uint32()&1))
		default:
			v := r.Uint32()
			switch r.IntN(3) {
			case 0:
				v %= 64
			case 1:
				v = []uint32{0, 1, math.MaxUint32, 1 << 31, 1<<31 - 1}[r.IntN(5)]
			}
			data = binary.LittleEndian.AppendUint32(data, v)
		}
	}
	return data
}

// check runs a program on the device, fused and not, and compares the bits with the interpreter.
type checker struct {
	d   device.Device
	s   device.Stream
	all []func()
}

// add compiles a program now, and runs it later, so that a device compiles many at once.
func (c *checker) add(
	t testing.TB,
	name string,
	p *expr.Program,
	in map[string]expr.Array,
	scalars map[string]bool,
	off int64,
) {
	t.Helper()
	want, err := expr.Interpret(t.Context(), p, in)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, unfused := range []bool{false, true} {
		k, err := expr.Compile(c.d, p, expr.Options{Unfused: unfused})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k.Interpreted() && *deviceName != "host" {
			t.Fatalf("%s is interpreted", name)
		}
		c.all = append(c.all, func() {
			t.Helper()
			out, err := k.Run(context.Background(), c.s, upload(t, c.d, in, scalars, off), nil)
			if err != nil {
				t.Errorf("%s, unfused %v: %v\n%s", name, unfused, err, k.Explain())
				return
			}
			for o, got := range download(t, p, c.s, out) {
				if !bytes.Equal(got, want[o].Data) {
					at := 0
					for at < min(len(got), len(want[o].Data)) && got[at] == want[o].Data[at] {
						at++
					}
					from := at / 4 * 4
					t.Errorf(
						"%s, unfused %v, output %s: %d bytes, want %d; they differ from byte %d on: %x, want %x\n"+
							"%s\n%s",
						name,
						unfused,
						o,
						len(got),
						len(want[o].Data),
						at,
						got[from:min(from+8, len(got))],
						want[o].Data[min(from, len(want[o].Data)):min(from+8, len(want[o].Data))],
						expr.Text(p),
						k.Explain(),
					)
				}
			}
		})
	}
}

func (c *checker) run() {
	for _, f := range c.all {
		f()
	}
	c.all = nil
}

// TestPatterns: each pattern of kernels gives the bits of the interpreter, at lengths around the
// size of its blocks, and from starts that are no vectors.
func TestPatterns(t *testing.T) {
	d, s := open(t)
	c := &checker{d: d, s: s}
	r := rand.New(rand.NewPCG(1, 2))
	for i, text := range []string{
		"x + y",
		"sum(sqrt(x*x + y*y))",
		"z := x*2 + y; s = sum(z); b = z - 1",
		"mean(x)",
		"max(x); m = min(y); c = count(x > y)",
		"filter(x*2, x > 0)",
		"a = filter(x, y > 0); b = filter(y + 1, y > 0); c = sum(filter(x, y > 0))",
		"cumsum(i)",
		"cumsum(x)",
		"gather(t, u % 1000)",
		"gather(x + 1, i)",
		"gather(index(), i)", // a table that nothing computes
		"softmax(m)",
		"normalize(m)",
		"softmax(w)",
		"row_sum(m * m) + x",
		"row_max(w)",
		"softmax(e)",
		"row_sum(o)",
		"m + x",
		"w * x",
		"exp(x); l = log(y); h = tanh(x); f = floor(y)",
		"uniform(7, 1) + x",
		"random(3)",
		"x / y; q = i / u8_i; r = i % u8_i",
		"bf16(x) ; z = h16 + x",
		"a * x + y",
		"f32(i); j = i32(x); k = u32(x); l = u8(y); n = bool(x); o = u8(i)",
		"x - mean(x)",
		"(x - mean(x)) / sqrt(mean(square(x - mean(x))))",
		"select(x > y, x, y) * f32(b8)",
		"sum(x) where y > 0; v = mean(y) where x > 0",
		"any(x > 2.5); b = all(x > y)",
		"relu(matmul(e, p) + v)",
		"matmul(relu(matmul(e, p) + v), q)",
		"index() + u; i2 = index() * 3",
		"sum(u8_x)",
		"cumsum(filter(i, x > 0))",
		"filter(x, x > 1e30 || x < 1e30); k = filter(x, x != x)",
		"len(filter(x, x > 0))",
		"min(filter(x, x > 0) * 2)",
	} {
		text = strings.ReplaceAll(text, "u8_i", "(i >> 3 | 1)")
		for j, n := range []int64{0, 1, 3, 1023, 1025, 4097, 8192, 16385, 33000} {
			if *deviceName == "emulated" && (i+j)%testkit.Of(4, 36) != 0 {
				continue // each launch is a process
			}
			if n > 5000 && strings.ContainsAny(text, "mwo") &&
				(strings.Contains(text, "(w") || strings.Contains(text, "(o")) {
				continue
			}
			sources := []expr.Source{
				{Name: "x", Type: ir.F32, Rows: n},
				{Name: "y", Type: ir.F32, Rows: n},
				{Name: "h16", Type: ir.BF16, Rows: n},
				{Name: "i", Type: ir.I32, Rows: n},
				{Name: "u", Type: ir.U32, Rows: n},
				{Name: "b8", Type: ir.Bool, Rows: n},
				{Name: "u8_x", Type: ir.U8, Rows: n},
				{Name: "t", Type: ir.F32, Rows: 700},
				{Name: "m", Type: ir.F32, Rows: n, Width: 200},
				{Name: "w", Type: ir.F32, Rows: n, Width: 2051},
				{Name: "o", Type: ir.F32, Rows: n, Width: 7},
				{Name: "e", Type: ir.F32, Rows: n, Width: 8},
				{Name: "p", Type: ir.F32, Rows: 8, Width: 32},
				{Name: "q", Type: ir.F32, Rows: 32, Width: 8},
				{Name: "v", Type: ir.F32, Rows: 1, Width: 32},
				{Name: "a", Type: ir.F32, Scalar: true},
			}
			if n > 30000 && (strings.Contains(text, "m)") || strings.Contains(text, "m ")) ||
				n > 1100 && strings.Contains(text, "w") {
				continue
			}
			p, err := expr.Parse(text, sources...)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			in, scalars := map[string]expr.Array{}, map[string]bool{}
			in[""] = expr.Array{Rows: n}
			for _, src := range sources {
				if !strings.Contains(text, src.Name) {
					continue
				}
				rows := src.Rows
				if src.Scalar {
					scalars[src.Name], rows = true, 1
				}
				in[src.Name] = expr.Array{Data: fill(r, src.Type, rows*max(src.Width, 1)), Rows: rows}
			}
			off := int64(0)
			if n%2 == 1 {
				off = 4
			}
			c.add(t, fmt.Sprintf("%s of %d", text, n), p, in, scalars, off)
		}
	}
	c.run()
}

// TestOddPrograms: random programs that were wrong. With seed 257 a kernel reads an output without
// operands, which another kernel stores. With seed 1385 an index is a table.
func TestOddPrograms(t *testing.T) {
	d, s := open(t)
	c := &checker{d: d, s: s}
	for _, n := range []uint64{257, 1385} {
		p, in, scalars := generate(n)
		c.add(t, fmt.Sprintf("seed %d", n), p, in, scalars, 0)
	}
	c.run()
}
