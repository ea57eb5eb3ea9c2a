package measures

import (
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// Quiet is the number of rows after an alarm in which further rows above the threshold belong to
// it.
const Quiet = 30

// Alarms returns the rows at which an alarm begins: rows with at least the score threshold, at
// least quiet rows after the alarm before. A score that stays high raises further alarms, so that a
// detector gains nothing by one endless alarm.
func Alarms(scores []float32, threshold float32, quiet int) []int {
	var alarms []int
	last := math.MinInt / 2
	for row, x := range scores {
		if x >= threshold && row-last >= quiet {
			alarms = append(alarms, row)
			last = row
		}
	}
	return alarms
}

// Found counts the windows in which a row reaches the threshold, all windows, and the alarms that
// begin outside of the windows.
type Found struct{ Windows, Of, Outside int }

// Add adds the counts of another series.
func (f *Found) Add(g Found) {
	f.Windows += g.Windows
	f.Of += g.Of
	f.Outside += g.Outside
}

// Find counts. A window reaches slack rows beyond its last one, for detectors that see an incident
// by its end.
func Find(scores []float32, windows []quality.Window, threshold float32, slack int) Found {
	f := Found{Of: len(windows)}
	for _, w := range windows {
		last := min(w.Last+slack, len(scores)-1)
		if slices.ContainsFunc(scores[w.First:last+1], func(x float32) bool { return x >= threshold }) {
			f.Windows++
		}
	}
	for _, row := range Alarms(scores, threshold, Quiet) {
		if !slices.ContainsFunc(windows, func(w quality.Window) bool { return w.First <= row && row <= w.Last+slack }) {
			f.Outside++
		}
	}
	return f
}

// Point is one threshold of a curve.
type Point struct {
	Threshold float32
	// Found is the share of windows found; Outside are alarms outside of windows in 1,000 rows.
	Found, Outside float64
}

// Curve returns detection against false alarms over several series, for some thresholds, which
// fall.
func Curve(scores [][]float32, windows [][]quality.Window, slack int, thresholds []float32) []Point {
	points := make([]Point, 0, len(thresholds))
	rows := 0
	for _, s := range scores {
		rows += len(s)
	}
	for _, t := range thresholds {
		var all Found
		for i, s := range scores {
			all.Add(Find(s, windows[i], t, slack))
		}
		points = append(points, Point{
			t, float64(all.Windows) / float64(max(all.Of, 1)), 1000 * float64(all.Outside) / float64(max(rows, 1)),
		})
	}
	return points
}

// Thresholds returns n scores that few to many rows of all series reach, falling: equal steps of
// the logarithm of the number of rows.
func Thresholds(scores [][]float32, n int) []float32 {
	all := slices.Concat(scores...)
	slices.Sort(all)
	var thresholds []float32
	for k := range n {
		rows := int(math.Pow(float64(len(all)), float64(k)/float64(n-1)) * 0.5)
		t := all[len(all)-1-min(rows, len(all)-1)]
		if len(thresholds) == 0 || t < thresholds[len(thresholds)-1] {
			thresholds = append(thresholds, t)
		}
	}
	return thresholds
}

// At returns the point of a curve with the most detections at no more than a rate of alarms
// outside. ok is false if there is none.
func At(curve []Point, outside float64) (best Point, ok bool) {
	for _, p := range curve {
		if p.Outside <= outside && (!ok || p.Found > best.Found) {
			best, ok = p, true
		}
	}
	return best, ok
}

// Rate is the number of alarms on series without incidents, and the days of all these series
// together. For a rate per observation it has their observations in place of days.
type Rate struct {
	Alarms int
	Days   float64
}

// Add adds another rate.
func (r *Rate) Add(s Rate) {
	r.Alarms += s.Alarms
	r.Days += s.Days
}

// PerDay is the number of alarms in a day of one series.
func (r Rate) PerDay() float64 {
	if r.Days == 0 {
		return 0
	}
	return float64(r.Alarms) / r.Days
}

// Against returns how far the rate is from the asked one, as a factor of 1 or more: 2 is twice or
// half as many alarms a day as asked. It is infinite if one of both rates is 0.
func (r Rate) Against(asked float64) float64 {
	ratio := r.PerDay() / asked
	if ratio == 0 || math.IsNaN(ratio) {
		return math.Inf(1)
	}
	return max(ratio, 1/ratio)
}
