package quality

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestCheck(t *testing.T) {
	if err := Check([]float32{0, 0.5, 1}, 3); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]float32{{0, 1}, {0, 0, 1.5}, {0, 0, float32(math.NaN())}, {-0.1, 0, 0}} {
		if err := Check(bad, 3); !errors.Is(err, ErrScores) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestBehind(t *testing.T) {
	all := []Window{{First: 0, Last: 1}, {First: 2, Last: 4}, {First: 5, Last: 5}}
	scores, windows := Behind([]float32{0, 1, 2, 3, 4, 5}, all, 3)
	want := []Window{{First: 0, Last: 1}, {First: 2, Last: 2}}
	if !slices.Equal(scores, []float32{3, 4, 5}) || !slices.Equal(windows, want) {
		t.Errorf("%v %v", scores, windows)
	}
}

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

func TestBestF1(t *testing.T) {
	scores := []float32{0, 0.2, 0.9, 0.8, 0.1, 0.5, 0}
	f1, threshold := BestF1(scores, []Window{{First: 2, Last: 3}})
	if !near(f1, 1) || threshold != 0.8 {
		t.Errorf("%v at %v", f1, threshold)
	}
	if f1, _ := BestF1(make([]float32, 7), []Window{{First: 2, Last: 3}}); f1 != 0 {
		t.Errorf("scores of 0: F1 %v", f1)
	}
	if got := Above(scores, 0.5); !slices.Equal(got, []Window{{First: 2, Last: 3}, {First: 5, Last: 5}}) {
		t.Errorf("ranges %v", got)
	}
}

func TestAlarmsByHand(t *testing.T) {
	scores := make([]float32, 200)
	for _, row := range []int{10, 12, 39, 100, 150, 151} {
		scores[row] = 0.8
	}
	// 39 is 29 rows after 10: the same alarm.
	if got := Alarms(scores, 0.8, Quiet); !slices.Equal(got, []int{10, 100, 150}) {
		t.Errorf("alarms %v", got)
	}
	if got := Alarms(scores[10:100], 0, Quiet); !slices.Equal(got, []int{0, 30, 60}) {
		t.Errorf("alarms of a score that stays high: %v", got)
	}
	windows := []Window{{First: 90, Last: 99}, {First: 120, Last: 130}, {First: 151, Last: 160}}
	if got := Find(scores, windows, 0.8, 0); got != (Found{1, 3, 3}) {
		t.Errorf("%+v", got)
	}
	if got := Find(scores, windows, 0.8, 5); got != (Found{2, 3, 2}) {
		t.Errorf("with slack: %+v", got)
	}
}

func TestCurve(t *testing.T) {
	scores := [][]float32{make([]float32, 500), make([]float32, 500)}
	scores[0][100], scores[0][200], scores[1][300] = 0.9, 0.5, 0.7
	windows := [][]Window{{{First: 200, Last: 210}}, {{First: 300, Last: 300}}}
	curve := Curve(scores, windows, 0, []float32{0.9, 0.7, 0.5})
	want := []Point{{0.9, 0, 1}, {0.7, 0.5, 1}, {0.5, 1, 1}}
	if !slices.Equal(curve, want) {
		t.Errorf("%v, want %v", curve, want)
	}
	if p, ok := At(curve, 1); !ok || p.Threshold != 0.5 {
		t.Errorf("%+v %v", p, ok)
	}
	if p, ok := At(curve, 0.5); ok {
		t.Errorf("%+v", p)
	}
	thresholds := Thresholds(scores, 20)
	falls := func(a, b float32) int { return cmp.Compare(b, a) }
	if thresholds[0] != 0.9 || !slices.IsSortedFunc(thresholds, falls) {
		t.Errorf("thresholds %v", thresholds)
	}
}

func TestRateByHand(t *testing.T) {
	r := Rate{Alarms: 3, Days: 20}
	r.Add(Rate{Alarms: 1, Days: 20})
	if !near(r.PerDay(), 0.1) || !near(r.Against(0.1), 1) || !near(r.Against(0.05), 2) || !near(r.Against(0.4), 4) {
		t.Errorf("%+v: %v a day, %v %v %v", r, r.PerDay(), r.Against(0.1), r.Against(0.05), r.Against(0.4))
	}
	if !math.IsInf((Rate{0, 10}).Against(1), 1) || (Rate{}).PerDay() != 0 {
		t.Error("no alarm is not infinitely far from the asked rate")
	}
}
