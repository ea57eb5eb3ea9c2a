package batch

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// bitOf is the obvious reader of packed values: one bit at a time.
func bitOf(p []byte, at int) uint64 { return uint64(p[at/8]>>(at%8)) & 1 }

// The twin reads the same values bit by bit, at all widths and lengths, and unpack does not read
// behind them.
func TestPackedBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for width := range 65 {
		if width > widest && width < 64 {
			continue
		}
		for _, n := range []int{1, 2, 7, 8, 9, 63, 64, 65, 255, 256} {
			want := make([]uint64, n)
			for i := range want {
				want[i] = r.Uint64()
				if width < 64 {
					want[i] &= 1<<width - 1
				}
			}
			p := appendPacked([]byte{0xaa}, want, width)
			if len(p) != 1+packedBytes(n, width) || p[0] != 0xaa {
				t.Fatalf("%d values of %d bits have %d bytes", n, width, len(p)-1)
			}
			p = slices.Clip(bytes.Clone(p[1:]))
			for i, v := range want {
				var twin uint64
				for b := range width {
					twin |= bitOf(p, i*width+b) << b
				}
				if twin != v {
					t.Fatalf("value %d of %d bits: %x, the twin reads %x", i, width, v, twin)
				}
			}
			for _, scale := range []uint64{1, 3} {
				got := make([]uint64, n)
				unpackBits(got, p, width, 5, scale)
				for i, v := range want {
					if got[i] != 5+scale*v {
						t.Fatalf("value %d of %d of %d bits: %x, want %x", i, n, width, got[i], 5+scale*v)
					}
				}
			}
		}
	}
}

// twin is the obvious reader of a block: it follows docs/formats/rows.md step by step.
func twin(t *rapid.T, n int, last *uint64, p []byte) (v []uint64, rest []byte) {
	number := func() (x uint64) {
		for shift := 0; ; shift += 7 {
			b := p[0]
			p = p[1:]
			x |= uint64(b&0x7f) << shift
			if b < 0x80 {
				return x
			}
		}
	}
	signed := func() uint64 {
		x := number()
		if x%2 == 1 {
			return -(x/2 + 1)
		}
		return x / 2
	}
	width, deltas, exceptions := int(p[0]&0x7f), p[0] >= 0x80, int(p[1])
	p = p[2:]
	base, scale := signed(), number()
	for i := range n {
		var x uint64
		for b := range width {
			x |= bitOf(p, i*width+b) << b
		}
		v = append(v, base+scale*x)
	}
	p = p[(n*width+7)/8:]
	places := p[:exceptions]
	p = p[exceptions:]
	for _, at := range places {
		v[at] = base + signed()
	}
	for i := range v {
		if deltas {
			v[i] += *last
		}
		*last = v[i]
	}
	return v, p
}

// drawColumn draws numbers with the patterns of columns: runs, steps with a common divisor, noise,
// and outliers.
func drawColumn(t *rapid.T) []uint64 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	n := rapid.IntRange(0, 3*packBlock).Draw(t, "n")
	step := rapid.SampledFrom([]uint64{0, 1, 300e9, 1 << 63}).Draw(t, "step")
	noise := rapid.SampledFrom([]uint64{1, 2, 1000, 1 << 40, math.MaxUint64}).Draw(t, "noise")
	scale := rapid.SampledFrom([]uint64{1, 7, 1e9}).Draw(t, "scale")
	odd := rapid.SampledFrom([]int{2, 20, 100, 10000}).Draw(t, "odd")
	v, at := make([]uint64, n), r.Uint64()
	for i := range v {
		at += step
		v[i] = at + scale*r.Uint64N(noise)
		if r.IntN(odd) == 0 {
			v[i] = r.Uint64()
		}
	}
	return v
}

// Columns of integers are read back, and the twin reads the same, in any order.
func TestInts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawColumn(t)
		var order permutation
		if rapid.Bool().Draw(t, "ordered") {
			for _, row := range rand.New(rand.NewPCG(3, uint64(len(want)))).Perm(len(want)) {
				order = append(order, uint32(row))
			}
		}
		data := appendInts([]byte("before"), want, len(want), order)[len("before"):]
		// An outlier has its place beside its value.
		if most := len(want)*10 + 24*(len(want)/packBlock+1); len(data) > most {
			t.Fatalf("%d values have %d bytes, want at most %d", len(want), len(data), most)
		}
		got := make([]uint64, len(want))
		rest, err := readInts(got, append(slices.Clip(data), "behind"...), order)
		if err != nil || string(rest) != "behind" || !slices.Equal(got, want) {
			t.Fatalf("rest %q, %v:\n%x, want\n%x", rest, err, got, want)
		}
		var last uint64
		for first := 0; first < len(want); first += packBlock {
			var v []uint64
			n := min(packBlock, len(want)-first)
			v, data = twin(t, n, &last, data)
			for i, x := range v {
				if x != want[order.row(first+i)] {
					t.Fatalf("the twin reads %x as value %d, want %x", x, first+i, want[order.row(first+i)])
				}
			}
		}
		low := make([]uint32, len(want))
		for i, x := range want {
			low[i] = uint32(x)
		}
		got32 := make([]uint32, len(want))
		_, err = readInts(got32, appendInts(nil, low, len(low), nil), nil)
		if err != nil || !slices.Equal(got32, low) {
			t.Fatalf("%v: %x, want %x", err, got32, low)
		}
	})
}

// testFloats packs and reads numbers, and compares their bits.
func testFloats[T float](t *rapid.T, want []T, width int) {
	var data []byte
	rows := len(want) / width
	for c := range width {
		data = appendFloats(data, want, c, width, rows, nil)
	}
	got := make([]T, len(want))
	var err error
	for c := range width {
		if data, err = readFloats(got, c, width, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range want {
		if sortable(v) != sortable(got[i]) {
			t.Fatalf("number %d is %v, want %v", i, got[i], v)
		}
	}
	if len(data) > 0 {
		t.Fatalf("%d bytes are left", len(data))
	}
}

// Columns of floats are read back to the bit: decimal numbers, numbers next to them, and any bits.
func TestFloats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		width := rapid.IntRange(1, 3).Draw(t, "width")
		power := math.Pow(10, float64(rapid.IntRange(0, 20).Draw(t, "places")))
		odd := rapid.SampledFrom([]int{2, 100, 100000}).Draw(t, "odd")
		var double []float64
		var single []float32
		for range width * rapid.IntRange(0, 600).Draw(t, "rows") {
			v := math.Round(r.NormFloat64()*100*power) / power
			if r.IntN(3) == 0 {
				v = math.Nextafter(v, 1e9)
			}
			if r.IntN(odd) == 0 {
				v = math.Float64frombits(r.Uint64())
			}
			double, single = append(double, v), append(single, float32(v))
		}
		testFloats(t, double, width)
		testFloats(t, single, width)
	})
}

// Integers in the order of floats keep the order, and neighbours are next to each other.
func TestSortable(t *testing.T) {
	for _, v := range []float64{math.Inf(-1), -1, -math.SmallestNonzeroFloat64, math.Copysign(0, -1), 0, 1, 1e300} {
		next := math.Nextafter(v, math.Inf(1))
		if v != 0 && sortable(next)-sortable(v) != 1 {
			t.Errorf("%v and %v are %d apart", v, next, sortable(next)-sortable(v))
		}
		if math.Float64bits(unsortable[float64](sortable(v))) != math.Float64bits(v) {
			t.Errorf("%v changes", v)
		}
		if s := float32(v); math.Float32bits(unsortable[float32](sortable(s))) != math.Float32bits(s) {
			t.Errorf("%v changes as float32", v)
		}
	}
}

// Times are written as package time writes them.
func TestStamps(t *testing.T) {
	for _, c := range []struct {
		layout string
		unit   time.Duration
	}{
		{"2006-01-02 15:04:05", time.Second},
		{"2006-01-02T15:04:05", time.Second},
		{"2006-01-02T15:04:05Z", time.Second},
		{"2006-01-02T15:04:05.000Z", time.Millisecond},
		{"2006-01-02 15:04:05.000000", time.Microsecond},
		{"2006-01-02T15:04:05.000000000Z", time.Nanosecond},
	} {
		t.Run(c.layout, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				var texts []string
				var times []int64
				at := r.Int64()
				for range rapid.IntRange(1, 50).Draw(t, "n") {
					if at += r.Int64N(1e11); r.IntN(5) == 0 {
						at = r.Int64() - math.MaxInt64/2
					}
					when := time.Unix(0, at).UTC().Truncate(c.unit)
					texts, times = append(texts, when.Format(c.layout)), append(times, when.UnixNano())
				}
				s := stampOf(texts[0])
				if !s.Matches(texts, times) {
					t.Fatalf("%q has no form, or another than %q: %b", texts, c.layout, s)
				}
				got := make([]string, len(texts))
				if err := s.Write(got, times, textBytes(texts)); err != nil || !slices.Equal(got, texts) {
					t.Fatalf("%v: %q, want %q", err, got, texts)
				}
				if err := s.Write(got, times, textBytes(texts)-1); !errors.Is(err, errCorrupt) {
					t.Fatalf("texts in too few bytes: %v", err)
				}
				if err := s.Write(got, times, textBytes(texts)+1); !errors.Is(err, errCorrupt) {
					t.Fatalf("texts in too many bytes: %v", err)
				}
				times[len(times)-1] += int64(c.unit)
				if s.Matches(texts, times) {
					t.Fatal("another time has the same text")
				}
			})
		})
	}
	for text, ns := range map[string]int64{"1700000000": 1700000000e9, "0": 0, "1700000000123": 1700000000123e6} {
		if s := stampOf(text); !s.Matches([]string{text}, []int64{ns}) {
			t.Errorf("%s has no form", text)
		}
	}
	for text, ns := range map[string]int64{
		"": 0, "-5": -5e9, "01": 1e9, "1970-01-01 00:00:01": 0, "1970-01-01": 0,
		"1970-01-01T00:00:00+00:00": 0, "1970-01-01T00:00:00.5Z": 5e8,
	} {
		if s := stampOf(text); s.Matches([]string{text}, []int64{ns}) {
			t.Errorf("%q is taken for %d", text, ns)
		}
	}
}

// readTexts are read back, whatever they share.
func TestTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.SampledFrom([]string{
			"", "a", "ab", "abc", "b", "2026-01-01", "2026-01-02", "é",
		}), 0, 300).Draw(t, "texts")
		got := make([]string, len(want))
		rest, err := readTexts(got, textBytes(want), appendTexts(nil, want, nil), nil)
		if err != nil || len(rest) > 0 || !slices.Equal(got, want) {
			t.Fatalf("%d left, %v: %q, want %q", len(rest), err, got, want)
		}
	})
}

// readTexts that share much do not grow beyond the bytes that the caller allows.
func TestTextsBounded(t *testing.T) {
	texts := make([]string, 1000)
	for i := range texts {
		texts[i] = strings.Repeat("a", 10_000)
	}
	data := appendTexts(nil, texts, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readTexts(make([]string, len(texts)), 20_000, data, nil)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errCorrupt) || grown > 1<<20 {
		t.Errorf("%d bytes say 10 MB of texts: %v, %d bytes allocated", len(data), err, grown)
	}
}

// FuzzColumns reads any bytes: values or an ErrCorrupt, no panic, and nothing behind the bytes.
func FuzzColumns(f *testing.F) {
	f.Add(uint16(300), appendInts(nil, []uint64{1, 2, 3, 1 << 60}, 4, nil))
	f.Add(uint16(3), appendFloats(nil, []float64{1.5, math.Pi, 1e300}, 0, 1, 3, nil))
	f.Add(uint16(3), appendFloats(nil, []float64{1.5, 2.25, 3.1}, 0, 1, 3, nil))
	f.Add(uint16(2), appendTexts(nil, []string{"ab", "ac"}, nil))
	f.Fuzz(func(t *testing.T, n uint16, data []byte) {
		n %= 1000
		data = slices.Clip(data)
		check := func(rest []byte, err error) {
			if err != nil && !errors.Is(err, errCorrupt) {
				t.Fatal(err)
			}
			if err == nil && !bytes.HasSuffix(data, rest) {
				t.Fatal("the rest is not the end of the data")
			}
		}
		check(readInts(make([]int64, n), data, nil))
		check(readFloats(make([]float64, n), 0, 1, data, nil))
		check(readFloats(make([]float32, 3*int(n)), 2, 3, data, nil))
		check(readTexts(make([]string, n), 100, data, nil))
		if len(data) > 0 {
			check(nil, stamp(data[0]).Write(make([]string, n), make([]int64, n), len(data)))
		}
	})
}
