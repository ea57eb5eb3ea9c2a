package quality

import (
	"fmt"
	"math"
	"slices"
)

// Profile weighs the three events of the benchmark: a window found, a false alarm, a window missed.
type Profile struct{ Found, False, Missed float64 }

// The benchmark's profiles.
var (
	Standard    = Profile{1, 0.11, 1}
	RewardLowFP = Profile{1, 0.22, 1}
	RewardLowFN = Profile{1, 0.11, 2}
)

// Result is a detector's score over a set of streams.
type Result struct {
	// NABScore is 100 for a perfect detector and 0 for one that never fires; it has no lower bound.
	Score float64
	// Threshold is the threshold of the score: a row fires when its anomaly score is at least
	// Threshold.
	Threshold float64
	// Windows is the number of labelled windows that counted.
	Windows int
}

// NABScore grades anomaly scores in [0,1], one slice a stream and one score a row. One threshold
// serves all streams: the best one, as the benchmark has it.
func NABScore(p Profile, streams []Stream, scores [][]float32) (Result, error) {
	points, total, err := grade(streams, scores)
	if err != nil {
		return Result{}, err
	}
	null := -p.Missed * float64(total)
	best, at := null, 1.1
	found, penalty := null, 0.0
	part := make([]float64, total)
	for i := range part {
		part[i] = -p.Missed
	}
	for k, q := range points {
		if k > 0 && q.score != points[k-1].score && found+penalty > best {
			best, at = found+penalty, points[k-1].score
		}
		if q.window < 0 {
			penalty += p.False * q.value
		} else {
			old := part[q.window]
			part[q.window] = max(old, p.Found*q.value)
			found += part[q.window] - old
		}
	}
	if len(points) > 0 && found+penalty > best {
		best, at = found+penalty, points[len(points)-1].score
	}
	return Result{Score: 100 * (best - null) / (p.Found*float64(total) - null), Threshold: at, Windows: total}, nil
}

// NABScoreAt is Score at a threshold that was chosen elsewhere, as on other streams.
func NABScoreAt(p Profile, streams []Stream, scores [][]float32, threshold float64) (Result, error) {
	points, total, err := grade(streams, scores)
	if err != nil {
		return Result{}, err
	}
	null := -p.Missed * float64(total)
	sum, part := null, make([]float64, total)
	for i := range part {
		part[i] = -p.Missed
	}
	for _, q := range points {
		switch {
		case q.score < threshold:
		case q.window < 0:
			sum += p.False * q.value
		default:
			old := part[q.window]
			part[q.window] = max(old, p.Found*q.value)
			sum += part[q.window] - old
		}
	}
	return Result{Score: 100 * (sum - null) / (p.Found*float64(total) - null), Threshold: threshold, Windows: total},
		nil
}

// point is one row behind the probation of its stream.
type point struct {
	score  float64
	window int     // index among the windows of all streams, or -1
	value  float64 // of a detection here, before the profile's weight
}

// grade lists the rows that count, by falling score, with the number of windows that hold one. The
// first 15 % of a stream, 750 rows at most, are probation and do not count.
func grade(streams []Stream, scores [][]float32) ([]point, int, error) {
	if len(scores) != len(streams) {
		return nil, 0, fmt.Errorf("nab: scores of %d streams for %d", len(scores), len(streams))
	}
	var points []point
	total := 0
	for i, s := range streams {
		if len(scores[i]) != len(s.Times) {
			return nil, 0, fmt.Errorf("nab: %s: %d scores for %d rows", s.Name, len(scores[i]), len(s.Times))
		}
		probation := min(int(math.Floor(0.15*float64(len(s.Times)))), 750)
		index := make([]int, len(s.Windows))
		for w := range index {
			index[w] = -1
		}
		inside := 0
		for row, x := range scores[i] {
			if !(x >= 0 && x <= 1) {
				return nil, 0, fmt.Errorf("nab: %s: row %d: score %v is not in [0, 1]", s.Name, row+1, x)
			}
			for inside < len(s.Windows) && row > s.Windows[inside].Last {
				inside++
			}
			if row < probation {
				continue
			}
			window, value := -1, worth(row, inside, s.Windows)
			if inside < len(s.Windows) && row >= s.Windows[inside].First {
				if index[inside] < 0 {
					index[inside] = total
					total++
				}
				window = index[inside]
			}
			points = append(points, point{float64(x), window, value})
		}
	}
	slices.SortStableFunc(points, func(a, b point) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	return points, total, nil
}

// worth is the value of a detection at a row; w is the first window that does not end before it.
func worth(row, w int, windows []Window) float64 {
	if w < len(windows) && row >= windows[w].First {
		first, last := windows[w].First, windows[w].Last
		return decay(-float64(last-row+1)/float64(last-first+1)) / decay(-1)
	}
	if w == 0 {
		return -1
	}
	before := windows[w-1]
	return decay(float64(row-before.Last) / float64(before.Last-before.First))
}

// decay is the value of a detection at relative position y: 0 at a window's right edge, negative
// behind it. At its left edge, -1, it is the largest, which worth scales to 1.
func decay(y float64) float64 {
	if y > 3 {
		return -1
	}
	return 2/(1+math.Exp(5*y)) - 1
}
