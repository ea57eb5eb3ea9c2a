// Package measures has what the measurements of docs/quality.md share beyond the scores of package
// quality: the alarms of a detector at thresholds, its best ranges, and the halves and the copies
// of labelled streams.
package measures

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// ErrScores says that the number of scores differs from the number of rows, or a score is out of
// [0, 1].
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
func Behind(scores []float32, windows []quality.Window, from int) ([]float32, []quality.Window) {
	var kept []quality.Window
	for _, w := range windows {
		if w.Last >= from {
			kept = append(kept, quality.Window{First: max(w.First-from, 0), Last: w.Last - from})
		}
	}
	return scores[from:], kept
}

// Above returns the ranges of rows with at least a score.
func Above(scores []float32, threshold float32) []quality.Window {
	var ranges []quality.Window
	for row, x := range scores {
		switch {
		case !(x >= threshold):
		case len(ranges) > 0 && ranges[len(ranges)-1].Last == row-1:
			ranges[len(ranges)-1].Last = row
		default:
			ranges = append(ranges, quality.Window{First: row, Last: row})
		}
	}
	return ranges
}

// cuts is the number of thresholds that BestF1 tries.
const cuts = 60

// BestF1 returns the largest F1 of quality.Ranges over thresholds that are scores of the series:
// the scores of rank 1, 2, 3, ... of n rows, in steps that grow.
func BestF1(scores []float32, windows []quality.Window) (f1 float64, threshold float32) {
	sorted := slices.Clone(scores)
	slices.Sort(sorted)
	n := len(sorted)
	for k, rows := 0, 1; k < cuts && rows <= n; k, rows = k+1, max(rows+1, rows*9/8) {
		t := sorted[n-rows]
		if t <= 0 {
			break
		}
		if r := quality.Ranges(Above(scores, t), windows); r.F1() > f1 {
			f1, threshold = r.F1(), t
		}
	}
	return f1, threshold
}
