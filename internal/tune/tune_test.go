package tune

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/labelled"
	"github.com/exoswarm/exoswarm/internal/testlong"
	"github.com/exoswarm/exoswarm/jobs"
)

// seed is that of the generated series. The rules of the package were chosen with 500 to 503.
const seed = 510

// now is the default setting with fewer agents, which compute faster.
var now = Setting{Alarm: 0.37, Agents: 16}

// small makes the tests fast: few settings are tried.
func small(t *testing.T) {
	t.Helper()
	a, n := alarms, sizes
	alarms, sizes = []float64{0.31, 0.4, 0.43, 0.46, 0.5}, []int{16}
	t.Cleanup(func() { alarms, sizes = a, n })
}

// streams returns n generated series with incidents, and their labels.
func streams(t *testing.T, seed uint64, pairs []labelled.Pair) (all []Series, labels []report.Label) {
	t.Helper()
	type label struct{ Series, Begin, End string }
	var texts []label
	for i, p := range pairs {
		s, err := labelled.Make(seed, p, i)
		if err != nil {
			t.Fatalf("Make: %v", err)
		}
		all = append(all, Series{Name: s.Name, Times: s.Times, Rows: s.Flat()})
		for _, w := range s.Windows {
			text := func(row int) string { return time.Unix(0, s.Times[row]).UTC().Format(time.RFC3339Nano) }
			texts = append(texts, label{s.Name, text(w.First), text(w.Last)})
		}
	}
	data, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	// The members of report.Label are in lower case, which JSON does not tell apart.
	members := strings.NewReplacer(`"Series"`, `"series"`, `"Begin"`, `"begin"`, `"End"`, `"end"`)
	if labels, err = report.ParseLabels([]byte(members.Replace(string(data)))); err != nil {
		t.Fatalf("ParseLabels: %v", err)
	}
	return all, labels
}

// chosen are pairs whose series have one feature and two weeks, of different families.
func chosen(t *testing.T, seed uint64, n int) []labelled.Pair {
	t.Helper()
	var out []labelled.Pair
	for i, p := range labelled.Pairs() {
		if i%4 != 1 {
			continue
		}
		s, err := labelled.Make(seed, p, len(out))
		if err != nil {
			t.Fatalf("Make: %v", err)
		}
		days := float64(s.Times[len(s.Times)-1]-s.Times[0]) / 86400e9
		if s.Features() == 1 && math.Abs(days-14) < 1 {
			out = append(out, p)
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatalf("there are %d pairs, want %d", len(out), n)
	return nil
}

// TestTuned: on the parts that it has not seen the choice is on average at least as good as the default,
// with either split, and never much worse. A single choice on few incidents may be a little worse by
// chance, which Run then says. A long run has six seeds.
func TestTuned(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	small(t)
	sum, most := 0.0, 0.0
	first, last := uint64(testlong.Of(510, 514)), uint64(testlong.Of(515, 514))
	for seed := first; seed <= last; seed++ {
		series, labels := streams(t, seed, chosen(t, seed, 16))
		for _, way := range []string{ByTime, ByEntity} {
			r, err := Run(t.Context(), series, Options{
				Setting: now, Features: 1, Seed: 1, Labels: labels, Split: way, Share: 0.5,
			})
			if err != nil {
				t.Fatalf("%s: %v", way, err)
			}
			gain := r.After.F1 - r.Before.F1
			sum, most = sum+gain, max(most, -gain)
			t.Logf(
				"seed %d, %s: %+v of %d incidents, F1 %.3f, now %.3f. %s",
				seed,
				way,
				r.Chosen,
				r.Tried[0].Incidents,
				r.After.F1,
				r.Before.F1,
				r.Warning,
			)
			if !strings.HasPrefix(r.Split, "by "+way) || (gain < 0) != strings.Contains(r.Warning, "worse") {
				t.Errorf("the split is %q, and the warning %q with a gain of %.3f", r.Split, r.Warning, gain)
			}
		}
	}
	if sum <= 0 || most > 0.03 {
		t.Errorf("the sum of all gains is %.3f, and the largest loss %.3f", sum, most)
	}
}

// TestUnseen: whatever the part to judge on has, the choice and everything that was measured for it are
// the same; what the part to choose on has changes them.
func TestUnseen(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	small(t)
	alarms, sizes = []float64{0.43}, []int{8}
	series, labels := streams(t, seed, chosen(t, seed, 6))
	for _, way := range []string{ByTime, ByEntity} {
		o := Options{Setting: now, Features: 1, Seed: 1, Labels: labels, Split: way, Share: 0.7}
		want, err := Run(t.Context(), series, o)
		if err != nil {
			t.Fatal(err)
		}
		// changed returns the series with other values in one of the parts.
		changed := func(judged bool) []Series {
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
		got, err := Run(t.Context(), changed(true), o)
		if err != nil {
			t.Fatal(err)
		}
		if got.Chosen != want.Chosen || !slices.Equal(got.Tried, want.Tried) {
			t.Errorf("%s: other values to judge on change the choice: %+v, %+v", way, got.Chosen, want.Chosen)
		}
		if got.Before == want.Before {
			t.Errorf("%s: other values to judge on do not change its measure", way)
		}
		if got, err = Run(t.Context(), changed(false), o); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(got.Tried, want.Tried) {
			t.Errorf("%s: other values to choose on change nothing", way)
		}
	}
}

// TestRate: without labels the choice has no more alarms a day than wanted on the part to choose on, and
// the next smaller alarm has more.
func TestRate(t *testing.T) {
	if testing.Short() {
		t.Skip("cells are slow under the race detector")
	}
	series, _ := streams(t, seed, chosen(t, seed, 4))
	o := Options{Setting: now, Features: 1, Seed: 1, AlarmsPerDay: 0.5, Split: ByTime, Share: 0.5}
	tried := 0
	o.Tried = func(Measured) { tried++ }
	r, err := Run(t.Context(), series, o)
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
	series, labels := streams(t, seed, chosen(t, seed, 1))
	for _, c := range []struct {
		series []Series
		edit   func(*Options)
		code   jobs.Code
		want   string
	}{
		{nil, func(*Options) {}, jobs.CodeInput, "no row"},
		{series, func(o *Options) { o.AlarmsPerDay = 1 }, jobs.CodeInvalid, "one of the two"},
		{series, func(o *Options) { o.Labels = nil }, jobs.CodeInvalid, "one of the two"},
		{series, func(o *Options) { o.Split = "color" }, jobs.CodeInvalid, "entity"},
		{series, func(o *Options) { o.Share = 1 }, jobs.CodeInvalid, "share 1"},
		{series, func(o *Options) { o.Split = ByEntity }, jobs.CodeInput, "split by time"},
		{series, func(o *Options) { o.Params = map[string]float64{"learn": 7} }, jobs.CodeInvalid, "learn"},
		{series, func(o *Options) { o.Share = 0.001 }, jobs.CodeInput, "larger share"},
	} {
		o := Options{Setting: now, Features: 1, Labels: labels, Split: ByTime, Share: 0.5}
		c.edit(&o)
		_, err := Run(t.Context(), c.series, o)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want one of class %s with %q", err, c.code, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, series, Options{Setting: now, Features: 1, Labels: labels, Split: ByTime, Share: 0.5})
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
agents_per_group: 128
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
