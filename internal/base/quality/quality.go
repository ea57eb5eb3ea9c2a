// Package quality measures anomaly detectors on labelled series: how well their scores rank the
// rows of incidents above the others, how many incidents they find, and how many alarms lie
// elsewhere.
//
// Scores are from 0 to 1, one a row; a higher score is more anomalous. Windows are the rows of
// incidents, first and last, in order and apart from each other.
package quality

import (
	"errors"
	"fmt"
)

// ErrScores says that the number of scores differs from the number of rows, or a score is out of [0, 1].
var ErrScores = errors.New("invalid scores")

// Check returns an ErrScores unless there is one score in [0, 1] for each row.
func Check(scores []float32, rows int) error {
	if len(scores) != rows {
		return fmt.Errorf("%w: %d for %d rows", ErrScores, len(scores), rows)
	}
	for row, x := range scores {
		if !(x >= 0 && x <= 1) {
			return fmt.Errorf("%w: row %d: %v is not in [0, 1]", ErrScores, row+1, x)
		}
	}
	return nil
}

// Behind returns the scores and windows from a row on, which becomes row 0. A window that ends
// before the row is left out, and a window around the row is cut to begin with it.
func Behind(scores []float32, windows []Window, from int) ([]float32, []Window) {
	var kept []Window
	for _, w := range windows {
		if w.Last >= from {
			kept = append(kept, Window{First: max(w.First-from, 0), Last: w.Last - from})
		}
	}
	return scores[from:], kept
}

// Probation is the number of rows at the start of a series that do not count: 15 % and at most 750,
// as in NAB.
func Probation(rows int) int { return min(rows*15/100, 750) }
