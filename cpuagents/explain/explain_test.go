package explain_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

var candidates = []string{"normal", "suspicious", "anomalous"}

// keys are the entities of groups, which a test may change.
type keys []string

func (k keys) Key(group int) (string, bool) { return k[group], group < len(k) }

// decisions returns n decisions of three groups with two features. Incidents of some rows come now
// and then, with a large value of the second feature.
func decisions(n int) *batch.Decisions {
	r := rand.New(rand.NewPCG(5, 7))
	d := &batch.Decisions{Candidates: 3}
	var left [3]int
	for i := range n {
		g := r.IntN(3)
		decision, far := uint32(0), 0.0
		switch {
		case left[g] > 0:
			left[g]--
			decision, far = 1, 20
		case r.IntN(60) == 0:
			decision, far = 2, 20
			left[g] = r.IntN(5)
		}
		d.Group, d.Row, d.Read = append(d.Group, uint32(g)), append(d.Row, uint64(i+1)), append(d.Read, int64(i))
		d.Timestamp = append(d.Timestamp, fmt.Sprint(1_700_000_000+10*i))
		d.Value = append(d.Value, 10+r.NormFloat64(), 5+r.NormFloat64()+far)
		d.Score, d.Decision = append(d.Score, float32(r.Float64())), append(d.Decision, decision)
		d.Counts, d.Leader = append(d.Counts, 0, 0, 0), append(d.Leader, 0)
		d.Round = append(d.Round, uint64(i))
	}
	return d
}

// part returns rows from a to b.
func part(d *batch.Decisions, a, b int) *batch.Decisions {
	return &batch.Decisions{
		Group: d.Group[a:b], Row: d.Row[a:b], Read: d.Read[a:b], Timestamp: d.Timestamp[a:b], Value: d.Value[2*a : 2*b],
		Score: d.Score[a:b], Decision: d.Decision[a:b], Counts: d.Counts[3*a : 3*b], Candidates: 3,
		Leader: d.Leader[a:b], Round: d.Round[a:b],
	}
}

func layout(k keys) rows.Layout {
	return rows.Layout{
		Keys: []string{"id"}, Entities: k, Candidates: candidates, Features: []string{"x", "y"}, Explain: true,
	}
}

// text returns decisions as lines of NDJSON.
func text(k keys, d *batch.Decisions) string {
	enc, b := rows.NewNDJSONEncoder(layout(k)), []byte{}
	for i := range d.Len() {
		b = enc.Spool(b, d, i)
	}
	return string(b)
}

// TestCuts: explanations and incidents do not depend on the cuts into batches, nor on a restart
// with the stored state at any cut. Limits of the fleet leave some incidents out, and change no
// message.
func TestCuts(t *testing.T) {
	t.Run("no limit", func(t *testing.T) { testCuts(t, nil) })
	t.Run("limits", func(t *testing.T) {
		testCuts(t, &explain.FleetLimits{AlarmsPerDay: 100, Window: 24 * time.Hour, Alarm: 2.6, Block: 64})
	})
}

func testCuts(t *testing.T, limits *explain.FleetLimits) {
	k, d := keys{"a", "b", "c"}, decisions(3000)
	before := slices.Clone(d.Decision)
	message := d.Decision
	x := explain.New(layout(k), limits)
	wantIncidents := append(x.Explain(d), x.Finish()...)
	want := text(k, d)
	if n := len(wantIncidents); n < 20 || limits != nil && n > 40 {
		t.Fatalf("%d incidents, want 20 or more, and fewer with limits: the test reaches nothing", n)
	}
	if !slices.Equal(message, before) {
		t.Error("Explain has changed the memory of a message")
	}
	later := 0 // incidents that are shown after their begin
	for _, in := range wantIncidents {
		if before[in.Row-1] != 2 {
			t.Errorf("an incident begins with row %d, where the swarm opened none", in.Row)
		}
		if d.Decision[in.Row-1] != 2 {
			later++
		}
	}
	if (later > 0) != (limits != nil) {
		t.Errorf("%d incidents are shown later than they begin", later)
	}
	d.Decision = before
	r := rand.New(rand.NewPCG(9, 9))
	for trial := range 3 {
		x := explain.New(layout(k), limits)
		var incidents []explain.Incident
		got := ""
		for a := 0; a < d.Len(); {
			b := min(d.Len(), a+1+r.IntN(400))
			one := part(d, a, b)
			incidents = append(incidents, x.Explain(one)...)
			got += text(k, one)
			state, err := x.State()
			if err != nil {
				t.Fatalf("State: %v", err)
			}
			x = explain.New(layout(k), limits)
			if err := x.Restore(state); err != nil {
				t.Fatalf("Restore: %v", err)
			}
			a = b
		}
		incidents = append(incidents, x.Finish()...)
		if got != want {
			t.Errorf("trial %d: other cuts give other explanations", trial)
		}
		if !reflect.DeepEqual(written(t, incidents), written(t, wantIncidents)) {
			t.Errorf("trial %d: other cuts give other incidents", trial)
		}
	}
}

// written returns incidents as NDJSON.
func written(t *testing.T, all []explain.Incident) string {
	t.Helper()
	var out bytes.Buffer
	w := explain.NewWriter(&out, layout(nil), false)
	for i := range all {
		if err := w.Write(&all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// TestIncident: a record has the rows from the anomalous one to the last one that is not normal,
// the feature at fault, and how often it was so before. Another anomalous row inside is of the same
// one.
func TestIncident(t *testing.T) {
	d := decisions(0)
	add := func(decision uint32, y float64, score float32) {
		i := d.Len()
		d.Group, d.Row, d.Read = append(d.Group, 0), append(d.Row, uint64(i+1)), append(d.Read, 0)
		d.Timestamp = append(d.Timestamp, fmt.Sprint(1_700_000_000+60*i))
		d.Value = append(d.Value, 10+0.1*float64(i%3), y)
		d.Score, d.Decision = append(d.Score, score), append(d.Decision, decision)
		d.Counts, d.Leader, d.Round = append(d.Counts, 0, 0, 0), append(d.Leader, 0), append(d.Round, 0)
	}
	quiet := func(n int) {
		for i := range n {
			add(0, 5+0.1*float64(i%4), 0.1)
		}
	}
	quiet(100)
	add(2, -50, 0.5)
	add(1, 5, 0.1)
	add(2, 5, 0.6) // of a cell without a hold-off
	add(1, 5, 0.1)
	quiet(100)
	add(2, -50, 0.7)
	quiet(50)
	add(1, 5, 0.3) // suspicious alone is no incident
	quiet(10)
	add(2, -50, 0.4)
	k := keys{"site-1"}
	x := explain.New(layout(k), nil)
	all := append(x.Explain(d), x.Finish()...)
	if len(all) != 3 {
		t.Fatalf("%d incidents, want 3:\n%s", len(all), written(t, all))
	}
	first := all[0]
	if first.Row != 101 || first.Rows != 4 || first.Begin != d.Timestamp[100] || first.End != d.Timestamp[103] ||
		first.Peak != d.Timestamp[102] || first.Score != 0.6 || first.Open {
		t.Errorf("the first incident is %+v", first)
	}
	if first.Features[0] != "y" || first.Kinds[0] != batch.PointSurprise {
		t.Errorf("the cause is %v %v, want a point of y", first.Features, first.Kinds)
	}
	if all[1].Before != 1 || all[1].Value != -50 || math.Abs(all[1].Expected-5.15) > 0.5 {
		t.Errorf("the second incident is %+v, want 1 before, and 5.15 expected in place of -50", all[1])
	}
	if !all[2].Open {
		t.Error("an incident at the end of the input is not open")
	}
	why := d.Explained
	if why.Fault[100] != 1 || why.Side[100] != -1 || why.Fault[50] != -1 || why.Fault[254] < -1 {
		t.Errorf("row 101: fault %d, side %d; row 51: fault %d", why.Fault[100], why.Side[100], why.Fault[50])
	}
	if !math.IsNaN(why.Expected[0]) || why.Low[2*99] > 10.2 || why.High[2*99] < 9.9 {
		t.Errorf("bands: first row %v, row 100 %v to %v", why.Expected[0], why.Low[2*99], why.High[2*99])
	}
}

// TestEviction: an entity that gets another group continues with its summary.
func TestEviction(t *testing.T) {
	k, d := keys{"a", "b", "c"}, decisions(2000)
	x := explain.New(layout(k), nil)
	x.Explain(part(d, 0, 1000))
	rest := part(d, 1000, 2000)
	x.Explain(rest)
	want := text(k, rest)

	moved := keys{"a", "b", "c"}
	x = explain.New(layout(moved), nil)
	x.Explain(part(d, 0, 1000))
	// A row of another entity takes the group of each, and the entities come back in other groups.
	moved[0], moved[1], moved[2] = "x", "y", "z"
	none := part(d, 0, 0)
	for g := range uint32(3) {
		none.Group, none.Row, none.Read = append(none.Group, g), append(none.Row, 1), append(none.Read, 1)
		none.Timestamp, none.Value = append(none.Timestamp, "1700000000"), append(none.Value, 1, 1)
		none.Score, none.Decision = append(none.Score, 0), append(none.Decision, 0)
	}
	x.Explain(none)
	moved[0], moved[1], moved[2] = "b", "c", "a"
	rest = part(d, 1000, 2000)
	rest.Group = slices.Clone(rest.Group)
	for i, g := range rest.Group {
		rest.Group[i] = (g + 2) % 3
	}
	x.Explain(rest)
	if got := text(moved, rest); got != want {
		t.Errorf("explanations after an eviction differ:\n%.300s\nwant\n%.300s", got, want)
	}
}

// TestRelate: incidents that begin within minutes name each other, whatever their order.
func TestRelate(t *testing.T) {
	k, d := keys{"a", "b", "c"}, decisions(900)
	x := explain.New(layout(k), nil)
	all := append(x.Explain(d), x.Finish()...)
	other := slices.Clone(all)
	slices.Reverse(other)
	explain.Relate(all, true)
	explain.Relate(other, true)
	if got, want := written(t, other), written(t, all); got != want || !strings.Contains(got, `"related":["`) {
		t.Errorf("Relate depends on the order, or relates nothing:\n%s\nwant\n%s", got, want)
	}
	var csv bytes.Buffer
	w := explain.NewWriter(&csv, layout(nil), true)
	for i := range all {
		_ = w.Write(&all[i])
	}
	if err := w.Close(); err != nil || strings.Count(csv.String(), "\n") != len(all)+1 ||
		!strings.HasPrefix(csv.String(), "id,begin,end,") {
		t.Errorf("CSV: %v\n%s", err, csv.String())
	}
	for line := range strings.Lines(written(t, all)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// TestDamage: a state that is cut off, changed, or of other features is refused.
func TestDamage(t *testing.T) {
	k, d := keys{"a", "b", "c"}, decisions(100)
	x := explain.New(layout(k), nil)
	x.Explain(d)
	state, err := x.State()
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(state)
	changed[len(changed)/2] ^= 1
	for name, data := range map[string][]byte{"empty": nil, "cut off": state[:len(state)-1], "changed": changed} {
		if err := x.Restore(data); !errors.Is(err, explain.ErrState) {
			t.Errorf("%s: %v, want ErrState", name, err)
		}
	}
	l := layout(k)
	l.Features = []string{"x"}
	if err := explain.New(l, nil).Restore(state); !errors.Is(err, explain.ErrState) {
		t.Errorf("other features: %v, want ErrState", err)
	}
}
