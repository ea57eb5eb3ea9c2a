package times

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
)

// Table finds durations for conditions between the measured ones.
type Table struct{ curves map[string]*Curve }

// NewTable returns a table of the series of some files. Series of the same name must have the same
// axes; axes lists those keys that are conditions, by name.
func NewTable(axes map[string][]string, files ...*File) (*Table, error) {
	t := &Table{curves: map[string]*Curve{}}
	for _, f := range files {
		for i := range f.Series {
			s := &f.Series[i]
			of, known := axes[s.Name]
			if !known || s.Times.N() == 0 {
				continue
			}
			c := t.curves[s.Name]
			if c == nil {
				c = &Curve{axes: of, near: map[[maxAxes]float64][]term{}}
				t.curves[s.Name] = c
			}
			for _, axis := range of {
				if _, ok := s.Keys[axis]; !ok {
					return nil, fmt.Errorf("%w: a series %s has no key %s", ErrInvalid, s.Name, axis)
				}
			}
			c.points = append(c.points, newPoint(s, of))
		}
	}
	return t, nil
}

// Names returns the names of all curves in their order.
func (t *Table) Names() []string { return slices.Sorted(maps.Keys(t.curves)) }

// Curve returns the durations of a name. The error is an ErrInvalid: there are none.
func (t *Table) Curve(name string) (*Curve, error) {
	c := t.curves[name]
	if c == nil {
		return nil, fmt.Errorf("%w: no series %q: there are %v", ErrInvalid, name, t.Names())
	}
	return c, nil
}

// maxAxes is the most conditions of a curve.
const maxAxes = 5

// Curve is the series of one name over their conditions. Between two measured conditions, and
// beyond the last ones, each quantile is on the straight line through the nearest two: the time of
// most stages is a fixed part and a part for each byte, row or entry.
type Curve struct {
	axes   []string
	points []*point
	near   map[[maxAxes]float64][]term
}

type point struct {
	at    [maxAxes]float64
	keys  map[string]float64
	times Histogram
	upTo  []int64 // by bucket: the durations up to its end
	mean  float64
}

type term struct {
	of     *point
	weight float64
}

func newPoint(s *Series, axes []string) *point {
	p := &point{keys: s.Keys, times: s.Times, mean: s.Times.Mean()}
	for i, axis := range axes {
		p.at[i] = s.Keys[axis]
	}
	n := int64(0)
	for _, b := range s.Times.buckets {
		n += b.N
		p.upTo = append(p.upTo, n)
	}
	return p
}

// quantile is Histogram.Quantile in logarithmic time.
func (p *point) quantile(q float64) float64 {
	left := q * float64(p.times.n)
	i := sort.Search(len(p.upTo)-1, func(i int) bool { return float64(p.upTo[i]) >= left })
	b := p.times.buckets[i]
	before := float64(p.upTo[i] - b.N)
	return float64(b.NS) + float64(b.width()-1)*min(1, max(0, left-before)/float64(b.N))
}

// Draw returns the duration at a quantile q, from 0 to 1, for conditions in the order of the axes.
// With random q it has the distribution of the measurements.
func (c *Curve) Draw(q float64, at ...float64) float64 {
	return max(0, c.sum(at, func(p *point) float64 { return p.quantile(q) }))
}

// Mean returns the mean duration for conditions.
func (c *Curve) Mean(at ...float64) float64 {
	return max(0, c.sum(at, func(p *point) float64 { return p.mean }))
}

// Key returns another result of the measurements for conditions; 0 where it was not measured.
func (c *Curve) Key(key string, at ...float64) float64 {
	return max(0, c.sum(at, func(p *point) float64 { return p.keys[key] }))
}

func (c *Curve) sum(at []float64, of func(p *point) float64) (v float64) {
	var key [maxAxes]float64
	copy(key[:], at)
	terms, ok := c.near[key]
	if !ok {
		terms = c.terms(key)
		c.near[key] = terms
	}
	for _, t := range terms {
		v += t.weight * of(t.of)
	}
	return v
}

// terms returns the series that are nearest to conditions, and their weights, which add up to 1.
func (c *Curve) terms(at [maxAxes]float64) []term {
	terms := []term{}
	var split func(points []*point, axis int, weight float64)
	split = func(points []*point, axis int, weight float64) {
		if axis == len(c.axes) {
			terms = append(terms, term{of: points[0], weight: weight})
			return
		}
		low, high, part := nearest(points, axis, at[axis])
		split(with(points, axis, low), axis+1, weight*(1-part))
		if part != 0 {
			split(with(points, axis, high), axis+1, weight*part)
		}
	}
	split(c.points, 0, 1)
	return terms
}

func with(points []*point, axis int, value float64) (of []*point) {
	for _, p := range points {
		if p.at[axis] == value {
			of = append(of, p)
		}
	}
	return of
}

// nearest returns the two values of an axis between which a value is, or the two that are nearest
// to it, and how far from the first to the second it is. The part is at least 0.
func nearest(points []*point, axis int, value float64) (low, high, part float64) {
	var values []float64
	for _, p := range points {
		values = append(values, p.at[axis])
	}
	slices.SortFunc(values, cmp.Compare)
	values = slices.Compact(values)
	if len(values) == 1 || value <= values[0] {
		return values[0], values[0], 0
	}
	i := min(sort.SearchFloat64s(values, value), len(values)-1)
	low, high = values[i-1], values[i]
	part = (value - low) / (high - low)
	if math.IsNaN(part) {
		return low, low, 0
	}
	return low, high, part
}
