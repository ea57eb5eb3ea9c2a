package celldetector_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/evaluation"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// young counts what a detector finds in new entities.
type young struct {
	t                     *testing.T
	d                     *evaluation.CellDetector
	planted, found, other int // jumps, jumps with an alarm, and other alarms
}

// see runs an entity of n hourly rows with noise. It has a jump of 75 deviations at three rows from
// row at on; -1: none.
func (y *young) see(entity uint64, n, at int) {
	y.t.Helper()
	r := rand.New(rand.NewPCG(entity, 77))
	times, x := make([]int64, n), make([]float32, n)
	for i := range n {
		times[i], x[i] = 1_772_409_600e9+int64(i)*int64(time.Hour), float32(20+0.1*r.NormFloat64())
		if at >= 0 && i >= at && i < at+3 {
			x[i] += 7.5
		}
	}
	out, err := y.d.Run(times, x, 1)
	if err != nil {
		y.t.Fatal(err)
	}
	seen := false
	for _, row := range out.Anomalous() {
		if at >= 0 && row >= at && row < at+3 {
			seen = true
		} else {
			y.other++
		}
	}
	if at >= 0 {
		y.planted++
	}
	if seen {
		y.found++
	}
}

// TestYoungEntities: a jump is found from the first rows on, and quiet entities raise few alarms.
func TestYoungEntities(t *testing.T) {
	d, err := evaluation.NewCellDetector(evaluation.CellOptions{Agents: 16, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var all young
	for _, of := range []struct{ row, want int }{{20, 5}, {60, 6}, {120, 6}, {400, 6}} {
		y := young{t: t, d: d}
		for e := range uint64(6) {
			y.see(e+uint64(of.row), 500, of.row)
		}
		t.Logf("a jump at row %d: found in %d of %d entities", of.row, y.found, y.planted)
		if y.found < of.want {
			t.Errorf("a jump at row %d: found in %d of %d entities, want %d", of.row, y.found, y.planted, of.want)
		}
		all.other += y.other
	}
	y := young{t: t, d: d}
	for e := range uint64(36) {
		y.see(1000+e, 500, -1)
	}
	if all.other += y.other; all.other > 3 {
		t.Errorf("%d alarms outside of jumps of 60 entities, want at most 3", all.other)
	}

	fleet := young{t: t, d: d}
	for e := range uint64(20) {
		fleet.see(3000+e, 150, 15+int(e)*130/20)
	}
	quiet := testkit.Of(1980, 200)
	for e := range uint64(quiet) {
		fleet.see(4000+e, 150, -1)
	}
	t.Logf("a fleet of %d entities of 150 rows: %d of %d jumps found, %d other alarms", quiet+20, fleet.found,
		fleet.planted, fleet.other)
	if fleet.found < 19 || fleet.other > quiet/99 {
		t.Errorf("%d of %d jumps found, want 19; %d other alarms, want at most %d", fleet.found, fleet.planted,
			fleet.other, quiet/99)
	}
}
