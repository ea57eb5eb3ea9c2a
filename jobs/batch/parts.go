package batch

import "fmt"

// Pick returns the rows of o at some places, in the order of the places. The result shares the
// texts of o, and no slice.
func (o *Observations) Pick(places []int) *Observations {
	values := width(o.Value, o.Len())
	p := &Observations{
		Group: pick(o.Group, places, 1), Row: pick(o.Row, places, 1), Time: pick(o.Time, places, 1),
		Read: pick(o.Read, places, 1), Features: pick(o.Features, places, o.Width), Width: o.Width,
		Timestamp: pick(o.Timestamp, places, 1),
	}
	if values > 0 {
		p.Value = pick(o.Value, places, values)
	}
	return p
}

// pick returns the elements of some rows, of width elements each.
func pick[T any](from []T, places []int, width int) []T {
	to := make([]T, 0, len(places)*width)
	for _, at := range places {
		to = append(to, from[at*width:(at+1)*width]...)
	}
	return to
}

// MergeDecisions returns n decisions of several batches: row i of batch k becomes row places[k][i].
// Each place is in places once. A batch without places may be nil. The result shares the texts of
// the batches, and no slice. It fails if the batches do not have as many rows as places, or differ
// in their columns. Explanations are not merged.
func MergeDecisions(n int, of []*Decisions, places [][]int) (*Decisions, error) {
	d := &Decisions{
		Group: make([]uint32, n), Row: make([]uint64, n), Read: make([]int64, n), Timestamp: make([]string, n),
		Score: make([]float32, n), Decision: make([]uint32, n), Leader: make([]uint64, n), Round: make([]uint64, n),
	}
	values, drops, first := 0, false, true
	for k, at := range places {
		if len(at) == 0 {
			continue
		}
		from := of[k]
		if from == nil || from.Len() != len(at) {
			return nil, fmt.Errorf("merge decisions: part %d does not have %d rows", k, len(at))
		}
		w := width(from.Value, from.Len())
		if first {
			first, values, drops, d.Candidates = false, w, from.Dropped != nil, from.Candidates
			d.Value, d.Counts = make([]float64, n*max(w, 0)), make([]uint32, n*d.Candidates)
			if drops {
				d.Dropped = make([]uint8, n)
			}
		}
		if w != values || w < 1 || (from.Dropped != nil) != drops || from.Candidates != d.Candidates {
			return nil, fmt.Errorf("merge decisions: part %d has other columns than the parts before it", k)
		}
		put(d.Group, from.Group, at, 1)
		put(d.Row, from.Row, at, 1)
		put(d.Read, from.Read, at, 1)
		put(d.Timestamp, from.Timestamp, at, 1)
		put(d.Value, from.Value, at, values)
		put(d.Score, from.Score, at, 1)
		put(d.Decision, from.Decision, at, 1)
		put(d.Counts, from.Counts, at, d.Candidates)
		put(d.Leader, from.Leader, at, 1)
		put(d.Round, from.Round, at, 1)
		if drops {
			put(d.Dropped, from.Dropped, at, 1)
		}
	}
	return d, nil
}

func put[T any](to, from []T, places []int, width int) {
	for i, at := range places {
		copy(to[at*width:(at+1)*width], from[i*width:(i+1)*width])
	}
}
