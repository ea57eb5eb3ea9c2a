package twins

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
)

type number interface {
	float32 | float64 | int32 | int64 | uint32 | uint64
}

// key is a key of the size of an element.
type key interface{ uint32 | uint64 }

func init() {
	register(arrayset.F32, func(v float32) uint32 { return floatKey32(math.Float32bits(v)) })
	register(arrayset.F64, func(v float64) uint64 { return floatKey64(math.Float64bits(v)) })
	register(arrayset.I32, func(v int32) uint32 { return uint32(v) ^ 1<<31 })
	register(arrayset.I64, func(v int64) uint64 { return uint64(v) ^ 1<<63 })
	register(arrayset.U32, func(v uint32) uint32 { return v })
	register(arrayset.U64, func(v uint64) uint64 { return v })
	Register(arrayset.Sum(arrayset.F32), sumArray[float32])
	Register(arrayset.Sum(arrayset.F64), sumArray[float64])
	registerKeys[uint32](arrayset.U32)
	registerKeys[uint64](arrayset.U64)
	Register(arrayset.Starts, arrayStarts)
}

func register[T number, K key](e arrayset.Element, keyOf func(T) K) {
	Register(arrayset.Stats(e), func(b *Block, a *arrayset.StatsBound) { stats(b, a, keyOf) })
	Register(arrayset.Histogram(e), histogram[T])
	Register(arrayset.Keys(e), func(b *Block, a *arrayset.KeysBound) { keys(b, a, keyOf) })
	Register(arrayset.Fold(e), foldArray[T])
}

func registerKeys[K key](e arrayset.Element) {
	Register(arrayset.SortSpans(e), sortSpans[K])
	Register(arrayset.CountDigits(e), digits[K])
	Register(arrayset.Scatter(e), scatter[K])
	Register(arrayset.Gather(e), gatherArray[K])
}

// floatKey32 returns the key of the bits of a float32 that is not NaN.
func floatKey32(v uint32) uint32 {
	if v>>31 != 0 {
		return ^v
	}
	return v | 1<<31
}

// floatKey64 returns the key of the bits of a float64 that is not NaN.
func floatKey64(v uint64) uint64 {
	if v>>63 != 0 {
		return ^v
	}
	return v | 1<<63
}

// spans calls fn with each span of the block: the words of a table of n spans, each of width words.
func spans(b *Block, table []uint64, n uint32, words int, fn func(s int, span []uint64)) {
	for s := b.Index; s < int(n); s += b.Grid {
		fn(s, table[words*s:][:words:words])
	}
}

func part[T any](all []T, span []uint64) []T {
	return all[span[arrayset.SpanFirst]:][:span[arrayset.SpanCount]]
}

// stats is the twin of stats.cu. The type of the elements decides what the third and the fourth
// word of a result are; the switch is on constants of the instance.
func stats[T number, K key](b *Block, a *arrayset.StatsBound, keyOf func(T) K) {
	in := device.Of[T](a.In)
	var zero T
	_, f32 := any(zero).(float32)
	_, f64 := any(zero).(float64)
	_, u64 := any(zero).(uint64)
	float := f32 || f64
	spans(b, a.Spans, a.N, arrayset.SpanWords, func(s int, span []uint64) {
		least, most := uint64(math.MaxUint64), uint64(0)
		var low, high uint64
		for _, v := range part(in, span) {
			switch {
			case v != v:
				low++
				continue
			case float:
			case u64:
				low += uint64(uint32(v))
				high += uint64(v) >> 32
			default:
				low += uint64(uint32(v))
				high += uint64(int64(v) >> 32)
			}
			k := uint64(keyOf(v))
			least, most = min(least, k), max(most, k)
		}
		to := a.Out[arrayset.StatsWords*s:]
		to[arrayset.StatsLeast], to[arrayset.StatsMost] = least, most
		to[arrayset.StatsLow], to[arrayset.StatsHigh] = low, high
	})
}

// nan is the NaN of all sums.
const nan = 0x7ff8000000000001

// sumArray is the twin of sum.cu. Its order of additions is the one that the kernel documents, so
// the bits are the same.
func sumArray[T float32 | float64](b *Block, a *arrayset.SumBound) {
	in, out := device.Of[T](a.In), device.Of[uint64](device.Bytes(a.Out))
	spans(b, a.Spans, a.N, arrayset.SpanWords, func(s int, span []uint64) {
		var lanes [arrayset.SumLanes]float64
		all := part(in, span)
		for len(all) >= len(lanes) {
			for i, x := range all[:len(lanes)] {
				lanes[i] += float64(x)
			}
			all = all[len(lanes):]
		}
		for i, x := range all {
			lanes[i] += float64(x)
		}
		for half := len(lanes) / 2; half > 0; half /= 2 {
			for i := range half {
				lanes[i] += lanes[i+half]
			}
		}
		out[s] = math.Float64bits(lanes[0])
		if lanes[0] != lanes[0] {
			out[s] = nan
		}
	})
}

// histogram is the twin of histogram.cu. It counts a span by itself and adds the counts atomically,
// because spans of other blocks may have the same bins.
func histogram[T number](b *Block, a *arrayset.HistogramBound) {
	in := device.Of[T](a.In)
	spans(b, a.Spans, a.N, arrayset.HistogramWords, func(_ int, span []uint64) {
		least, most := math.Float64frombits(span[arrayset.SpanLeast]), math.Float64frombits(span[arrayset.SpanMost])
		scale, bins := math.Float64frombits(span[arrayset.SpanScale]), span[arrayset.SpanBins]
		to := a.Counts[span[arrayset.SpanCounts]:][:bins]
		local := make([]uint64, bins)
		var out [3]uint64
		for _, v := range part(in, span) {
			switch x := float64(v); {
			case x >= least && x <= most:
				local[min(uint64((x-least)*scale), bins-1)]++
			case x < least:
				out[0]++
			case x > most:
				out[1]++
			default:
				out[2]++
			}
		}
		for i, n := range local {
			if n > 0 {
				atomic.AddUint64(&to[i], n)
			}
		}
		for i, n := range out {
			atomic.AddUint64(&a.Outside[span[arrayset.SpanOutside]:][i], n)
		}
	})
}

// keys is the twin of keys.cu. The two words of the bits are shared by all blocks, so they are
// combined atomically once for each block.
func keys[T number, K key](b *Block, a *arrayset.KeysBound, keyOf func(T) K) {
	in, out := device.Of[T](a.In), device.Of[K](a.Keys)
	set, always := uint64(0), uint64(math.MaxUint64)
	spans(b, a.Spans, a.N, arrayset.KeySpanWords, func(_ int, span []uint64) {
		first, base := span[arrayset.SpanFirst], span[arrayset.SpanBase]
		for i, v := range part(in, span) {
			k := ^K(0) // of a NaN
			if v == v {
				if v == 0 {
					v = 0 // both zeros have one key
				}
				if k = keyOf(v); span[arrayset.SpanDescending] != 0 {
					k = ^k
				}
			}
			at := first + uint64(i)
			out[at], a.Order[at] = k, uint32(at-base)
			set, always = set|uint64(k), always&uint64(k)
		}
	})
	atomic.OrUint64(&a.Bits[0], set)
	atomic.AndUint64(&a.Bits[1], always)
}

// sortSpans is the twin of sort_spans.cu. No two pairs are equal, because places differ, so every
// sort gives the order of the bitonic one.
func sortSpans[K key](b *Block, a *arrayset.SortSpansBound) {
	keys := device.Of[K](a.Keys)
	type pair struct {
		key   K
		place uint32
	}
	var pairs []pair
	spans(b, a.Spans, a.N, arrayset.SpanWords, func(_ int, span []uint64) {
		k, o := part(keys, span), part(a.Order, span)
		pairs = pairs[:0]
		for i := range k {
			pairs = append(pairs, pair{k[i], o[i]})
		}
		slices.SortFunc(pairs, func(a, b pair) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.place, b.place))
		})
		for i, p := range pairs {
			k[i], o[i] = p.key, p.place
		}
	})
}

// digits is the twin of digits.cu. The last tiles may be empty.
func digits[K key](b *Block, a *arrayset.DigitsBound) {
	keys, n, share, tiles := device.Of[K](a.Keys), a.N, a.Share, uint64(a.Tiles)
	for t := uint64(b.Index); t < tiles; t += uint64(b.Grid) {
		var local [arrayset.Digits]uint32
		for _, k := range keys[min(n, t*share):min(n, (t+1)*share)] {
			local[k>>a.Shift&0xff]++
		}
		for d, c := range local {
			a.Counts[uint64(d)*tiles+t] = c
		}
	}
}

// arrayStarts is the twin of starts.cu. Only the first block works, as on a GPU.
func arrayStarts(b *Block, a *arrayset.StartsBound) {
	if b.Index > 0 {
		return
	}
	var sum uint32
	for i, c := range a.Counts[:a.N] {
		a.Counts[i] = sum
		sum += c
	}
}

// scatter is the twin of scatter.cu. It moves the keys of a tile one after the other, so keys of
// one digit keep their order, for which the kernel ranks them.
func scatter[K key](b *Block, a *arrayset.ScatterBound) {
	keys, keysOut, n, share, tiles := device.Of[K](a.Keys), device.Of[K](a.KeysOut), a.N, a.Share, uint64(a.Tiles)
	for t := uint64(b.Index); t < tiles; t += uint64(b.Grid) {
		var at [arrayset.Digits]uint32
		for d := range at {
			at[d] = a.Starts[uint64(d)*tiles+t]
		}
		for i := min(n, t*share); i < min(n, (t+1)*share); i++ {
			to := &at[keys[i]>>a.Shift&0xff]
			keysOut[*to], a.OrderOut[*to] = keys[i], a.Order[i]
			*to++
		}
	}
}

// gatherArray is the twin of gather.cu. Elements are moved as keys of their size.
func gatherArray[K key](b *Block, a *arrayset.GatherBound) {
	in, out := device.Of[K](a.In), device.Of[K](a.Out)
	spans(b, a.Spans, a.N, arrayset.KeySpanWords, func(_ int, span []uint64) {
		to, from := part(out, span), in[span[arrayset.SpanBase]:]
		for i, place := range part(a.Order, span) {
			to[i] = from[place]
		}
	})
}

// foldArray is the twin of fold.cu. The sum is stored when all arrays are read, because out may be
// the first of them.
func foldArray[T number](b *Block, a *arrayset.FoldBound) {
	in, out, stride, arrays := device.Of[T](a.In), device.Of[T](a.Out), a.Stride, uint64(a.Arrays)
	var zero T
	lo, hi := b.Part(a.N)
	for i := lo; i < hi; i++ {
		switch any(zero).(type) {
		case float32, float64:
			total := float64(in[i])
			for k := uint64(1); k < arrays; k++ {
				total += float64(in[k*stride+i])
			}
			if out[i] = T(total); out[i] != out[i] {
				setNaN(out[i : i+1])
			}
		default:
			total := in[i]
			for k := uint64(1); k < arrays; k++ {
				total += in[k*stride+i]
			}
			out[i] = total
		}
	}
}

// setNaN stores the NaN of the kernel in one element, because a NaN of the processor may have other
// bits.
func setNaN[T number](to []T) {
	if bytes := device.Bytes(to); len(bytes) == 4 {
		device.Of[uint32](bytes)[0] = 0x7fc00000
	} else {
		device.Of[uint64](bytes)[0] = nan
	}
}
