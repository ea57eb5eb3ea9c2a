package arrays_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/arrays"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var deviceName = flag.String("device", "host", "device of the tests: host or cuda:0")

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func open(t testing.TB) device.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), *deviceName, cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return d
}

// sizes are elements of the arrays of the tests: around a lane, a span, a sort of a block.
var sizes = [][]int{
	{},
	{0},
	{1},
	{3, 0, 5, 255, 256, 257},
	{2047, 2048, 2049, 1},
	{4095, 4096, 4097},
	{100_003, 7, 70_000},
	{1_300_000},
}

// withSet calls fn with a set of random arrays of each size, and closes it.
func withSet[T device.Scalar](t *testing.T, d device.Device, fn func(s *arrays.Set, all [][]T)) {
	t.Helper()
	var zero T
	e := map[string]arrayset.Element{
		"float32": arrayset.F32, "float64": arrayset.F64, "int32": arrayset.I32, "int64": arrayset.I64,
		"uint32": arrayset.U32, "uint64": arrayset.U64,
	}[fmt.Sprintf("%T", zero)]
	r := rand.New(rand.NewPCG(5, 6))
	for _, counts := range sizes {
		if slices.Max(append(counts, 0)) > 1_000_000 && e != arrayset.F32 && !testkit.Long() {
			continue // a second for each type
		}
		var parts [][]byte
		var all [][]T
		for _, n := range counts {
			parts = append(parts, launches.Elements(r, e, n))
			all = append(all, device.Of[T](parts[len(parts)-1]))
		}
		s, err := arrays.New(d, e, parts...)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		fn(s, all)
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// TestStats: the least and the largest element and exact sums, as package slices and math/big have
// them.
func TestStats(t *testing.T) {
	d := open(t)
	testStats[float32](t, d)
	testStats[float64](t, d)
	testStats[int32](t, d)
	testStats[int64](t, d)
	testStats[uint32](t, d)
	testStats[uint64](t, d)
}

func testStats[T float32 | float64 | int32 | int64 | uint32 | uint64](t *testing.T, d device.Device) {
	t.Helper()
	withSet(t, d, func(s *arrays.Set, all [][]T) {
		got, err := s.Stats(t.Context())
		if err != nil || len(got) != len(all) {
			t.Fatalf("Stats: %d, %v; want %d", len(got), err, len(all))
		}
		for i, a := range all {
			sum, nans := new(big.Int), uint64(0)
			var some []T
			for _, v := range a {
				if v != v {
					nans++
					continue
				}
				some = append(some, v)
				if whole, ok := new(big.Int).SetString(fmt.Sprint(v), 10); ok {
					sum.Add(sum, whole)
				}
			}
			if got[i].NaN != nans || got[i].Sum != nil && got[i].Sum.Cmp(sum) != 0 {
				t.Errorf("%d of %T: %d NaN, sum %v; want %d, %v", len(a), a, got[i].NaN, got[i].Sum, nans, sum)
			}
			if len(some) == 0 {
				continue
			}
			least, most := some[0], some[0]
			for _, v := range some {
				least, most = min(least, v), max(most, v)
			}
			if l, m := got[i].Least.String(), got[i].Most.String(); l != fmt.Sprint(least) || m != fmt.Sprint(most) {
				t.Errorf("%d of %T: least %s, most %s; want %v, %v", len(a), a, l, m, least, most)
			}
		}
	})
}

// plainSum adds in the order of the definition.
func plainSum(all []float64) float64 {
	var blocks []float64
	for at := 0; at == 0 || at < len(all); at += 4096 {
		var lanes [256]float64
		for i, x := range all[at:min(at+4096, len(all))] {
			lanes[i%256] += x
		}
		for half := 128; half > 0; half /= 2 {
			for i := range half {
				lanes[i] += lanes[i+half]
			}
		}
		blocks = append(blocks, lanes[0])
	}
	if len(blocks) > 1 {
		return plainSum(blocks)
	}
	return blocks[0]
}

// TestSums: the additions have the defined order, to the bit, which numbers that cancel show.
func TestSums(t *testing.T) {
	d := open(t)
	check := func(s *arrays.Set, all [][]float64) {
		got, err := s.Sums(t.Context())
		if err != nil || len(got) != len(all) {
			t.Fatalf("Sums: %d, %v; want %d", len(got), err, len(all))
		}
		for i, a := range all {
			for k, v := range a { // sums with NaN and infinities tell little
				if v != v || math.IsInf(v, 0) {
					if got[i] == got[i] && !math.IsInf(got[i], 0) {
						t.Errorf("sum %v of %d with element %d %v", got[i], len(a), k, v)
					}
					return
				}
			}
			if want := plainSum(a); math.Float64bits(got[i]) != math.Float64bits(want) {
				t.Errorf("sum of %d: %v, want %v", len(a), got[i], want)
			}
		}
	}
	withSet(t, d, func(s *arrays.Set, all [][]float64) { check(s, all) })
	withSet(t, d, func(s *arrays.Set, all [][]float32) {
		wide := make([][]float64, len(all))
		for i, a := range all {
			for _, v := range a {
				wide[i] = append(wide[i], float64(v))
			}
		}
		check(s, wide)
	})
	// Without anything but numbers.
	r := rand.New(rand.NewPCG(7, 8))
	long := make([]float64, 17_000_000)
	for i := range long {
		long[i] = r.NormFloat64()
	}
	short := long[:4098]
	s, err := arrays.New(d, arrayset.F64, device.Bytes(long), device.Bytes(short), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	defer s.Close()
	check(s, [][]float64{long, short, {}})
}

// TestHistograms: counts of few and of many bins equal the counts of a loop.
func TestHistograms(t *testing.T) {
	d := open(t)
	testHistograms[float32](t, d)
	testHistograms[float64](t, d)
	testHistograms[int32](t, d)
	testHistograms[int64](t, d)
	testHistograms[uint32](t, d)
	testHistograms[uint64](t, d)
}

func testHistograms[T float32 | float64 | int32 | int64 | uint32 | uint64](t *testing.T, d device.Device) {
	t.Helper()
	withSet(t, d, func(s *arrays.Set, all [][]T) {
		bins := make([]arrays.Bins, len(all))
		for i := range bins {
			bins[i] = []arrays.Bins{{-1, 2, 10}, {-1e9, 1e9, 5000}, {0, 1e18, 3}, {0, 1e-3, 4096}}[i%4]
		}
		got, err := s.Histograms(t.Context(), bins)
		if err != nil {
			t.Fatalf("Histograms: %v", err)
		}
		for i, b := range bins {
			want := arrays.Histogram{Counts: make([]uint64, b.Count)}
			scale := float64(b.Count) / (b.Max - b.Min)
			for _, v := range all[i] {
				switch x := float64(v); {
				case x != x:
					want.NaN++
				case x < b.Min:
					want.Below++
				case x > b.Max:
					want.Above++
				default:
					want.Counts[min(int((x-b.Min)*scale), b.Count-1)]++
				}
			}
			if g := got[i]; !slices.Equal(g.Counts, want.Counts) || g.Below != want.Below || g.Above != want.Above ||
				g.NaN != want.NaN {
				t.Errorf("%d of %T by %+v: below %d, above %d, NaN %d; want %d, %d, %d, or other counts", len(all[i]),
					all[i], b, g.Below, g.Above, g.NaN, want.Below, want.Above, want.NaN)
			}
		}
	})
}

// TestSort: the order is the order of slices.SortStableFunc with NaN last.
func TestSort(t *testing.T) {
	d := open(t)
	testSort[float32](t, d)
	testSort[float64](t, d)
	testSort[int32](t, d)
	testSort[int64](t, d)
	testSort[uint32](t, d)
	testSort[uint64](t, d)
}

func testSort[T float32 | float64 | int32 | int64 | uint32 | uint64](t *testing.T, d device.Device) {
	t.Helper()
	withOrder := true
	withSet(t, d, func(s *arrays.Set, all [][]T) {
		descending := make([]bool, len(all))
		for i := range descending {
			descending[i] = i%2 == 1
		}
		withOrder = !withOrder || len(all) > 1
		got, err := s.Sort(t.Context(), descending, withOrder)
		if err != nil {
			t.Fatalf("Sort: %v", err)
		}
		for i, a := range all {
			order := make([]uint32, len(a))
			for k := range order {
				order[k] = uint32(k)
			}
			slices.SortStableFunc(order, func(p, q uint32) int {
				x, y := a[p], a[q]
				switch {
				case x != x || y != y:
					return map[bool]int{true: 1}[x != x] - map[bool]int{true: 1}[y != y]
				case x == y:
					return 0
				case (x < y) != descending[i]:
					return -1
				}
				return 1
			})
			if withOrder && !slices.Equal(got[i].Order, order) || !withOrder && got[i].Order != nil {
				t.Errorf("order of %d of %T, descending %v, is wrong", len(a), a, descending[i])
			}
			want := make([]T, len(a))
			for k, from := range order {
				want[k] = a[from]
			}
			if !slices.Equal(device.Bytes(want), got[i].Data) && len(want) > 0 {
				t.Errorf("%d of %T, descending %v, are not sorted", len(a), a, descending[i])
			}
		}
	})
}

// TestCancelled: a method whose context has ended returns, and Close waits for its work.
func TestCancelled(t *testing.T) {
	d := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := arrays.New(d, arrayset.F32, make([]byte, 4<<20))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	defer s.Close()
	if _, err := s.Sort(ctx, []bool{false}, true); !errors.Is(err, context.Canceled) {
		t.Errorf("Sort: %v; want that it was cancelled", err)
	}
}

// BenchmarkArrays measures each method over one array of 64 Mi elements, with both copies.
func BenchmarkArrays(b *testing.B) {
	d := open(b)
	r := rand.New(rand.NewPCG(1, 1))
	data := make([]float32, 64<<20)
	for i := range data {
		data[i] = float32(r.NormFloat64())
	}
	for name, fn := range map[string]func(*arrays.Set) error{
		"sum":   func(s *arrays.Set) error { _, err := s.Sums(b.Context()); return err },
		"stats": func(s *arrays.Set) error { _, err := s.Stats(b.Context()); return err },
		"histogram": func(s *arrays.Set) error {
			_, err := s.Histograms(b.Context(), []arrays.Bins{{-3, 3, 1000}})
			return err
		},
		"sort": func(s *arrays.Set) error { _, err := s.Sort(b.Context(), []bool{false}, true); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(data)))
			for b.Loop() {
				s, err := arrays.New(d, arrayset.F32, device.Bytes(data))
				if err == nil {
					err = errors.Join(fn(s), s.Close())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
