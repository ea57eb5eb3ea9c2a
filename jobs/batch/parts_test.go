package batch

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParts: decisions that were cut into parts at random places are put together again.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n, parts, values, candidates := 1+r.IntN(40), 1+r.IntN(5), 1+r.IntN(3), 1+r.IntN(3)
		whole := &Decisions{Candidates: candidates}
		o := &Observations{Width: values}
		places := make([][]int, parts)
		for i := range n {
			k := r.IntN(parts)
			places[k] = append(places[k], i)
			o.Group, o.Row = append(o.Group, r.Uint32()), append(o.Row, uint64(i))
			o.Time, o.Read = append(o.Time, r.Int64()), append(o.Read, r.Int64())
			o.Timestamp = append(o.Timestamp, strings.Repeat("t", r.IntN(5)))
			for range values {
				o.Features, o.Value = append(o.Features, r.Float32()), append(o.Value, r.Float64())
			}
			whole.Score, whole.Decision = append(whole.Score, r.Float32()), append(whole.Decision, r.Uint32())
			whole.Leader, whole.Round = append(whole.Leader, r.Uint64()), append(whole.Round, r.Uint64())
			whole.Dropped = append(whole.Dropped, uint8(r.IntN(3)))
			for range candidates {
				whole.Counts = append(whole.Counts, r.Uint32())
			}
		}
		whole.Group, whole.Row, whole.Read, whole.Timestamp, whole.Value = o.Group, o.Row, o.Read, o.Timestamp, o.Value
		of := make([]*Decisions, parts)
		for k, at := range places {
			if len(at) == 0 {
				continue
			}
			p := o.Pick(at)
			of[k] = &Decisions{
				Group: p.Group, Row: p.Row, Read: p.Read, Timestamp: p.Timestamp, Value: p.Value,
				Candidates: candidates,
				Score:      pick(whole.Score, at, 1), Decision: pick(whole.Decision, at, 1),
				Counts: pick(whole.Counts, at, candidates), Leader: pick(whole.Leader, at, 1),
				Round: pick(whole.Round, at, 1), Dropped: pick(whole.Dropped, at, 1),
			}
			for i, row := range at {
				if p.Time[i] != o.Time[row] || p.Features[i*values] != o.Features[row*values] {
					t.Fatalf("part %d, row %d is not row %d of the whole", k, i, row)
				}
			}
		}
		got, err := MergeDecisions(n, of, places)
		if d := cmp.Diff(whole, got); err != nil || d != "" {
			t.Fatalf("MergeDecisions: %v, difference (-want +got):\n%s", err, d)
		}
	}
}

// TestMergeRefuses: parts that do not fit the places or each other are errors.
func TestMergeRefuses(t *testing.T) {
	part := func(values int, dropped []uint8) *Decisions {
		return &Decisions{
			Group: []uint32{1}, Row: []uint64{1}, Read: []int64{1}, Timestamp: []string{""},
			Value: make([]float64, values),
			Score: []float32{0}, Decision: []uint32{0}, Counts: []uint32{1}, Candidates: 1, Leader: []uint64{0},
			Round: []uint64{1}, Dropped: dropped,
		}
	}
	for want, of := range map[string][]*Decisions{
		"part 1 does not have 1 rows":   {part(1, nil), nil},
		"part 1 has other columns":      {part(1, nil), part(2, nil)},
		"part 1 has other columns than": {part(1, nil), part(1, []uint8{0})},
		"part 0 has other columns":      {part(0, nil), part(0, nil)},
	} {
		if _, err := MergeDecisions(2, of, [][]int{{0}, {1}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MergeDecisions: %v, want %s", err, want)
		}
	}
}
