//go:build cuda

package driver

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// BenchmarkGemm multiplies square matrices of random elements and reports TFLOP/s by the median of
// device times between events, which is how the opponent torch_bench.py measures: cublas through
// the contract, tiled without the library, and the host device on a product that it can do in a
// moment. Each compares elements with a product in float64.
func BenchmarkGemm(b *testing.B) {
	for _, c := range []struct {
		name string
		elem device.Elem
		n    int
		open func(b *testing.B) device.Device
	}{
		{"cublas/f32/4096", device.F32, 4096, func(b *testing.B) device.Device { return openGPU(b, Options{}) }},
		{"cublas/bf16/8192", device.BF16, 8192, func(b *testing.B) device.Device { return openGPU(b, Options{}) }},
		{"tiled/f32/4096", device.F32, 4096, func(b *testing.B) device.Device {
			return openGPU(b,
				Options{CUBLAS: []string{}})
		}},
		{"tiled/bf16/4096", device.BF16, 4096, func(b *testing.B) device.Device {
			return openGPU(b,
				Options{CUBLAS: []string{}})
		}},
		{"host/f32/2048", device.F32, 2048, func(b *testing.B) device.Device {
			d, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			return d
		}},
	} {
		b.Run(c.name, func(b *testing.B) { benchGemm(b, c.open(b), c.elem, c.n) })
	}
}

func benchGemm(b *testing.B, d device.Device, elem device.Elem, n int) {
	b.Helper()
	ctx := context.Background()
	var all []interface{ Close() error }
	defer func() {
		for _, h := range all {
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	}()
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	all = append(all, s)
	r := rand.New(rand.NewPCG(1, 2))
	var m [3]device.Matrix
	var values [2][]float32
	for i := range m {
		mem, err := d.Alloc(int64(n*n)*elem.Bytes(), "bench")
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, mem)
		m[i] = device.Matrix{Buffer: mem, Rows: n, Cols: n, Elem: elem}
		if i == 2 {
			break
		}
		values[i] = make([]float32, n*n)
		for k := range values[i] { // like a normal distribution, and fast
			values[i][k] = float32(r.Uint32()>>8)*0x1p-23 + float32(r.Uint32()>>8)*0x1p-23 - 2
		}
		data := device.Bytes(values[i])
		if elem == device.BF16 {
			narrow := make([]uint16, n*n)
			for k, v := range values[i] {
				narrow[k] = device.ToBF16(v)
				values[i][k] = device.FromBF16(narrow[k])
			}
			data = device.Bytes(narrow)
		}
		if err := mem.Write(0, data); err != nil {
			b.Fatal(err)
		}
	}
	var events [2]device.Event
	for i := range events {
		if events[i], err = d.NewEvent(); err != nil {
			b.Fatal(err)
		}
		all = append(all, events[i])
	}
	var took []int64
	medians(b, func() error {
		if err := errors.Join(s.Record(events[0]), s.Gemm(1, m[0], m[1], 0, m[2]), s.Record(events[1]),
			s.Sync(ctx)); err != nil {
			return err
		}
		t, err := events[1].Since(events[0])
		took = append(took, t.Nanoseconds())
		return err
	})
	b.ReportMetric(2*math.Pow(float64(n), 3)/float64(median(took[min(3, len(took)-1):]))/1e3, "TFLOP/s")
	row := make([]byte, n*int(elem.Bytes()))
	for range 16 {
		i := r.IntN(n)
		if err := m[2].Buffer.Read(int64(i*len(row)), row); err != nil {
			b.Fatal(err)
		}
		for range 16 {
			j := r.IntN(n)
			var sum, size float64
			for k := range n {
				v := float64(values[0][i*n+k]) * float64(values[1][k*n+j])
				sum, size = sum+v, size+math.Abs(v)
			}
			var got float64
			bound := size * float64(n) * 0x1p-24
			if elem == device.BF16 {
				got = float64(device.FromBF16(device.Of[uint16](row)[j]))
				bound = size*float64(n)*0x1p-22 + math.Abs(sum)*0x1p-8
			} else {
				got = float64(device.Of[float32](row)[j])
			}
			if !(math.Abs(got-sum) <= bound) {
				b.Fatalf("element %d, %d is %v, want %v within %g", i, j, got, sum, bound)
			}
		}
	}
}
