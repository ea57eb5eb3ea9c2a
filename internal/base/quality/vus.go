package quality

import (
	"math"
	"slices"
)

// Buffer is the longest buffer of VUSPR that the figures of docs/quality.md use, in rows.
const Buffer = 100

// bufferStep is the distance of two buffer lengths. Every length would give the same to 0.001.
const bufferStep = 5

// VUSPR returns the volume under the surface of precision and recall (Paparrizos et al., PVLDB
// 15(11), 2022): the mean of RangeAUCPR over buffers of 0 to longest rows. It is 1 for scores that
// rank all rows of incidents above all others, and about the share of these rows for random ones.
// Without windows it is NaN.
func VUSPR(scores []float32, windows []Window, longest int) float64 {
	order := falling(scores)
	sum, n := 0.0, 0
	for buffer := 0; buffer <= longest; buffer += bufferStep {
		sum += rangeAUCPR(scores, order, windows, buffer)
		n++
	}
	return sum / float64(n)
}

// RangeAUCPR returns the area under the curve of precision and recall over all thresholds, with
// labels that fall off around each window within half of the buffer. Recall is multiplied by the
// share of windows that are found at all.
func RangeAUCPR(scores []float32, windows []Window, buffer int) float64 {
	return rangeAUCPR(scores, falling(scores), windows, buffer)
}

// falling returns the rows by falling score.
func falling(scores []float32) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order
}

func rangeAUCPR(scores []float32, order []int, windows []Window, buffer int) float64 {
	if len(windows) == 0 {
		return math.NaN()
	}
	labels := Soften(len(scores), windows, buffer)
	segment, segments := segmentsOf(labels)
	hard, soft := 0.0, 0.0
	for _, w := range windows {
		hard += float64(w.Last - w.First + 1)
	}
	for _, v := range labels {
		soft += v
	}
	positives := (hard + soft) / 2

	found, touched := make([]bool, segments), 0
	area, inside, recall := 0.0, 0.0, 0.0
	for k, row := range order {
		inside += labels[row]
		if s := segment[row]; s >= 0 && !found[s] {
			found[s] = true
			touched++
		}
		if k+1 < len(order) && scores[order[k+1]] == scores[row] {
			continue // not a threshold: the next row has the same score
		}
		now := min(inside/positives, 1) * float64(touched) / float64(segments)
		area += (now - recall) * inside / float64(k+1)
		recall = now
	}
	return area
}

// Soften returns labels of rows: 1 inside of a window, falling off outside as the root of one less
// the distance by the buffer, up to half a buffer away, and 0 elsewhere. The labels of two windows
// add up to 1 at most.
func Soften(rows int, windows []Window, buffer int) []float64 {
	labels := make([]float64, rows)
	for _, w := range windows {
		for row := max(w.First-buffer/2, 0); row <= min(w.Last+buffer/2, rows-1); row++ {
			distance := max(w.First-row, row-w.Last, 0)
			if distance == 0 {
				labels[row] = 1
				continue
			}
			labels[row] = min(labels[row]+math.Sqrt(1-float64(distance)/float64(buffer)), 1)
		}
	}
	return labels
}

// segmentsOf numbers the runs of labels above 0. Rows outside have -1.
func segmentsOf(labels []float64) (segment []int, n int) {
	segment = make([]int, len(labels))
	for row, v := range labels {
		segment[row] = -1
		if v > 0 {
			if row == 0 || labels[row-1] == 0 {
				n++
			}
			segment[row] = n - 1
		}
	}
	return segment, n
}
