package gpujobs

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// checkEvery is the number of elements between two looks at the context: a job that is cancelled
// ends within some milliseconds. sumFloats needs a multiple of sumBlock.
const checkEvery = 1 << 20

// each calls fn with consecutive parts of a slice until ctx ends. All parts but the last have
// checkEvery elements. It returns the cause of the end of ctx; then fn has seen a part of the
// slice, and the caller drops what it computed.
func each[T any](ctx context.Context, all []T, fn func(first int, part []T)) error {
	for at := 0; at < len(all); at += checkEvery {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fn(at, all[at:min(at+checkEvery, len(all))])
	}
	return nil
}

// reduce returns the work of a job of kind reduce. Check admits no other types, and an empty array
// for sums only.
func (t *task) reduce(s *gpujob.ReduceSpec) func() (any, error) {
	in := t.in("in", &s.In)
	return func() (any, error) {
		out := &gpujob.ReduceOutput{}
		var err error
		switch s.In.Type {
		case gpujob.F32:
			err = reduceFloats(t.ctx, out, s.Op, gpujob.Decode[float32](in.data), 32)
		case gpujob.F64:
			err = reduceFloats(t.ctx, out, s.Op, gpujob.Decode[float64](in.data), 64)
		case gpujob.I32:
			err = reduceInts(t.ctx, out, s.Op, gpujob.Decode[int32](in.data))
		case gpujob.I64:
			err = reduceInts(t.ctx, out, s.Op, gpujob.Decode[int64](in.data))
		case gpujob.U32:
			err = reduceInts(t.ctx, out, s.Op, gpujob.Decode[uint32](in.data))
		}
		out.Ran = t.computed()
		return out, err
	}
}

// reduceFloats reduces floats of so many bits. Sums are in float64; see sumFloats.
func reduceFloats[T float32 | float64](ctx context.Context, out *gpujob.ReduceOutput, op string, all []T,
	bits int,
) error {
	var v float64
	switch op {
	case gpujob.OpSum, gpujob.OpMean:
		sum, err := sumFloats(ctx, all)
		if err != nil {
			return err
		}
		if v = sum; op == gpujob.OpMean {
			v /= float64(len(all))
		}
		// Sums and means are float64 for both types, so their text has 64 bits.
		bits = 64
	default:
		// Check refuses an empty array here. The built-in min and max return NaN if an operand is
		// NaN.
		best := all[0]
		if err := each(ctx, all, func(_ int, part []T) {
			for _, x := range part {
				if op == gpujob.OpMin {
					best = min(best, x)
				} else {
					best = max(best, x)
				}
			}
		}); err != nil {
			return err
		}
		v = float64(best)
	}
	out.Text = strconv.FormatFloat(v, 'g', -1, bits)
	// JSON has no NaN and no infinity; Text has them.
	if out.Value = []byte(out.Text); math.IsNaN(v) || math.IsInf(v, 0) {
		out.Value = []byte("null")
	}
	return nil
}

// The order of additions of sumFloats.
const (
	sumLanes = 256
	sumBlock = 16 * sumLanes
)

// sumFloats returns the sum in float64. The order of additions is fixed, and such that a block of
// threads can have it: element i of a block of sumBlock is added to lane i modulo sumLanes, lanes
// are added in halves, and the sums of the blocks are summed in the same way.
func sumFloats[T float32 | float64](ctx context.Context, all []T) (float64, error) {
	blocks := make([]float64, 0, (len(all)+sumBlock-1)/sumBlock)
	if err := each(ctx, all, func(_ int, part []T) { // checkEvery is a multiple of sumBlock
		for at := 0; at < len(part); at += sumBlock {
			var lanes [sumLanes]float64
			for i, x := range part[at:min(at+sumBlock, len(part))] {
				lanes[i%sumLanes] += float64(x)
			}
			for half := sumLanes / 2; half > 0; half /= 2 {
				for i := range half {
					lanes[i] += lanes[i+half]
				}
			}
			blocks = append(blocks, lanes[0])
		}
	}); err != nil {
		return 0, err
	}
	switch len(blocks) {
	case 0:
		return 0, nil
	case 1:
		return blocks[0], nil
	}
	return sumFloats(ctx, blocks)
}

// reduceInts reduces integers exactly. A sum may need more than 64 bits, so its halves of 32 bits
// are summed apart and joined in a big.Int after each part. The mean is the nearest float64 of the
// exact quotient.
func reduceInts[T int32 | int64 | uint32](ctx context.Context, out *gpujob.ReduceOutput, op string, all []T) error {
	if op == gpujob.OpMin || op == gpujob.OpMax {
		best := all[0]
		err := each(ctx, all, func(_ int, part []T) {
			for _, x := range part {
				if op == gpujob.OpMin {
					best = min(best, x)
				} else {
					best = max(best, x)
				}
			}
		})
		out.Text = fmt.Sprint(best)
		out.Value = []byte(out.Text)
		return err
	}
	// The halves of an element cannot overflow in 2^31 elements.
	var high, low int64
	sum := new(big.Int)
	if err := each(ctx, all, func(_ int, part []T) {
		for _, x := range part {
			high += int64(x) >> 32
			low += int64(x) & math.MaxUint32
		}
		sum.Add(sum, new(big.Int).Lsh(big.NewInt(high), 32))
		sum.Add(sum, big.NewInt(low))
		high, low = 0, 0
	}); err != nil {
		return err
	}
	if out.Text = sum.String(); op == gpujob.OpMean {
		v, _ := new(big.Rat).SetFrac(sum, big.NewInt(int64(len(all)))).Float64()
		out.Text = strconv.FormatFloat(v, 'g', -1, 64)
	}
	out.Value = []byte(out.Text)
	return nil
}

// histogram returns the work of a job of kind histogram. The counts are inside the memory limit.
func (t *task) histogram(s *gpujob.HistogramSpec) func() (any, error) {
	in := t.in("in", &s.In)
	t.bytes += 8 * int64(s.Bins)
	return func() (any, error) {
		out := &gpujob.HistogramOutput{}
		counts := make([]uint64, s.Bins)
		var err error
		switch s.In.Type {
		case gpujob.F32:
			err = count(t.ctx, s, out, counts, gpujob.Decode[float32](in.data))
		case gpujob.F64:
			err = count(t.ctx, s, out, counts, gpujob.Decode[float64](in.data))
		case gpujob.I32:
			err = count(t.ctx, s, out, counts, gpujob.Decode[int32](in.data))
		case gpujob.I64:
			err = count(t.ctx, s, out, counts, gpujob.Decode[int64](in.data))
		case gpujob.U32:
			err = count(t.ctx, s, out, counts, gpujob.Decode[uint32](in.data))
		}
		if err != nil {
			return nil, err
		}
		out.Counts, out.Ran = gpujob.From(counts), t.computed()
		return out, t.store([]string{"counts"}, []*gpujob.Array{&out.Counts})
	}
}

// count counts elements by bins, in float64: int64 beyond 2^53 are rounded first. Each element is
// counted once, in a bin, below, above, or as NaN. The upper end belongs to the last bin.
func count[T gpujob.Element](ctx context.Context, s *gpujob.HistogramSpec, out *gpujob.HistogramOutput,
	counts []uint64, all []T,
) error {
	// The division is done once; an element at a border may fall into the bin below it by rounding.
	scale := float64(s.Bins) / (s.Max - s.Min)
	return each(ctx, all, func(_ int, part []T) {
		for _, e := range part {
			switch x := float64(e); {
			case math.IsNaN(x):
				out.NaN++
			case x < s.Min:
				out.Below++
			case x > s.Max:
				out.Above++
			default:
				counts[min(int((x-s.Min)*scale), s.Bins-1)]++
			}
		}
	})
}
