package twins

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	Register(quantumset.Tile, stateTile)
	Register(quantumset.Weight, stateWeight)
	Register(quantumset.Sample, stateSample)
	Register(quantumset.Expect, stateExpect)
}

// amplitude is a complex number as kernels have it. Go's complex64 may be computed in another
// order.
type amplitude struct{ re, im float32 }

func times(m, a amplitude) amplitude {
	return amplitude{
		fmath.FMA(-m.im, a.im, float32(m.re*a.re)),
		fmath.FMA(m.im, a.re, float32(m.re*a.im)),
	}
}

// timesPlus returns m a + b.
func timesPlus(m, a, b amplitude) amplitude {
	return amplitude{
		fmath.FMA(-m.im, a.im, fmath.FMA(m.re, a.re, b.re)),
		fmath.FMA(m.im, a.re, fmath.FMA(m.re, a.im, b.im)),
	}
}

// weight returns |a|^2 as an integer of scale quantumset.WeightScale. The squares are exact, and
// their sum is rounded once.
func (a amplitude) weight() uint64 {
	return uint64((float64(a.re)*float64(a.re) + float64(a.im)*float64(a.im)) * quantumset.WeightScale)
}

// amplitudesOf returns a view of pairs of floats.
func amplitudesOf(floats []float32) []amplitude {
	return unsafe.Slice((*amplitude)(unsafe.Pointer(unsafe.SliceData(floats))), len(floats)/2)
}

// stateWeight is the twin of weight.cu.
func stateWeight(b *Block, a *quantumset.WeightBound) {
	amplitudes := amplitudesOf(a.Amplitudes)
	first, end := b.Part(a.Runs)
	for run := first; run < end; run++ {
		var sum uint64
		at := run * quantumset.RunSize
		for i, v := range amplitudes[at:][:quantumset.RunSize] {
			if (at+uint64(i))&a.Mask == a.Value {
				sum += v.weight()
			}
		}
		a.Sums[run] = sum
		atomic.AddUint64(&a.Totals[run>>a.Group], sum)
	}
}

// stateSample is the twin of sample.cu. It makes the shots of a block in the order of their places,
// so that it adds up a run once for all of its shots.
func stateSample(b *Block, a *quantumset.SampleBound) {
	type draw struct {
		target uint64
		shot   int
	}
	groups := uint64(1) << (a.Qubits - quantumset.MinQubits - a.Group)
	first, end := b.Part(a.Rows * uint64(a.Shots))
	for s := first; s < end; { // the shots of a row
		row := s / uint64(a.Shots)
		upto := a.Totals[row*groups:][:groups]
		var draws []draw
		for ; s < min(end, (row+1)*uint64(a.Shots)); s++ {
			word := kernels.Philox([2]uint32{uint32(a.Seed), uint32(a.Seed >> 32)},
				[4]uint32{0, uint32(s - row*uint64(a.Shots)), a.First + uint32(row), 0})
			target, _ := bits.Mul64(uint64(word[1])<<32|uint64(word[0]), upto[groups-1])
			draws = append(draws, draw{target, int(s)})
		}
		slices.SortFunc(draws, func(x, y draw) int { return cmp.Compare(x.target, y.target) })
		at, sums := amplitudesOf(a.Amplitudes)[row<<a.Qubits:], a.Sums[row*groups<<a.Group:]
		// A run has index and the amplitudes behind it; before and below are the weights before them.
		var g, run, index, before, below uint64
		for _, d := range draws {
			was := run
			if upto[g] <= d.target {
				for upto[g] <= d.target {
					g++
				}
				run, before = g<<a.Group, upto[g-1]
			}
			for ; before+sums[run] <= d.target; run++ {
				before += sums[run]
			}
			if run != was || index == 0 {
				index, below = run*quantumset.RunSize, before
			}
			for w := at[index].weight(); below+w <= d.target; w = at[index].weight() {
				below += w
				index++
			}
			a.Samples[d.shot] = sampleOf(index, a.Places[:a.Qubits])
		}
	}
}

// sampleOf returns the bits of an index at their places.
func sampleOf(index uint64, places []uint32) (sample uint64) {
	for ; index != 0; index &= index - 1 {
		if place := places[bits.TrailingZeros64(index)]; place != quantumset.NoPlace {
			sample |= 1 << place
		}
	}
	return sample
}

// stateExpect is the twin of expect.cu.
func stateExpect(b *Block, a *quantumset.ExpectBound) {
	amplitudes := amplitudesOf(a.Amplitudes)
	top := uint64(0)
	if a.Flips != 0 {
		top = 1 << (bits.Len64(a.Flips) - 1)
	}
	sums := make([]uint64, a.Count)
	first, end := b.Part(a.Runs)
	for run := first; run < end; run++ {
		clear(sums)
		at := run * quantumset.RunSize
		for i := at; i < at+quantumset.RunSize; i++ {
			if i&top != 0 {
				continue
			}
			even, odd := product(amplitudes[i^a.Flips], amplitudes[i])
			for s := range sums {
				term := even
				if a.Strings[2*s+1]&quantumset.ExpectImaginary != 0 {
					term = odd
				}
				if bits.OnesCount64(i&a.Strings[2*s])%2 == 1 {
					term = -term
				}
				sums[s] += uint64(term)
			}
		}
		for s, sum := range sums {
			if a.Strings[2*s+1]&quantumset.ExpectNegative != 0 {
				sum = -sum
			}
			atomic.AddUint64(&a.Sums[(at>>a.Qubits)*uint64(a.Count)+uint64(s)], sum)
		}
	}
}

// product returns the real and the imaginary part of conj(b) a as integers of scale
// quantumset.WeightScale. The products of the parts are exact, and each sum is rounded once.
func product(b, a amplitude) (real, imaginary int64) {
	x, y, u, v := float64(a.re), float64(a.im), float64(b.re), float64(b.im)
	return int64((x*u + y*v) * quantumset.WeightScale), int64((y*u - x*v) * quantumset.WeightScale)
}
