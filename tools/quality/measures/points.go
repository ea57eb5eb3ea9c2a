package measures

import (
	"cmp"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// Rows counts rows: inside of windows and called anomalous, called so outside of them, and inside
// but not called so.
type Rows struct{ True, False, Missed int }

// Add adds the counts of another series.
func (r *Rows) Add(s Rows) {
	r.True += s.True
	r.False += s.False
	r.Missed += s.Missed
}

// F1 is the harmonic mean of precision and recall, point by point; 0 if no row is True.
func (r Rows) F1() float64 {
	if r.True == 0 {
		return 0
	}
	return 2 * float64(r.True) / float64(2*r.True+r.False+r.Missed)
}

// Count counts rows that a detector calls anomalous, in order and each once.
func Count(called []int, windows []quality.Window) Rows {
	var r Rows
	at := 0
	for _, w := range windows {
		r.Missed += w.Last - w.First + 1
	}
	for _, row := range called {
		for at < len(windows) && windows[at].Last < row {
			at++
		}
		if at < len(windows) && windows[at].First <= row {
			r.True++
			r.Missed--
		} else {
			r.False++
		}
	}
	return r
}

// BestPoints returns the counts with the largest F1 over all thresholds of the score, which is one
// for all series.
func BestPoints(scores [][]float32, windows [][]quality.Window) Rows {
	type scored struct {
		score  float32
		inside bool
	}
	var rows []scored
	var now, best Rows
	for i, s := range scores {
		at := 0
		for row, x := range s {
			for at < len(windows[i]) && windows[i][at].Last < row {
				at++
			}
			inside := at < len(windows[i]) && windows[i][at].First <= row
			if inside {
				now.Missed++
			}
			rows = append(rows, scored{x, inside})
		}
	}
	slices.SortFunc(rows, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	best = now
	for k, r := range rows {
		if r.inside {
			now.True++
			now.Missed--
		} else {
			now.False++
		}
		if last := k+1 == len(rows) || rows[k+1].score < r.score; last && now.F1() > best.F1() {
			best = now
		}
	}
	return best
}
