package evaluation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// now is the default setting with fewer agents, which compute faster.
var now = Setting{Alarm: 0.37, Agents: 16}

// streams returns n series of two weeks, and labels of their incidents: noise with a memory and a
// day, and four hours of another level in each week.
func streams(t *testing.T, n int) (all []TuneSeries, labels []report.Label) {
	t.Helper()
	const week, incident = 7 * 144, 24 // rows of ten minutes
	var texts []map[string]string
	for i := range n {
		r := rand.New(rand.NewPCG(510, uint64(i)))
		s, memory := TuneSeries{Name: fmt.Sprint("s", i)}, 0.0
		at := func(row int) time.Time { return time.Unix(0, 0).UTC().Add(time.Duration(row) * 10 * time.Minute) }
		text := func(row int) string { return at(row).Format(time.RFC3339) }
		for row := range 2 * week {
			memory = 0.6*memory + r.NormFloat64()
			value := 20 + 5*math.Sin(2*math.Pi*float64(row%144)/144) + memory
			if first := week - 100 - 10*i; row%week >= first && row%week < first+incident {
				value += 4 + float64(i)
				if row%week == first {
					texts = append(texts, map[string]string{
						"series": s.Name, "begin": text(row), "end": text(row + incident - 1),
					})
				}
			}
			s.Times, s.Rows = append(s.Times, at(row).UnixNano()), append(s.Rows, float32(value))
		}
		all = append(all, s)
	}
	data, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	if labels, err = report.ParseLabels(data); err != nil {
		t.Fatalf("ParseLabels: %v", err)
	}
	return all, labels
}

// TestUnseen: whatever the part to judge on has, the choice and everything that was measured for it
// are the same; what the part to choose on has changes them.
func TestUnseen(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	series, labels := streams(t, 6)
	for _, way := range []string{ByTime, ByEntity} {
		o := TuneOptions{
			Setting: now, Features: 1, Seed: 1, Labels: labels, Split: way, Share: 0.7,
			Alarms: []float64{0.43}, Sizes: []int{8},
		}
		want, err := Tune(t.Context(), series, o)
		if err != nil {
			t.Fatal(err)
		}
		// changed returns the series with other values in one of the parts.
		changed := func(judged bool) []TuneSeries {
			choosing, _, _, err := split(series, &o)
			if err != nil {
				t.Fatal(err)
			}
			rows := map[string]int{} // to choose on
			for _, s := range choosing.series {
				rows[s.Name] = len(s.Times)
			}
			out := slices.Clone(series)
			for i := range out {
				out[i].Rows = slices.Clone(out[i].Rows)
				for row := range out[i].Rows {
					if (row >= rows[out[i].Name]) == judged {
						out[i].Rows[row] = float32(math.Sin(float64(row*row))) * 50
					}
				}
			}
			return out
		}
		got, err := Tune(t.Context(), changed(true), o)
		if err != nil {
			t.Fatal(err)
		}
		if got.Chosen != want.Chosen || !slices.Equal(got.Tried, want.Tried) {
			t.Errorf("%s: other values to judge on change the choice: %+v, %+v", way, got.Chosen, want.Chosen)
		}
		if got.Before == want.Before {
			t.Errorf("%s: other values to judge on do not change its measure", way)
		}
		if got, err = Tune(t.Context(), changed(false), o); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(got.Tried, want.Tried) {
			t.Errorf("%s: other values to choose on change nothing", way)
		}
	}
}

// TestRate: without labels the choice has no more alarms a day than wanted on the part to choose
// on, and the next smaller alarm has more.
func TestRate(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	series, _ := streams(t, 4)
	o := TuneOptions{Setting: now, Features: 1, Seed: 1, AlarmsPerDay: 0.5, Split: ByTime, Share: 0.5}
	tried := 0
	o.Tried = func(Measured) { tried++ }
	r, err := Tune(t.Context(), series, o)
	if err != nil {
		t.Fatal(err)
	}
	if tried != len(r.Tried) {
		t.Errorf("%d of %d settings were told", tried, len(r.Tried))
	}
	for _, m := range r.Tried {
		if m.Alarm >= r.Chosen.Alarm != (m.AlarmsPerDay <= o.AlarmsPerDay) {
			t.Errorf("alarm %v has %.2f alarms a day, and %v was chosen", m.Alarm, m.AlarmsPerDay, r.Chosen.Alarm)
		}
	}
	t.Logf("%s: %+v, before %.2f, after %.2f a day", r.Split, r.Chosen, r.Before.AlarmsPerDay, r.After.AlarmsPerDay)
}

// TestMistakes: data and options that allow no choice are refused with a cure.
func TestMistakes(t *testing.T) {
	series, labels := streams(t, 1)
	for _, c := range []struct {
		series []TuneSeries
		edit   func(*TuneOptions)
		code   jobs.Code
		want   string
	}{
		{nil, func(*TuneOptions) {}, jobs.CodeInput, "no row"},
		{series, func(o *TuneOptions) { o.AlarmsPerDay = 1 }, jobs.CodeInvalid, "one of the two"},
		{series, func(o *TuneOptions) { o.Labels = nil }, jobs.CodeInvalid, "one of the two"},
		{series, func(o *TuneOptions) { o.Split = "color" }, jobs.CodeInvalid, "entity"},
		{series, func(o *TuneOptions) { o.Share = 1 }, jobs.CodeInvalid, "share 1"},
		{series, func(o *TuneOptions) { o.Split = ByEntity }, jobs.CodeInput, "split by time"},
		{series, func(o *TuneOptions) { o.Params = map[string]float64{"learn": 7} }, jobs.CodeInvalid, "learn"},
		{series, func(o *TuneOptions) { o.Share = 0.001 }, jobs.CodeInput, "larger share"},
	} {
		o := TuneOptions{Setting: now, Features: 1, Labels: labels, Split: ByTime, Share: 0.5}
		c.edit(&o)
		_, err := Tune(t.Context(), c.series, o)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want one of class %s with %q", err, c.code, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Tune(ctx, series, TuneOptions{Setting: now, Features: 1, Labels: labels, Split: ByTime, Share: 0.5})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestPropose: the proposal is the former specification with other numbers, and valid.
func TestPropose(t *testing.T) {
	text := `# Pumps of the plant.
name: pumps # the north hall
key: pump
cell:
  kind: predictor
  params: {alarms_per_day: 2, alarm: 0.3, learn: 0.02}
agents_per_group: 64 # enough in March
`
	got, err := Propose([]byte(text), Setting{Alarm: 0.46, Agents: 128})
	if err != nil {
		t.Fatal(err)
	}
	want := `# Pumps of the plant.
name: pumps # the north hall
key: pump
cell:
  kind: predictor
  params: {alarm: 0.46, learn: 0.02, suspect: 0.39}
agents_per_group: 128 # chosen by exoswarm tune
`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if _, err := swarm.Parse("pumps.yaml", got); err != nil {
		t.Errorf("the proposal is not valid: %v", err)
	}
	if got, err = Propose([]byte("name: x\n"), Setting{Alarm: 0.5, Agents: 64}); err != nil ||
		!strings.Contains(string(got), "alarm: 0.5") {
		t.Errorf("%s: %v", got, err)
	}
	if _, err := Propose([]byte("- x\n"), now); err == nil {
		t.Error("a list is taken for a specification")
	}
}
