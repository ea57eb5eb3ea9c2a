package explain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestRecent: an incident is known from its first row on, with the reason of its strongest row, and
// ends with the first normal row of its entity. Only the last ones are kept.
func TestRecent(t *testing.T) {
	r := NewRecent(swarms.Swarm{ID: "s", Name: "n", Groups: 2}, rows.Layout{
		Series: []string{"a", "b"}, Features: []string{"x", "y"},
		Candidates: []string{"normal", "suspicious", "anomalous"},
	})
	at := time.Unix(1, 0)
	add := func(group uint32, decision uint32, score float32, fault int8, y float64) {
		at = at.Add(time.Second)
		r.Add(&batch.Decisions{
			Group: []uint32{group}, Timestamp: []string{at.UTC().Format(time.TimeOnly)}, Value: []float64{1, y},
			Score: []float32{score}, Decision: []uint32{decision}, Candidates: 3, Explained: &batch.Explained{
				Features: 2, Expected: []float64{1, 5}, Fault: []int8{fault}, Side: []int8{1},
				Kind: []batch.Surprise{batch.PointSurprise}, Before: []uint32{2},
			},
		}, at)
	}
	add(0, 0, 0.1, -1, 5)
	add(1, 1, 0.3, 1, 6) // suspicious alone is no incident
	add(0, 2, 0.7, 1, 9)
	add(1, 2, 0.6, -1, 5)
	add(0, 1, 0.9, 1, 12)
	add(0, 1, 0.4, 1, 8)
	got := r.Found()
	if len(got.Incidents) != 2 || got.Clock != "00:00:07" || got.Swarm != "s" || got.Name != "n" {
		t.Fatalf("found %+v", got)
	}
	in := got.Incidents[1]
	if in.Entity != "a" || in.Begin != "00:00:04" || in.Last != "00:00:07" || !in.Ended.IsZero() || in.Rows != 3 ||
		in.Score != 0.9 || in.Feature != "y" || in.Kind != "point" || in.Side != "above" || *in.Value != 12 ||
		*in.Expected != 5 || in.Before != 2 || in.Why() != "y 12, expected 5" {
		t.Errorf("the incident of a is %+v", in)
	}
	if in := got.Incidents[0]; in.Entity != "b" || in.Feature != "" || in.Why() != "" || in.Score != 0.6 {
		t.Errorf("the incident of b without a reason is %+v", in)
	}
	add(0, 0, 0.1, -1, 5)
	if in := r.Found().Incidents[1]; !in.Ended.Equal(at) {
		t.Errorf("the incident of a has ended at %v, want %v", in.Ended, at)
	}
	if got.Incidents[1].Ended != (time.Time{}) {
		t.Error("what was found before has changed")
	}
	for range 2 * mostRecent {
		add(0, 2, 0.5, 0, 5)
		add(0, 0, 0.1, -1, 5)
	}
	if got := r.Found(); len(got.Incidents) != mostRecent || got.Incidents[0].Ended != at {
		t.Errorf("%d incidents are kept, want %d: %s", len(got.Incidents), mostRecent, fmt.Sprint(got.Incidents[0]))
	}
	var none *Recent
	none.Add(nil, at)
	if none.Found() != nil {
		t.Error("none has found something")
	}
}

// TestRecentRestored: incidents that are kept and restored at any row go on as the incidents of a
// Recent that was never stopped.
func TestRecentRestored(t *testing.T) {
	fresh := func() *Recent {
		return NewRecent(swarms.Swarm{ID: "s", Name: "n", Groups: 5}, rows.Layout{
			Series: []string{"a", "b", "c", "d", "e"}, Features: []string{"x"}, Candidates: []string{"n", "s", "a"},
		})
	}
	draw := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test
	want, got := fresh(), fresh()
	for n := range 5000 {
		at := time.Unix(int64(n), 0).UTC()
		row := &batch.Decisions{
			Group: []uint32{draw.Uint32N(5)}, Timestamp: []string{fmt.Sprint(n)}, Value: []float64{float64(n)},
			Score: []float32{draw.Float32()}, Decision: []uint32{draw.Uint32N(3)}, Candidates: 3,
		}
		want.Add(row, at)
		if draw.IntN(10) == 0 {
			data, err := json.Marshal(got.kept())
			if err != nil {
				t.Fatal(err)
			}
			var kept []keptIncident
			if err := json.Unmarshal(data, &kept); err != nil {
				t.Fatal(err)
			}
			got = fresh()
			got.restore(kept)
		}
		got.Add(row, at)
		if a, b := got.Found(), want.Found(); !reflect.DeepEqual(a, b) {
			t.Fatalf("row %d: %+v, want %+v", n, a, b)
		}
	}
}
