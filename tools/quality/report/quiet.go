package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/tools/labelled"
	"github.com/exoswarm/exoswarm/tools/quality/measures"
)

// early is the time at the start of a series in which alarms are counted apart.
const early = 3 * 24 * time.Hour

const month = 30

// quiet counts the alarms, which are the decisions anomalous, of the predictor on quiet series of a
// month.
func (m *measurement) quiet() ([]block, error) {
	t := newTable("family", "alarms a month: mean", "most", "in the first three days", "learning off: mean")
	var all, allOff measures.Rate
	rows := 0
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
		var rate, rateOff measures.Rate
		most, first := 0, 0
		for i, r := range own {
			times := r.series.Times
			days := time.Duration(times[len(times)-1]-times[0]).Hours() / 24
			rate.Add(measures.Rate{Alarms: len(r.alarms), Days: days})
			rateOff.Add(measures.Rate{Alarms: len(off[i].alarms), Days: days})
			most = max(most, len(r.alarms))
			rows += len(times)
			end := r.series.Times[0] + int64(early)
			before, _ := slices.BinarySearch(r.series.Times, end)
			for _, row := range r.alarms {
				if row < before {
					first++
				}
			}
		}
		n := float64(len(series))
		t.row(heldBack("family", f.Name), f1(month*rate.PerDay()), fmt.Sprint(most), f1(float64(first)/n),
			f1(month*rateOff.PerDay()))
		all.Add(rate)
		allOff.Add(rateOff)
	}
	t.row("**all**", "**"+f1(month*all.PerDay())+"**", "", "", f1(month*allOff.PerDay()))
	text := fmt.Sprintf("\nAll together: %.3f alarms a day and series. ", all.PerDay())
	if rate, ok := m.asked(); ok {
		text += fmt.Sprintf("Asked for: %g an observation, a factor of %.2f away.\n", rate,
			measures.Rate{Alarms: all.Alarms, Days: float64(rows)}.Against(rate))
	} else {
		text += "No rate was asked for.\n"
	}
	return []block{{"quiet", t.String() + text}}, nil
}

// asked returns the false alarms an observation that the predictor is asked for, if it is asked.
func (m *measurement) asked() (float64, bool) {
	c, _ := cells.Lookup("predictor")
	for _, p := range c.Params {
		if p.Name != "false_alarm_rate" {
			continue
		}
		v, set := m.o.values[p.Name]
		if !set {
			v = p.Default
		}
		return v, v > 0
	}
	return 0, false
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
