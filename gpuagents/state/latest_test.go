package state

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// TestDropped: whatever the policy, and however the input is cut and merged, what is dropped is
// that which a walk over the observations of each group says, and the others have the decisions
// that they have without it.
func TestDropped(t *testing.T) {
	const groups, n = 20, 3000
	d := openHost(t)
	for _, policy := range []struct{ late, duplicate string }{
		{"drop", "drop"},
		{"drop", "apply"},
		{"apply", "drop"},
		{"reject", "drop"},
		{"apply", "apply"},
	} {
		text := "name: x\nagents_per_group: 8\npage_size: 64KiB\ncell: {kind: leaky}\n"
		drops := text + "observations: {late: " + policy.late + ", duplicate: " + policy.duplicate + "}\n"
		r := rand.New(rand.NewPCG(4, 4))
		all := observations(r, groups, n, 1)
		var want []uint8
		var applied batch.Observations // the others
		latest, rounds := map[uint32]int64{}, map[uint32]uint64{}
		var wantRounds []uint64
		for i, g := range all.Group {
			switch r.IntN(4) {
			case 0:
				all.Time[i] = latest[g]
			case 1:
				all.Time[i] -= r.Int64N(100e9)
			}
			why, last, any := batch.Applied, latest[g], rounds[g] > 0
			switch at := all.Time[i]; {
			case any && at < last && policy.late == "drop":
				why = batch.DroppedLate
			case any && at == last && policy.duplicate == "drop":
				why = batch.DroppedDuplicate
			default:
				rounds[g]++
				if !any || at > last {
					latest[g] = at
				}
				applied.Group, applied.Time, applied.Features = append(applied.Group, g), append(applied.Time, at),
					append(applied.Features, all.Features[i])
			}
			want, wantRounds = append(want, why), append(wantRounds, rounds[g])
		}
		applied.Width = 1
		plain, _, err := openGroupState(t, d, text, groups).observe(t.Context(), &applied)
		if err != nil {
			t.Fatalf("observe: %v, want no error", err)
		}
		for _, most := range []int{n, 257, 1} {
			s := openGroupState(t, d, drops, groups)
			m := s.NewBatch()
			for at := 0; at < n; at += most {
				o := cut(all, at, min(at+most, n))
				m.Add(Observations{Groups: o})
			}
			answers, err := m.Observe(t.Context())
			if err != nil {
				t.Fatalf("m.Observe: %v, want no error", err)
			}
			at, k, counted := 0, 0, [3]int{}
			for _, a := range answers {
				dec := a.Body.(*batch.Decisions)
				if (dec.Dropped == nil) != (policy.late != "drop" && policy.duplicate != "drop") {
					t.Fatalf("%+v: dropped are %v", policy, dec.Dropped)
				}
				for why, count := range a.Dropped {
					counted[why] += count
				}
				for i := range dec.Group {
					why := batch.Applied
					if dec.Dropped != nil {
						why = dec.Dropped[i]
					}
					if why != want[at] || dec.Round[i] != wantRounds[at] {
						t.Fatalf("%+v: observation %d: %d in round %d, want %d in round %d", policy, at, why,
							dec.Round[i], want[at], wantRounds[at])
					}
					switch {
					case why == batch.Applied:
						if dec.Decision[i] != plain.Decision[k] || dec.Score[i] != plain.Score[k] ||
							dec.Round[i] != plain.Round[k] || dec.Leader[i] != plain.Leader[k] ||
							!slices.Equal(dec.Counts[3*i:3*i+3], plain.Counts[3*k:3*k+3]) {
							t.Fatalf("%+v: the decision of observation %d differs without the dropped observations",
								policy, at)
						}
						k++
					case dec.Decision[i] != batch.NoDecision || dec.Score[i] != 0:
						t.Fatalf("%+v: observation %d was dropped with decision %d and score %v", policy, at,
							dec.Decision[i], dec.Score[i])
					}
					at++
				}
			}
			wantCounts := [3]int{}
			for _, why := range want {
				if policy.late == "drop" || policy.duplicate == "drop" {
					wantCounts[why]++
				}
			}
			if d := diff(wantCounts, counted); d != "" || at != n || k != len(applied.Group) {
				t.Errorf("%+v: %d of %d answered, %d applied: %s", policy, at, n, k, d)
			}
		}
	}
}

// TestOwnWeights: groups with weights of their own make something else of the same series each, and
// the same whatever the size of pages.
func TestOwnWeights(t *testing.T) {
	d := openHost(t)
	o := observations(rand.New(rand.NewPCG(7, 7)), 1, 600, 1)
	scores := func(page string, group uint32, weights string) []float32 {
		s := openGroupState(t, d, "name: x\nagents_per_group: 16\npage_size: "+page+"\ncell: {kind: gru, weights: "+
			weights+"}\n", 90)
		for i := range o.Group {
			o.Group[i] = group
		}
		dec, _, err := s.observe(t.Context(), o)
		if err != nil {
			t.Fatalf("s.observe: %v, want no error", err)
		}
		return dec.Score
	}
	own := scores("64KiB", 71, "group")
	if !slices.Equal(own, scores("128KiB", 71, "group")) {
		t.Error("a group is another in pages of another size")
	}
	if slices.Equal(own, scores("64KiB", 3, "group")) {
		t.Error("groups 3 and 71 are the same")
	}
	if !slices.Equal(scores("64KiB", 71, "shared"), scores("64KiB", 3, "shared")) {
		t.Error("groups with shared weights are not the same")
	}
}
