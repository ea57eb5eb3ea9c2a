package lattice

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Valid reports whether a variable takes a value: finite numbers for floats, and whole numbers that
// it can hold for others.
func Valid(v kernels.Var, value float32) bool {
	most := 0.0 // the first number that is too large
	switch v.Elem {
	case kernels.U8:
		most = 1 << 8
	case kernels.U32:
		most = 1 << 32
	case kernels.U64:
		most = 1 << 64
	case kernels.BF16: // from here on, a value rounds to infinity
		return math.Abs(float64(value)) < 0x1.ffp127
	default:
		return !math.IsInf(float64(value), 0) && value == value
	}
	f := float64(value)
	return f >= 0 && f < most && f == math.Trunc(f) // no NaN is
}

// Use says what a variable takes.
func Use(v kernels.Var) string {
	switch v.Elem {
	case kernels.U8:
		return "a whole number from 0 to 255"
	case kernels.U32:
		return "a whole number from 0 to 4294967295"
	case kernels.U64:
		return "a whole number from 0 to below 2^64"
	}
	return "a finite number"
}

// Set sets the variables of agents that observations set: values has as many for each agent, in the
// order of Settable. Of an agent that is there several times, the last values count.
func (l *Lattice) Set(ctx context.Context, ids []uint32, values []float32) error {
	settable := l.cell.Settable()
	if len(values) != len(ids)*len(settable) {
		return fmt.Errorf("%w: %d values for %d agents, want %d of each", ErrInvalid, len(values), len(ids),
			len(settable))
	}
	for i, value := range values {
		if v := l.Layout().Vars[settable[i%len(settable)]]; !Valid(v, value) {
			return fmt.Errorf("%w: %s %v, at %d: use %s", ErrInvalid, v.Name, value, i/len(settable), Use(v))
		}
	}
	column := make([]float32, len(ids))
	for k, at := range settable {
		for i := range column {
			column[i] = values[i*len(settable)+k]
		}
		if err := l.write(ctx, at, ids, column); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the candidates that agents vote for, and the variables that observations set, rounded
// to float32. It makes no page and changes none.
func (l *Lattice) Get(ctx context.Context, ids []uint32) (states []byte, values []float32, err error) {
	settable := l.cell.Settable()
	values = make([]float32, len(ids)*len(settable))
	for k, at := range settable {
		column, err := l.read(ctx, at, ids)
		if err != nil {
			return nil, nil, err
		}
		for i, v := range column {
			values[i*len(settable)+k] = float32(v)
		}
	}
	at := l.cell.Voted()
	column, err := l.read(ctx, at, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, v := range column {
		states = append(states, candidate(l.Layout().Vars[at], v, l.cell.Candidates))
	}
	return states, values, nil
}

// candidate returns the number of the candidate that an agent votes for whose variable has the
// value.
func candidate(v kernels.Var, value float64, candidates int) byte {
	if v.Elem == kernels.F32 || v.Elem == kernels.BF16 {
		if value != 0 {
			return 1
		}
		return 0
	}
	return byte(min(value, float64(candidates-1)))
}

func (l *Lattice) write(ctx context.Context, at int, ids []uint32, column []float32) error {
	v, offset := l.Layout().Vars[at], l.Layout().Offsets[at]
	switch v.Elem {
	case kernels.U8:
		bytes := make([]byte, len(ids))
		for i, f := range column {
			bytes[i] = byte(f)
		}
		return l.Columns.SetAt(ctx, offset, ids, bytes)
	case kernels.BF16:
		bytes := make([]byte, 0, 2*len(ids))
		for _, f := range column {
			h := device.ToBF16(f)
			bytes = append(bytes, byte(h), byte(h>>8))
		}
		return l.double.SetAt(ctx, offset, twice(ids), bytes)
	case kernels.U64:
		words := make([]uint32, 0, 2*len(ids))
		for _, f := range column {
			words = append(words, uint32(uint64(f)), uint32(uint64(f)>>32))
		}
		return l.double.Put(ctx, offset, twice(ids), words)
	}
	words := make([]uint32, len(ids))
	for i, f := range column {
		if words[i] = uint32(f); v.Elem == kernels.F32 {
			words[i] = math.Float32bits(f)
		}
	}
	return l.Columns.Put(ctx, offset, ids, words)
}

func (l *Lattice) read(ctx context.Context, at int, ids []uint32) (column []float64, err error) {
	v, offset := l.Layout().Vars[at], l.Layout().Offsets[at]
	column = make([]float64, len(ids))
	var bytes []byte
	var words []uint32
	switch v.Elem {
	case kernels.U8:
		bytes, err = l.Columns.GetAt(ctx, offset, ids)
	case kernels.BF16:
		bytes, err = l.double.GetAt(ctx, offset, twice(ids))
	case kernels.U64:
		words, err = l.double.Take(ctx, offset, twice(ids))
	default:
		words, err = l.Columns.Take(ctx, offset, ids)
	}
	if err != nil {
		return nil, err
	}
	for i := range column {
		switch v.Elem {
		case kernels.U8:
			column[i] = float64(bytes[i])
		case kernels.BF16:
			column[i] = float64(device.FromBF16(uint16(bytes[2*i]) | uint16(bytes[2*i+1])<<8))
		case kernels.U64:
			column[i] = float64(uint64(words[2*i]) | uint64(words[2*i+1])<<32)
		case kernels.U32:
			column[i] = float64(words[i])
		default:
			column[i] = float64(math.Float32frombits(words[i]))
		}
	}
	return column, nil
}

// twice returns the elements of agents that have two each.
func twice(ids []uint32) []uint32 {
	all := make([]uint32, 0, 2*len(ids))
	for _, id := range ids {
		all = append(all, 2*id, 2*id+1)
	}
	return all
}
