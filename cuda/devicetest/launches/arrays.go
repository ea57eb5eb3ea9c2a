package launches

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
)

// ArrayKernels returns the kernels that RandomArrays knows, in a fixed order.
func ArrayKernels() (all []string) {
	for _, name := range kernels.Names() {
		if strings.HasPrefix(name, "array_") {
			all = append(all, name)
		}
	}
	return all
}

// Arrays is a launch of a kernel of package arrayset, graphset, gridset, languageset, quantumset,
// spaceset or swarmset. What it must leave is what the host device leaves.
type Arrays struct {
	Params []Param
	// Out marks the parameters that the kernel writes.
	Out []bool
}

func (a *Arrays) in(mem []byte) *Arrays { return a.memory(mem, false) }

func (a *Arrays) out(mem []byte) *Arrays { return a.memory(mem, true) }

func (a *Arrays) memory(mem []byte, out bool) *Arrays {
	if mem == nil {
		mem = []byte{} // an empty buffer, and no scalar
	}
	a.Params, a.Out = append(a.Params, Param{Mem: mem}), append(a.Out, out)
	return a
}

func (a *Arrays) scalar(v device.Arg) *Arrays {
	a.Params, a.Out = append(a.Params, Param{Arg: v}), append(a.Out, false)
	return a
}

// On makes a launch on a device, in a fixed shape, and returns the memory of each parameter after
// it; nil for scalars.
func On(t testing.TB, d device.Device, kernel string, params []Param) [][]byte {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := d.NewStream()
	ok(err)
	args, buffers := make([]device.Arg, len(params)), make([]device.Buffer, len(params))
	for i, p := range params {
		if args[i] = p.Arg; p.Arg.Kind() == 0 {
			buffers[i], err = d.Alloc(int64(len(p.Mem)), "devicetest")
			ok(err)
			ok(buffers[i].Write(0, p.Mem))
			args[i] = device.Ptr(buffers[i])
		}
	}
	ok(s.Launch(FindKernel(t, d, kernel), device.Geometry{Grid: 5, Block: 64}, args...))
	Wait(t, s)
	after := make([][]byte, len(buffers))
	for i, b := range buffers {
		if b != nil {
			after[i] = Download(t, b)
			ok(b.Close())
		}
	}
	ok(s.Close())
	return after
}

// Named returns the arguments of a launch by name, with the content of memory before it, or the one
// after it, which On returns.
func Named[A any, P kernels.Bound[A]](params []Param, after [][]byte) *A {
	named, values := new(A), make([]kernels.Value, len(params))
	for i, p := range params {
		if values[i] = (kernels.Value{Mem: p.Mem, Bits: p.Arg.Bits()}); after != nil {
			values[i].Mem = after[i]
		}
	}
	P(named).Bind(values)
	return named
}

// RandomArrays returns a random launch of a kernel of package arrayset over n elements in all.
func RandomArrays(r *rand.Rand, kernel string, n int) *Arrays {
	a := &Arrays{}
	at := strings.LastIndexByte(kernel, '_')
	family, suffix := kernel[:at], kernel[at+1:]
	e := arrayset.Element(suffix)
	if suffix == "32" || suffix == "64" {
		e = arrayset.Element("u" + suffix)
	}
	size := 8
	if strings.HasSuffix(suffix, "32") {
		size = 4
	}
	switch family {
	case "array_stats":
		s := cut(r, n, n+1)
		return a.in(Elements(r, e, n)).in(spansOf(s, nil)).scalar(device.Uint32(uint32(len(s)))).
			out(Poisoned(8 * arrayset.StatsWords * len(s)))
	case "array_sum":
		s := cut(r, n, arrayset.SumSpan)
		return a.in(Elements(r, e, n)).in(spansOf(s, nil)).scalar(device.Uint32(uint32(len(s)))).
			out(Poisoned(8 * len(s)))
	case "array_histogram":
		return randomHistogram(r, a, e, n)
	case "array_keys":
		s := cut(r, n, n+1)
		return a.in(Elements(r, e, n)).in(spansOf(s, arrayOf(r, s))).scalar(device.Uint32(uint32(len(s)))).
			out(Poisoned(size * n)).out(Poisoned(4 * n)).out(words(0, math.MaxUint64))
	case "array_sort_spans":
		s := cut(r, n, arrayset.SortSpan)
		return a.out(few(r, size, n)).out(places(n)).in(spansOf(s, nil)).scalar(device.Uint32(uint32(len(s))))
	case "array_digits":
		share, tiles := tiles(r, n)
		shift := 8 * r.Uint32N(uint32(size))
		return a.in(few(r, size, n)).scalar(device.Uint64(uint64(n))).scalar(device.Uint32(shift)).
			scalar(device.Uint64(share)).scalar(device.Uint32(tiles)).
			out(Poisoned(4 * arrayset.Digits * int(tiles)))
	case "array_scatter":
		return randomScatter(r, a, size, n)
	case "array_gather":
		s := cut(r, n, n+1)
		order := make([]uint32, n)
		for _, span := range s {
			for i, p := range r.Perm(span[1]) {
				order[span[0]+i] = uint32(p)
			}
		}
		return a.in(few(r, size, n)).in(own(order)).in(spansOf(s, func(i int) (uint64, uint64) {
			return uint64(s[i][0]), 0
		})).scalar(device.Uint32(uint32(len(s)))).out(Poisoned(size * n))
	case "array_fold":
		arrays := 1 + r.IntN(5)
		stride := n + r.IntN(3)
		return a.in(Elements(r, e, arrays*stride)).scalar(device.Uint64(uint64(n))).
			scalar(device.Uint64(uint64(stride))).scalar(device.Uint32(uint32(arrays))).
			out(Poisoned(int(e.Bytes()) * n))
	}
	counts := make([]uint32, 4*(n/4)) // array_starts
	for i := range counts {
		counts[i] = r.Uint32N(1000)
	}
	return a.out(own(counts)).scalar(device.Uint32(uint32(len(counts))))
}

func randomHistogram(r *rand.Rand, a *Arrays, e arrayset.Element, n int) *Arrays {
	s := cut(r, n, n+1)
	table := make([]uint64, 0, arrayset.HistogramWords*len(s))
	bins := 0
	for i, span := range s {
		b := []int{1, 7, 256, 5000}[r.IntN(4)]
		least, most := -2.0, 3.5
		if r.IntN(2) == 0 {
			least, most = -1e18, 1e19
		}
		table = append(table, uint64(span[0]), uint64(span[1]), math.Float64bits(least), math.Float64bits(most),
			math.Float64bits(float64(b)/(most-least)), uint64(b), uint64(bins), uint64(3*i))
		if r.IntN(2) == 0 { // otherwise the next span counts into the same bins
			bins += b
		}
	}
	bins += 5000
	return a.in(Elements(r, e, n)).in(own(table)).scalar(device.Uint32(uint32(len(s)))).
		out(make([]byte, 8*bins)).out(make([]byte, 8*3*len(s)))
}

// randomScatter makes a launch whose starts match its keys.
func randomScatter(r *rand.Rand, a *Arrays, size, n int) *Arrays {
	share, tiles := tiles(r, n)
	keys := few(r, size, n)
	shift := 8 * r.IntN(size)
	counts := make([]uint32, arrayset.Digits*int(tiles))
	for i := range n {
		counts[int(keys[size*i+shift/8])*int(tiles)+i/int(share)]++
	}
	var sum uint32
	for i, c := range counts {
		counts[i] = sum
		sum += c
	}
	return a.in(keys).in(places(n)).scalar(device.Uint64(uint64(n))).scalar(device.Uint32(uint32(shift))).
		scalar(device.Uint64(share)).scalar(device.Uint32(tiles)).in(own(counts)).
		out(Poisoned(size * n)).out(Poisoned(4 * n))
}

// Elements returns n random elements as bytes: of all magnitudes, with both zeros, infinities and
// NaN, and with many equal ones.
func Elements(r *rand.Rand, e arrayset.Element, n int) []byte {
	switch e {
	case arrayset.F32:
		return own(fill(n, func() float32 { return float32(special(r)) }))
	case arrayset.F64:
		return own(fill(n, func() float64 { return special(r) }))
	}
	mem := make([]byte, int(e.Bytes())*n)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	if r.IntN(2) == 0 { // small numbers
		for i := range mem {
			if i%int(e.Bytes()) != 0 {
				mem[i] = 0
			}
		}
	}
	return mem
}

func special(r *rand.Rand) float64 {
	switch r.IntN(20) {
	case 0:
		return math.NaN()
	case 1:
		return math.Inf(1 - 2*r.IntN(2))
	case 2:
		return math.Copysign(0, float64(1-2*r.IntN(2)))
	case 3:
		return float64(r.IntN(5) - 2)
	}
	return r.NormFloat64() * math.Exp(float64(r.IntN(40)-20))
}

func fill[T any](n int, fn func() T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = fn()
	}
	return all
}

// own returns the bytes of a slice that nobody else has.
func own[T device.Scalar](s []T) []byte { return device.Bytes(s) }

func words(v ...uint64) []byte { return own(v) }

// few returns keys of a size as bytes, in which digits are often equal.
func few(r *rand.Rand, size, n int) []byte {
	mem := make([]byte, size*n)
	for i := range mem {
		if mem[i] = byte(r.Uint32()); r.IntN(3) == 0 {
			mem[i] = 7
		}
	}
	return mem
}

func places(n int) []byte {
	i := uint32(0)
	return own(fill(n, func() uint32 { i++; return i - 1 }))
}

func tiles(r *rand.Rand, n int) (share uint64, count uint32) {
	share = uint64(1 + r.IntN(max(1, n)))
	if n > 2000 {
		share = max(share, uint64(n)/50)
	}
	return share, uint32((uint64(n) + share - 1) / share)
}

// cut divides n elements into spans {first, elements} of bounded length. Spans may be empty.
func cut(r *rand.Rand, n, most int) (spans [][2]int) {
	for at := 0; at < n; {
		size := min(r.IntN(min(most, n)+1), n-at)
		if n > 2000 {
			size = min(max(size, most/8, n/100), n-at, most)
		}
		spans = append(spans, [2]int{at, size})
		at += size
	}
	return spans
}

// arrayOf returns the array of each span: it begins with the span, or with one before it.
func arrayOf(r *rand.Rand, spans [][2]int) func(i int) (base, flag uint64) {
	base, flag := uint64(0), uint64(0)
	return func(i int) (uint64, uint64) {
		if r.IntN(3) > 0 {
			base, flag = uint64(spans[i][0]), r.Uint64N(2)
		}
		return base, flag
	}
}

// spansOf returns a table of spans as bytes; more adds two words to each.
func spansOf(spans [][2]int, more func(i int) (uint64, uint64)) []byte {
	var table []uint64
	for i, s := range spans {
		table = append(table, uint64(s[0]), uint64(s[1]))
		if more != nil {
			base, flag := more(i)
			table = append(table, base, flag)
		}
	}
	return own(table)
}
