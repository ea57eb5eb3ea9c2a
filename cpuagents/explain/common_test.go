package explain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

const stormEntities = 60

// storm returns decisions of many groups, one row a minute. From row 400 on, all but the first
// three open an incident within two minutes, in which the second feature is high. Some incidents of
// their own come before and after.
func storm(rowsEach int) (keys, *batch.Decisions) {
	r := rand.New(rand.NewPCG(11, 7))
	d, k := &batch.Decisions{Candidates: 3}, keys{}
	left := make([]int, stormEntities)
	for e := range stormEntities {
		k = append(k, fmt.Sprintf("e%02d", e))
	}
	for i := range rowsEach {
		for g := range stormEntities {
			decision, far := uint32(0), 0.0
			switch {
			case left[g] > 0:
				left[g]--
				decision, far = 1, 20
			case i == 400+g%3 && g >= 3:
				decision, far, left[g] = 2, 20, 5+g%4
			case r.IntN(3000) == 0 && i > 100:
				decision, far, left[g] = 2, -20, 1
			}
			d.Group, d.Row, d.Read = append(d.Group, uint32(g)), append(d.Row, uint64(i+1)), append(d.Read, 0)
			d.Timestamp = append(d.Timestamp, fmt.Sprint(1_700_000_000+60*i))
			d.Value = append(d.Value, 10+r.NormFloat64(), 5+r.NormFloat64()+far)
			d.Score, d.Decision = append(d.Score, float32(r.Float64())), append(d.Decision, decision)
			d.Counts, d.Leader = append(d.Counts, 0, 0, 0), append(d.Leader, 0)
			d.Round = append(d.Round, uint64(i))
		}
	}
	return k, d
}

func together() *explain.FleetLimits {
	return &explain.FleetLimits{Together: 2 * time.Minute, Window: 24 * time.Hour, Alarm: 2.6, Block: 64}
}

// TestMove: incidents of a fleet that moves together have one record, whatever the cuts and
// restarts, and it names the entities that took no part. Others have theirs.
func TestMove(t *testing.T) {
	k, d := storm(490)
	before := slices.Clone(d.Decision)
	x := explain.New(layout(k), together())
	all := append(x.Explain(d), x.Finish()...)
	want, wantText := written(t, all), text(k, d)
	moves, members := 0, 0
	for _, in := range all {
		if in.Entities == 1 {
			if strings.Compare(in.Begin, "1700024000") >= 0 && strings.Compare(in.Begin, "1700024200") < 0 {
				t.Errorf("a member of the move has a record of its own: %+v", in)
			}
			continue
		}
		moves++
		members = in.Entities
		if in.Begin != "1700024000" || in.Names[0] != "e03" || in.Features[0] != "y" ||
			in.Kinds[0] != batch.TogetherSurprise || len(in.Related) != 10 || in.Open ||
			!slices.Equal(in.Absent, []string{"e00", "e01", "e02"}) {
			t.Errorf("the record of the move is %+v", in)
		}
	}
	if moves != 1 || members != stormEntities-3 {
		t.Fatalf("%d moves, the last of %d entities, want 1 of %d", moves, members, stormEntities-3)
	}
	shown := 0 // anomalous rows of the storm
	for i, of := range d.Decision {
		if ts := d.Timestamp[i]; ts >= "1700024000" && ts < "1700024200" && of == 2 {
			shown++
		}
	}
	if shown < 5 || shown > 12 {
		t.Errorf("%d rows of the move are anomalous, want the first ones", shown)
	}
	if n := strings.Count(wantText, `"kind":"together"`); n < 5*(stormEntities-3-12) {
		t.Errorf("%d rows say that entities move together", n)
	}
	d.Decision = before
	r := rand.New(rand.NewPCG(9, 9))
	for trial := range 2 {
		x := explain.New(layout(k), together())
		var incidents []explain.Incident
		got := ""
		for a := 0; a < d.Len(); {
			size := 3000
			if a > 395*stormEntities && a < 415*stormEntities {
				size = 100
			}
			b := min(d.Len(), a+1+r.IntN(size))
			one := part(d, a, b)
			incidents = append(incidents, x.Explain(one)...)
			got += text(k, one)
			state, err := x.State()
			if err != nil {
				t.Fatal(err)
			}
			x = explain.New(layout(k), together())
			if err := x.Restore(state); err != nil {
				t.Fatal(err)
			}
			a = b
		}
		incidents = append(incidents, x.Finish()...)
		if got != wantText || written(t, incidents) != want {
			t.Errorf("trial %d: other cuts give other decisions or records", trial)
		}
	}
}

// TestMoveLate: where the rows come entity by entity, a move has one record too, also for members
// that had ended before it was found.
func TestMoveLate(t *testing.T) {
	k, d := storm(430)
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(d.Group[a]) - int(d.Group[b]) })
	mixed := &batch.Decisions{Candidates: 3}
	for _, i := range order {
		mixed.Group, mixed.Row = append(mixed.Group, d.Group[i]), append(mixed.Row, d.Row[i])
		mixed.Read = append(mixed.Read, 0)
		mixed.Timestamp = append(mixed.Timestamp, d.Timestamp[i])
		mixed.Value = append(mixed.Value, d.Value[2*i:2*i+2]...)
		mixed.Score, mixed.Decision = append(mixed.Score, d.Score[i]), append(mixed.Decision, d.Decision[i])
		mixed.Counts, mixed.Leader = append(mixed.Counts, 0, 0, 0), append(mixed.Leader, 0)
		mixed.Round = append(mixed.Round, d.Round[i])
	}
	x := explain.New(layout(k), together())
	x.Late = true
	all := explain.Relate(append(x.Explain(mixed), x.Finish()...), true)
	moves := slices.DeleteFunc(slices.Clone(all), func(in explain.Incident) bool { return in.Entities == 1 })
	if len(moves) != 1 || moves[0].Entities != stormEntities-3 || moves[0].Names[0] != "e03" {
		t.Fatalf("moves are %+v, want one of %d entities, from e03 on", moves, stormEntities-3)
	}
	for _, in := range all {
		if in.Entities == 1 && in.Begin >= "1700024000" && in.Begin < "1700024200" {
			t.Errorf("a member of the move has a record of its own: %+v", in)
		}
	}
}
