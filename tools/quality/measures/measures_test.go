package measures

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
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
	all := []quality.Window{{First: 0, Last: 1}, {First: 2, Last: 4}, {First: 5, Last: 5}}
	scores, windows := Behind([]float32{0, 1, 2, 3, 4, 5}, all, 3)
	want := []quality.Window{{First: 0, Last: 1}, {First: 2, Last: 2}}
	if !slices.Equal(scores, []float32{3, 4, 5}) || !slices.Equal(windows, want) {
		t.Errorf("%v %v", scores, windows)
	}
}

func TestBestF1(t *testing.T) {
	scores := []float32{0, 0.2, 0.9, 0.8, 0.1, 0.5, 0}
	f1, threshold := BestF1(scores, []quality.Window{{First: 2, Last: 3}})
	if !near(f1, 1) || threshold != 0.8 {
		t.Errorf("%v at %v", f1, threshold)
	}
	if f1, _ := BestF1(make([]float32, 7), []quality.Window{{First: 2, Last: 3}}); f1 != 0 {
		t.Errorf("scores of 0: F1 %v", f1)
	}
	if got := Above(scores, 0.5); !slices.Equal(got, []quality.Window{{First: 2, Last: 3}, {First: 5, Last: 5}}) {
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
	windows := []quality.Window{{First: 90, Last: 99}, {First: 120, Last: 130}, {First: 151, Last: 160}}
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
	windows := [][]quality.Window{{{First: 200, Last: 210}}, {{First: 300, Last: 300}}}
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
