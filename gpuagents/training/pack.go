package training

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Sequences are the data of a training, sequence after sequence and moment after moment, as the
// fields of Batch are by moment.
type Sequences struct {
	Lengths        []int32   // of each sequence
	Inputs         []float32 // [moments][Shape.Inputs], without an embedding
	Numbers        []int32   // [moments], with one
	Items, Targets []int32   // [moments]; Items are nil without items
}

// Window is a part of a sequence that begins with state 0: Moments moments from First on.
type Window struct{ Sequence, First, Moments int }

// Windows cuts the sequences of these numbers, in this order, into windows of at most this number
// of moments.
func (s *Sequences) Windows(sequences []int, window int) []Window {
	var all []Window
	for _, n := range sequences {
		for first := 0; first < int(s.Lengths[n]); first += window {
			all = append(all, Window{n, first, min(window, int(s.Lengths[n])-first)})
		}
	}
	return all
}

// Shuffle returns the batches of an epoch, which are a function of windows, seed and epoch. It does
// not change windows. In a batch the longest windows are first, because agents beside one another
// step together. Batches of windows of similar length would be faster, and learn worse: their means
// count short windows more.
func Shuffle(windows []Window, batch int, seed uint64, epoch int) [][]Window {
	draws := draws{key: [2]uint32{uint32(seed), uint32(seed >> 32)}, epoch: uint32(epoch)}
	windows = slices.Clone(windows)
	for i := len(windows) - 1; i > 0; i-- { // the shuffle of Fisher and Yates
		k := draws.below(i + 1)
		windows[i], windows[k] = windows[k], windows[i]
	}
	batches := slices.Collect(slices.Chunk(windows, batch))
	for _, windows := range batches {
		byLength(windows)
	}
	return batches
}

// byLength sorts windows, the longest first.
func byLength(windows []Window) {
	slices.SortStableFunc(windows, func(a, b Window) int { return cmp.Compare(b.Moments, a.Moments) })
}

// Whole returns whole sequences in batches for Evaluate, the longest first, so that few moments are
// behind an end. A batch has at most this number of sequences, and of moments with the ones behind an
// end, but one sequence at least.
func (s *Sequences) Whole(sequences []int, batch, moments int) (all [][]Window) {
	windows := s.Windows(sequences, math.MaxInt32)
	byLength(windows)
	for len(windows) > 0 {
		n := min(max(moments/windows[0].Moments, 1), batch, len(windows))
		all, windows = append(all, windows[:n]), windows[n:]
	}
	return all
}

// draws are random numbers of an epoch.
type draws struct {
	key      [2]uint32
	epoch, n uint32
}

// orderWord is the third word of the counters of orders; see drawWord.
const orderWord = drawWord + 1

// below returns a number of 0..n-1.
func (d *draws) below(n int) int {
	words := kernels.Philox(d.key, [4]uint32{d.n, 0, orderWord, d.epoch})
	d.n++
	return int((uint64(words[0])<<32 | uint64(words[1])) % uint64(n))
}

// Batcher makes batches of windows.
type Batcher struct {
	shape   Shape
	data    *Sequences
	offsets []int // of the first moment of each sequence
	batch   Batch
}

// NewBatcher returns a Batcher of data, which it reads as long as it is used.
func NewBatcher(shape Shape, data *Sequences) (*Batcher, error) {
	b := &Batcher{shape: shape, data: data}
	moments := 0
	for n, length := range data.Lengths {
		if length < 0 {
			return nil, fmt.Errorf("%w: sequence %d has %d moments", ErrInvalid, n, length)
		}
		b.offsets = append(b.offsets, moments)
		moments += int(length)
	}
	return b, shape.arrays(moments, data.Inputs, data.Numbers, data.Items, data.Targets)
}

// Batch returns the batch of some windows. It is valid until the next call.
func (b *Batcher) Batch(windows []Window) Batch {
	N, T := len(windows), 1
	for _, w := range windows {
		T = max(T, w.Moments)
	}
	s, I, to := b.shape, b.shape.Inputs, &b.batch
	to.Sequences, to.Moments = N, T
	to.Lengths = resize(to.Lengths, N)
	to.Targets = resize(to.Targets, N*T)
	if s.Items > 0 {
		to.Items = resize(to.Items, N*T)
	}
	if s.Rows > 0 {
		to.Numbers = resize(to.Numbers, N*T)
	} else {
		to.Inputs = resize(to.Inputs, N*T*I)
	}
	for n, w := range windows {
		to.Lengths[n] = int32(w.Moments)
		from := b.offsets[w.Sequence] + w.First
		for t := range w.Moments {
			i := t*N + n
			to.Targets[i] = b.data.Targets[from+t]
			if s.Items > 0 {
				to.Items[i] = b.data.Items[from+t]
			}
			if s.Rows > 0 {
				to.Numbers[i] = b.data.Numbers[from+t]
			} else {
				copy(to.Inputs[i*I:][:I], b.data.Inputs[(from+t)*I:])
			}
		}
	}
	return *to
}

// resize returns a slice of n elements, of v if it is large enough. Elements have any value.
func resize[T any](v []T, n int) []T { return slices.Grow(v[:0], n)[:n] }
