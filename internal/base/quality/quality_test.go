package quality

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestRangeAUCByHand: five rows, a window of rows 2 and 3.
func TestRangeAUCByHand(t *testing.T) {
	windows := []Window{{First: 2, Last: 3}}
	cases := []struct {
		name   string
		scores []float32
		buffer int
		want   float64
	}{
		{"perfect", []float32{0, 0, 1, 0.9, 0}, 0, 1},
		// Row 0 first: precision 1/2 at recall 1/2, 2/3 at recall 1.
		{"a false alarm first", []float32{1, 0, 0.9, 0.8, 0}, 0, 0.5*0.5 + 0.5*2/3},
		// One threshold: precision 2/5 at recall 1.
		{"constant", []float32{0.3, 0.3, 0.3, 0.3, 0.3}, 0, 0.4},
		// Rows 1 and 4 have sqrt(1/2) with a buffer of 2, so positives are (2 + 2 + sqrt 2)/2. Row
		// 4 alone: recall sqrt(1/2) by that, precision sqrt(1/2). Then all rows, recall 1 at most:
		// (2 + sqrt 2)/5.
		{
			"the row after",
			[]float32{0, 0, 0, 0, 1},
			2,
			0.5/(2+math.Sqrt2/2) + (1-math.Sqrt(0.5)/(2+math.Sqrt2/2))*(2+math.Sqrt2)/5,
		},
	}
	for _, c := range cases {
		if got := RangeAUCPR(c.scores, windows, c.buffer); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// Two windows. The first two rows find one window: recall 1/2 times the share 1/2.
	two := []Window{{First: 0, Last: 1}, {First: 3, Last: 4}}
	if got, want := RangeAUCPR([]float32{1, 1, 0, 0, 0}, two, 0), 0.25*1+0.75*0.8; !near(got, want) {
		t.Errorf("one window of two: %v, want %v", got, want)
	}
	if got := VUSPR([]float32{0, 0, 1, 0.9, 0}, nil, 10); !math.IsNaN(got) {
		t.Errorf("without windows: %v", got)
	}
}

// slowVUS is the twin of VUSPR: every threshold and every buffer from the definition.
func slowVUS(scores []float32, windows []Window, longest int) float64 {
	sum, n := 0.0, 0
	for buffer := 0; buffer <= longest; buffer += bufferStep {
		labels := make([]float64, len(scores))
		hard := 0.0
		for row := range labels {
			for _, w := range windows {
				switch {
				case w.First <= row && row <= w.Last:
					labels[row] = 1
					hard++
				case row < w.First && w.First-row <= buffer/2:
					labels[row] += math.Sqrt(1 - float64(w.First-row)/float64(buffer))
				case row > w.Last && row-w.Last <= buffer/2:
					labels[row] += math.Sqrt(1 - float64(row-w.Last)/float64(buffer))
				}
			}
			labels[row] = min(labels[row], 1)
		}
		thresholds := slices.Clone(scores)
		slices.Sort(thresholds)
		thresholds = slices.Compact(thresholds)
		slices.Reverse(thresholds)
		before := 0.0
		for _, t := range thresholds {
			predicted, inside, soft, segments, found := 0.0, 0.0, 0.0, 0.0, 0.0
			within, hit := false, false
			for row, v := range labels {
				soft += v
				if v > 0 && !within {
					segments++
					hit = false
				}
				within = v > 0
				if scores[row] >= t {
					predicted++
					inside += v
					if within && !hit {
						hit = true
						found++
					}
				}
			}
			recall := min(inside/((hard+soft)/2), 1) * found / segments
			sum += (recall - before) * inside / predicted
			before = recall
		}
		n++
	}
	return sum / float64(n)
}

func randomWindows(rng *rand.Rand, rows int) []Window {
	var windows []Window
	for at := rng.IntN(10); ; {
		last := at + rng.IntN(8)
		if last >= rows {
			return windows
		}
		windows = append(windows, Window{First: at, Last: last})
		at = last + 2 + rng.IntN(40)
	}
}

func TestVUSEqualsTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		rows := 20 + rng.IntN(150)
		scores := make([]float32, rows)
		for i := range scores {
			scores[i] = float32(rng.IntN(20)) / 20
		}
		windows := randomWindows(rng, rows)
		got, want := VUSPR(scores, windows, 40), slowVUS(scores, windows, 40)
		if !near(got, want) && !(math.IsNaN(got) && len(windows) == 0) {
			t.Fatalf("%d rows, windows %v: %v, want %v", rows, windows, got, want)
		}
	}
}

func TestRangesByHand(t *testing.T) {
	w := func(edges ...int) (all []Window) {
		for i := 0; i < len(edges); i += 2 {
			all = append(all, Window{First: edges[i], Last: edges[i+1]})
		}
		return all
	}
	cases := []struct {
		name               string
		predicted, windows []Window
		precision, recall  float64
	}{
		{"equal", w(2, 5), w(2, 5), 1, 1},
		{"none", nil, w(2, 5), 0, 0},
		{"apart", w(8, 9), w(2, 5), 0, 0},
		{"two rows out of four, two out of three", w(4, 6), w(2, 5), 2.0 / 3, 0.2 + 0.8*0.5},
		{"two ranges in one window", w(2, 2, 5, 5), w(2, 5), 1, 0.2 + 0.8*0.5/2},
		{"one range over two windows", w(0, 9), w(0, 1, 8, 9), 0.4 / 2, 1},
		{"one found out of two, and one false", w(0, 1, 20, 20), w(0, 1, 8, 9), 0.5, 0.5},
	}
	for _, c := range cases {
		if got := Ranges(c.predicted, c.windows); !near(got.Precision, c.precision) || !near(got.Recall, c.recall) {
			t.Errorf("%s: %+v, want %v %v", c.name, got, c.precision, c.recall)
		}
	}
	if got := (Range{0.5, 1}).F1(); !near(got, 2.0/3) {
		t.Errorf("F1 %v", got)
	}
}
