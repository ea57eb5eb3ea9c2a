package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/internal/labelled"
)

// early is the time at the start of a series in which alarms are counted apart.
const early = 3 * 24 * time.Hour

// quiet counts the alarms, which are the decisions anomalous, of the predictor on quiet series of a
// month.
func (m *measurement) quiet() ([]block, error) {
	t := newTable("family", "alarms a month: mean", "most", "in the first three days", "learning off: mean")
	sum, sumOff, months := 0, 0, 0
	for _, f := range labelled.Families() {
		if f.HeldBack && m.o.choose {
			continue
		}
		series := make([]labelled.Series, m.o.quiet)
		for n := range series {
			var err error
			if series[n], err = labelled.Quiet(m.o.seed, f.Name, n); err != nil {
				return nil, err
			}
		}
		own, err := m.run(m.own, series)
		if err != nil {
			return nil, err
		}
		off, err := m.run(m.off, series)
		if err != nil {
			return nil, err
		}
		alarms, most, first, alarmsOff := 0, 0, 0, 0
		for i, r := range own {
			alarms += len(r.alarms)
			most = max(most, len(r.alarms))
			alarmsOff += len(off[i].alarms)
			end := r.series.Times[0] + int64(early)
			before, _ := slices.BinarySearch(r.series.Times, end)
			for _, row := range r.alarms {
				if row < before {
					first++
				}
			}
		}
		n := float64(len(series))
		t.row(heldBack("family", f.Name), f1(float64(alarms)/n), fmt.Sprint(most), f1(float64(first)/n),
			f1(float64(alarmsOff)/n))
		sum, sumOff, months = sum+alarms, sumOff+alarmsOff, months+len(series)
	}
	if months > 0 {
		t.row("**all**", "**"+f1(float64(sum)/float64(months))+"**", "", "", f1(float64(sumOff)/float64(months)))
	}
	return []block{{"quiet", t.String()}}, nil
}

// recorded measures the telemetry that was recorded of real processes.
func (m *measurement) recorded() ([]block, error) {
	t := newTable("step", "series", "windows", "predictor: VUS-PR", "range F1", "own alarms", "alarms outside",
		"best other: VUS-PR")
	for _, step := range []time.Duration{time.Second, 5 * time.Second} {
		series, err := labelled.Recorded(step)
		if err != nil {
			return nil, err
		}
		own, err := m.run(m.own, series)
		if err != nil {
			return nil, err
		}
		others := make([][]result, len(m.others))
		for d := range m.others {
			if others[d], err = m.run(m.others[d], series); err != nil {
				return nil, err
			}
		}
		for i, r := range own {
			best, name := 0.0, "-"
			for d := range others {
				if v := others[d][i].vus; v > best {
					best, name = v, m.others[d].name
				}
			}
			found, outside := byAlarms(&r)
			t.row(step.String(), r.series.Name, fmt.Sprint(len(r.series.Windows)), f3(r.vus), f3(r.f1),
				fmt.Sprint(found), fmt.Sprint(outside), f3(best)+" "+name)
		}
	}
	return []block{{"recorded", t.String()}}, nil
}
