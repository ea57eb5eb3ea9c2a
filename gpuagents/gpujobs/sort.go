package gpujobs

import (
	"context"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// sort returns the work of a job of kind sort. Equal elements keep their order, also with
// Descending. The memory limit includes the work space.
func (t *task) sort(s *gpujob.SortSpec) func() (any, error) {
	in := t.in("in", &s.In)
	// The elements again, and keys and indices twice.
	n, _ := s.In.Shape.Count()
	t.bytes += s.In.Size() + n*2*(8+4)
	return func() (any, error) {
		// Indices are u32, also when the job does not ask for them.
		if n > math.MaxUint32 {
			return nil, jobs.Errorf(jobs.CodeInvalid, "spec.in: %d elements: use at most %d", n, uint32(math.MaxUint32))
		}
		out := &gpujob.SortOutput{}
		var order []uint32
		var err error
		switch s.In.Type {
		case gpujob.F32:
			order, err = sortAs(t.ctx, s, out, gpujob.Decode[float32](in.data), func(v float32) uint64 {
				return floatKey(float64(v)) // widening keeps the order
			})
		case gpujob.F64:
			order, err = sortAs(t.ctx, s, out, gpujob.Decode[float64](in.data), floatKey)
		case gpujob.I32:
			order, err = sortAs(t.ctx, s, out, gpujob.Decode[int32](in.data), func(v int32) uint64 {
				return uint64(int64(v)) ^ 1<<63
			})
		case gpujob.I64:
			order, err = sortAs(t.ctx, s, out, gpujob.Decode[int64](in.data), func(v int64) uint64 {
				return uint64(v) ^ 1<<63
			})
		case gpujob.U32:
			order, err = sortAs(t.ctx, s, out, gpujob.Decode[uint32](in.data),
				func(v uint32) uint64 { return uint64(v) })
		}
		if err != nil {
			return nil, err
		}
		names, arrays := []string{"sorted"}, []*gpujob.Array{&out.Sorted}
		if s.Indices {
			indices := gpujob.From(order)
			out.Indices = &indices
			names, arrays = append(names, "indices"), append(arrays, out.Indices)
		}
		out.Ran = t.computed()
		return out, t.store(names, arrays)
	}
}

// nanKey is the key of a NaN, which comes last in both orders.
const nanKey = math.MaxUint64

// floatKey returns a key whose order as an unsigned integer is that of floats. Negative floats have
// their bits inverted, others the sign bit set. Both zeros have one key, so the sort keeps their
// order.
func floatKey(v float64) uint64 {
	switch bits := math.Float64bits(v); {
	case v != v:
		return nanKey
	case v == 0:
		return 1 << 63
	case bits>>63 == 1:
		return ^bits
	default:
		return bits | 1<<63
	}
}

// sortAs sets the sorted elements of the output, and returns the index that each had in the input.
// key must keep the order. Descending inverts keys in place of the result, so the order of equal
// elements stays, and NaN stays last.
func sortAs[T gpujob.Element](ctx context.Context, s *gpujob.SortSpec, out *gpujob.SortOutput, all []T,
	key func(T) uint64,
) ([]uint32, error) {
	keys := make([]uint64, len(all))
	if err := each(ctx, all, func(first int, part []T) {
		for i, v := range part {
			k := key(v)
			if s.Descending && v == v {
				k = ^k
			}
			keys[first+i] = k
		}
	}); err != nil {
		return nil, err
	}
	order, err := radixOrder(ctx, keys)
	if err != nil {
		return nil, err
	}
	sorted := make([]T, len(all))
	// order[i] is the index in the input of the element at place i of the output.
	for i, from := range order {
		sorted[i] = all[from]
	}
	out.Sorted = gpujob.From(sorted)
	return order, nil
}

// radixOrder returns the stable order of keys: a radix sort from the lowest byte, which omits bytes
// that are the same in all keys. It changes keys.
func radixOrder(ctx context.Context, keys []uint64) ([]uint32, error) {
	order := make([]uint32, len(keys))
	for i := range order {
		order[i] = uint32(i)
	}
	keys2, order2 := make([]uint64, len(keys)), make([]uint32, len(keys))
	for shift := 0; shift < 64; shift += 8 {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// starts[b] becomes the first index of keys with byte b: counts are shifted by one and
		// summed.
		var starts [257]int
		for _, k := range keys {
			starts[k>>shift&0xff+1]++
		}
		// All keys have one value in this byte, so the order stays.
		if len(keys) > 0 && starts[keys[0]>>shift&0xff+1] == len(keys) {
			continue
		}
		for i := range 256 {
			starts[i+1] += starts[i]
		}
		for i, k := range keys {
			at := &starts[k>>shift&0xff]
			keys2[*at], order2[*at] = k, order[i]
			*at++
		}
		keys, keys2, order, order2 = keys2, keys, order2, order
	}
	return order, nil
}
