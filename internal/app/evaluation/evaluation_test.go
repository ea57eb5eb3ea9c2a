package evaluation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/jobs"
)

// at returns the text of a time, in minutes after a fixed one.
func at(minute int) string {
	return time.Unix(1767225600+60*int64(minute), 0).UTC().Format("2006-01-02 15:04:05")
}

// decisions returns a line for each letter of texts by series: n normal, s suspicious, a anomalous,
// d a dropped row.
func decisions(texts map[string]string) string {
	var b strings.Builder
	names := slices.Sorted(func(yield func(string) bool) {
		for n := range texts {
			if !yield(n) {
				return
			}
		}
	})
	for _, name := range names {
		for i, c := range texts[name] {
			decision := map[rune]string{'n': "normal", 's': "suspicious", 'a': "anomalous"}[c]
			score := map[rune]float64{'n': 0.1, 's': 0.3, 'a': 0.9}[c]
			if c == 'd' {
				fmt.Fprintf(&b, `{"series":%q,"timestamp":%q,"dropped":"late"}`+"\n", name, at(i))
				continue
			}
			fmt.Fprintf(
				&b,
				`{"series":%q,"timestamp":%q,"score":%g,"decision":%q}`+"\n",
				name,
				at(i),
				score,
				decision,
			)
		}
	}
	return b.String()
}

// labels returns labels of the minutes of a series, in pairs of begin and end.
func labels(t interface{ Fatal(...any) }, series string, minutes ...int) []report.Label {
	var parts []string
	for i := 0; i < len(minutes); i += 2 {
		parts = append(
			parts,
			fmt.Sprintf(`{"series":%q,"begin":%q,"end":%q}`, series, at(minutes[i]), at(minutes[i+1])),
		)
	}
	all, err := report.ParseLabels([]byte("[" + strings.Join(parts, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEvaluate: counts, delays and ranges of small runs are as a person counts them.
func TestEvaluate(t *testing.T) {
	text := decisions(map[string]string{
		"a": "nnnnnaassnnnnannnnnn",
		"b": "nnnnnnnnnnnnnnnnnnnn",
	})
	of := append(labels(t, "a", 4, 8), labels(t, "b", 3, 5)...)
	r, err := Evaluate(strings.NewReader(text), of, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Rows: 40, Incidents: 2, Found: 1, Alarms: 3, Outside: 1}); r.All != want {
		t.Errorf("all have %+v, want %+v", r.All, want)
	}
	if want := (Counts{Rows: 20, Incidents: 1}); r.Entities[1].Counts != want {
		t.Errorf("b has %+v, want %+v", r.Entities[1], want)
	}
	if r.Precision != 2.0/3 || r.Recall != 0.5 || math.Abs(r.F1-4.0/7) > 1e-12 || r.Delay != 60 ||
		r.DelayRows != 1 {
		t.Errorf(
			"precision %v, recall %v, F1 %v, delay %v s, %v rows",
			r.Precision,
			r.Recall,
			r.F1,
			r.Delay,
			r.DelayRows,
		)
	}
	if math.Abs(r.Days-2*19.0/1440) > 1e-9 {
		t.Errorf("%v days", r.Days)
	}
	// Of a: rows 5 to 8 and 13 are predicted. One range is within the incident.
	if want := 0.5 / 2; math.Abs(r.Ranges.Precision-want) > 1e-9 {
		t.Errorf("precision of ranges %v, want %v", r.Ranges.Precision, want)
	}
	if want := (0.2 + 0.8*4/5) / 2; math.Abs(r.Ranges.Recall-want) > 1e-9 {
		t.Errorf("recall of ranges %v, want %v", r.Ranges.Recall, want)
	}
	if !r.Labels[0].Found || r.Labels[0].Alarms != 2 || r.Labels[1].Found {
		t.Errorf("the labels have %+v", r.Labels)
	}
	for _, want := range []string{"all            40          2          1          3          1", "missed      b, "} {
		if !strings.Contains(r.Table(), want) {
			t.Errorf("the table has no %q:\n%s", want, r.Table())
		}
	}
	// Behind half of the rows there is one alarm, and no incident.
	r, err = Evaluate(strings.NewReader(text), of, Options{Skip: 0.5})
	if want := (Counts{Rows: 20, Alarms: 1, Outside: 1}); err != nil || r.All != want {
		t.Errorf("behind half of the rows there are %+v, %v", r.All, err)
	}
	// A label of every series, rows that were dropped, and other names of decisions.
	r, err = Evaluate(strings.NewReader(decisions(map[string]string{"a": "nnds", "b": "nann"})),
		labels(t, "", 0, 3), Options{Anomalous: "suspicious"})
	if want := (Counts{Rows: 7, Incidents: 2, Found: 1, Alarms: 1}); err != nil || r.All != want {
		t.Errorf("with a label of every series: %+v, %v", r.All, err)
	}
}

// TestKeys: the members of a key name the entity.
func TestKeys(t *testing.T) {
	text := `{"plant":"p","machine":7,"timestamp":"2026-01-01","score":0.9,"decision":"anomalous"}` + "\n\n"
	r, err := Evaluate(
		strings.NewReader(text),
		labels(t, "p, 7", 0, 1),
		Options{Keys: []string{"plant", "machine"}},
	)
	if err != nil || len(r.Entities) != 1 || r.Entities[0].Name != "p, 7" || r.All.Found != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestBad: what is no decision and what concerns none is an error of the input with its place.
func TestBad(t *testing.T) {
	good := decisions(map[string]string{"cpu": "nnan"})
	for name, c := range map[string]struct {
		text, want string
		labels     []report.Label
		o          Options
	}{
		"nothing":     {text: "\n", want: "there is none: give the output of a run"},
		"no JSON":     {text: good + "x\n", want: "line 5: invalid character"},
		"no decision": {text: `{"series":"a"}`, want: "line 1: no timestamp, score or decision"},
		"no entity":   {text: good, o: Options{Keys: []string{"id"}}, want: `no member "id"`},
		"score":       {text: strings.Replace(good, "0.9", "9", 1), want: "line 3: score 9: scores are from 0 to 1"},
		"time":        {text: strings.Replace(good, "2026", "when", 1), want: "line 1: timestamp"},
		"another": {
			text: good, labels: labels(t, "cpus", 0, 1),
			want: `no entity "cpus" among the decisions: did you mean "cpu"?`,
		},
		"outside": {
			text: good, labels: labels(t, "cpu", 10, 20),
			want: "label 1: cpu has no decision from 2026-01-01 00:10:00",
		},
		"outside all": {text: good, labels: labels(t, "", 10, 20), want: "label 1: no decision is from"},
		"many": {
			text: good, labels: labels(t, "x", slices.Repeat([]int{1, 2}, 15)...), want: "and 5 more labels",
		},
		"skip":          {text: good, o: Options{Skip: 1}, want: "skip 1: use a share"},
		"a longer line": {text: strings.Repeat(" ", maxLine+1), want: "a line of more than"},
	} {
		if c.labels == nil {
			c.labels = labels(t, "cpu", 0, 1)
		}
		_, err := Evaluate(strings.NewReader(c.text), c.labels, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || jobs.AsError(err).Code != jobs.CodeInput {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestRandom: an obvious count of incidents and alarms agrees, whatever the decisions and labels.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		n := 1 + rng.IntN(60)
		letters := make([]byte, n)
		for i := range letters {
			letters[i] = "nnnsad"[rng.IntN(6)]
		}
		letters[0] = 'n'
		var minutes []int
		for range 1 + rng.IntN(3) {
			begin := rng.IntN(n)
			minutes = append(minutes, begin, begin+rng.IntN(10))
		}
		r, err := Evaluate(strings.NewReader(decisions(map[string]string{"a": string(letters)})),
			labels(t, "a", minutes...), Options{})
		empty := false // a label without a row
		var want Counts
		covered := make([]bool, n)
		for i := 0; i < len(minutes); i += 2 {
			rows, found := 0, 0
			for m := minutes[i]; m <= minutes[i+1] && m < n; m++ {
				covered[m] = true
				if letters[m] != 'd' {
					rows++
				}
				if letters[m] == 'a' {
					found = 1
				}
			}
			empty = empty || rows == 0
			want.Incidents++
			want.Found += found
		}
		for i, c := range letters {
			if c != 'd' {
				want.Rows++
			}
			if c == 'a' {
				want.Alarms++
				if !covered[i] {
					want.Outside++
				}
			}
		}
		if (err != nil) != empty {
			t.Fatalf("error %v, a label without a row: %v", err, empty)
		}
		if err == nil && r.All != want {
			t.Fatalf("%s, %v: %+v, want %+v", letters, minutes, r.All, want)
		}
	})
}

// FuzzEvaluate: no text panics, and what is refused is an error of the input.
func FuzzEvaluate(f *testing.F) {
	f.Add(decisions(map[string]string{"a": "nsan"}))
	f.Add(`{"series":1,"timestamp":"1","score":1e400,"decision":""}`)
	of := labels(f, "a", 0, 3)
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Evaluate(strings.NewReader(text), of, Options{}); err != nil &&
			jobs.AsError(err).Code != jobs.CodeInput {
			t.Errorf("%q: %v", text, err)
		}
	})
}
