package measures

import "github.com/exoswarm/exoswarm/internal/base/quality"

// Copies returns a stream in four other orders of its rows: reversed in time, every second row,
// every third row, and every second row reversed. A detector that fits how incidents follow each
// other in one order does worse in another order. So copies show how it does on streams that nobody
// chose it on. Names end in the order. A window without a row in a copy is left out there.
func Copies(s quality.Stream) []quality.Stream {
	named := func(c quality.Stream, order string) quality.Stream {
		c.Name = s.Name + "~" + order
		return c
	}
	return []quality.Stream{
		named(reversed(s), "reversed"),
		named(thinned(s, 2, 0), "second"),
		named(thinned(s, 3, 1), "third"),
		named(reversed(thinned(s, 2, 1)), "second-reversed"),
	}
}

// reversed returns the rows from the last to the first. The time from row to row stays, and the
// first time is the same.
func reversed(s quality.Stream) quality.Stream {
	n := len(s.Times)
	r := quality.Stream{Times: make([]int64, n), Values: make([]float64, n)}
	for i := range n {
		r.Times[i] = s.Times[0] + s.Times[n-1] - s.Times[n-1-i]
		r.Values[i] = s.Values[n-1-i]
	}
	for k := len(s.Windows) - 1; k >= 0; k-- {
		w := s.Windows[k]
		r.Windows = append(r.Windows, quality.Window{First: n - 1 - w.Last, Last: n - 1 - w.First})
	}
	return r
}

// thinned returns each row whose distance from row from is a multiple of every.
func thinned(s quality.Stream, every, from int) quality.Stream {
	var t quality.Stream
	for i := from; i < len(s.Times); i += every {
		t.Times, t.Values = append(t.Times, s.Times[i]), append(t.Values, s.Values[i])
	}
	for _, w := range s.Windows {
		if w.Last < from {
			continue
		}
		own := quality.Window{
			First: (max(w.First-from, 0) + every - 1) / every, Last: min((w.Last-from)/every, len(t.Times)-1),
		}
		if own.First <= own.Last {
			t.Windows = append(t.Windows, own)
		}
	}
	return t
}
