package space

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// ready makes all pages that do not exist, and places their agents.
func (x *Box) ready(ctx context.Context) error {
	made := append([]bool(nil), x.Memory().Made()...)
	if err := x.Columns.Ready(ctx); err != nil {
		return err
	}
	for page := 0; page < len(made); page++ {
		first := page
		for page < len(made) && !made[page] {
			page++
		}
		if page == first {
			continue
		}
		from, to := int64(first)*int64(x.PerPage()), min(int64(page)*int64(x.PerPage()), x.Len())
		for k := first; k < page; k++ {
			x.Memory().MarkDirty([]uint64{uint64(k)})
		}
		if err := x.put(spaceset.Place, to-from, spaceset.PlaceArgs{
			PagesArgs: x.pages(), First: uint32(from), End: uint32(to), Most: x.fastest(), Key0: uint32(x.o.Seed),
			Key1: uint32(x.o.Seed >> 32),
		}.Args()); err != nil {
			return x.Drain(ctx, err)
		}
		if x.colony != nil {
			if err := x.settle(ctx, from, to); err != nil {
				return err
			}
		}
	}
	return x.Sync(ctx)
}

// Width returns how many values an agent has: its position and, of boids, its velocity.
func (x *Box) Width() int { return x.cell.Features }

// Valid reports whether an agent may have the value v in a column of Set.
func (x *Box) Valid(column int, v float32) bool {
	if dims := len(x.o.Sides); column < dims {
		return v >= 0 && float64(v) < x.o.Sides[column] // a NaN is not
	}
	return v >= -float32(x.o.Radius) && v <= float32(x.o.Radius)
}

// fixed returns the word of a value that is valid.
func (x *Box) fixed(column int, v float32) uint32 {
	if dims := len(x.o.Sides); column < dims {
		return uint32(min(float64(v)/x.o.Sides[column]*steps, steps-1))
	}
	units := math.RoundToEven(float64(v) / x.o.Radius * spaceset.Units)
	return math.Float32bits(float32(max(-spaceset.Units, min(units, spaceset.Units)) / spaceset.Units))
}

// value returns the value of a word.
func (x *Box) value(column int, word uint32) float32 {
	if dims := len(x.o.Sides); column < dims {
		side := float32(x.o.Sides[column])
		return min(float32(float64(word)/steps*x.o.Sides[column]), math.Nextafter32(side, 0))
	}
	return float32(float64(math.Float32frombits(word)) * x.o.Radius)
}

// Set gives agents their positions and, of boids, their velocities: Width values each, in the unit
// of the box. Of an agent that is there several times, the last values count. A component of a
// velocity is at most a radius for a tick. Agents of a colony become alive.
func (x *Box) Set(ctx context.Context, ids []uint32, values []float32) error {
	width := x.Width()
	if len(values) != width*len(ids) {
		return fmt.Errorf("%w: %d values for %d agents, of %d each", ErrInvalid, len(values), len(ids), width)
	}
	for i, v := range values {
		if !x.Valid(i%width, v) {
			return fmt.Errorf("%w: value %v, at %d of agent %d", ErrInvalid, v, i%width, ids[i/width])
		}
	}
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		if int64(id) >= x.Len() {
			return fmt.Errorf("%w: agent %d of %d", ErrInvalid, id, x.Len())
		}
	}
	if err := x.ready(ctx); err != nil {
		return err
	}
	for column := range width {
		words := make([]uint32, len(ids))
		for i := range words {
			words[i] = x.fixed(column, values[i*width+column])
		}
		if err := x.Columns.Put(ctx, x.Layout().Offsets[1+column], ids, words); err != nil {
			return err
		}
	}
	if x.colony != nil {
		return x.enliven(ctx, ids)
	}
	return nil
}

// Get returns the votes of agents, which are their states, and Width values of each. It makes no
// page and changes none.
func (x *Box) Get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	if votes, err = x.Columns.Get(ctx, ids); err != nil {
		return nil, nil, err
	}
	width, made := x.Width(), x.Memory().Made()
	for i, id := range ids {
		if x.colony != nil && !made[int64(id)/int64(x.PerPage())] && float64(id) < x.cell.Value("first") {
			votes[i] = spaceset.Alive
		}
	}
	values = make([]float32, width*len(ids))
	for column := range width {
		words, err := x.Columns.Take(ctx, x.Layout().Offsets[1+column], ids)
		if err != nil {
			return nil, nil, err
		}
		for i, w := range words {
			if id := ids[i]; !made[int64(id)/int64(x.PerPage())] {
				w = x.first(id, column)
			}
			values[i*width+column] = x.value(column, w)
		}
	}
	return votes, values, nil
}

// first returns the word of an agent before its page is made.
func (x *Box) first(id uint32, column int) uint32 {
	position, velocity := spaceset.First(x.o.Seed, id, x.fastest())
	if dims := len(x.o.Sides); column >= dims {
		return math.Float32bits(float32(velocity[column-dims]) / spaceset.Units)
	}
	return position[column]
}
