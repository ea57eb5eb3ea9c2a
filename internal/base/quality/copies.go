package quality

// Copies returns a stream in four other orders of its rows: reversed in time, every second row,
// every third row, and every second row reversed. A detector that fits how incidents follow each
// other in one order does worse in another order. So copies show how it does on streams that nobody
// chose it on. Names end in the order. A window without a row in a copy is left out there.
func Copies(s Stream) []Stream {
	named := func(c Stream, order string) Stream {
		c.Name = s.Name + "~" + order
		return c
	}
	return []Stream{
		named(reversed(s), "reversed"),
		named(thinned(s, 2, 0), "second"),
		named(thinned(s, 3, 1), "third"),
		named(reversed(thinned(s, 2, 1)), "second-reversed"),
	}
}

// reversed returns the rows from the last to the first. The time from row to row stays, and the first
// time is the same.
func reversed(s Stream) Stream {
	n := len(s.Times)
	r := Stream{Times: make([]int64, n), Values: make([]float64, n)}
	for i := range n {
		r.Times[i] = s.Times[0] + s.Times[n-1] - s.Times[n-1-i]
		r.Values[i] = s.Values[n-1-i]
	}
	for k := len(s.Windows) - 1; k >= 0; k-- {
		w := s.Windows[k]
		r.Windows = append(r.Windows, Window{n - 1 - w.Last, n - 1 - w.First})
	}
	return r
}

// thinned returns each row whose distance from row from is a multiple of every.
func thinned(s Stream, every, from int) Stream {
	var t Stream
	for i := from; i < len(s.Times); i += every {
		t.Times, t.Values = append(t.Times, s.Times[i]), append(t.Values, s.Values[i])
	}
	for _, w := range s.Windows {
		if w.Last < from {
			continue
		}
		own := Window{(max(w.First-from, 0) + every - 1) / every, min((w.Last-from)/every, len(t.Times)-1)}
		if own.First <= own.Last {
			t.Windows = append(t.Windows, own)
		}
	}
	return t
}
