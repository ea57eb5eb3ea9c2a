package batch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func droppedDecisions() *Decisions {
	return &Decisions{
		Group: []uint32{3, 3, 4}, Row: []uint64{1, 2, 1}, Read: []int64{1, 2, 3}, Timestamp: []string{"a", "", "b"},
		Value: []float64{1, 2, 3},
		Score: []float32{0.5, 0, 0}, Decision: []uint32{1, NoDecision, NoDecision}, Counts: []uint32{1, 2, 0, 0, 0, 0},
		Candidates: 2,
		Leader:     []uint64{1, 0, 0}, Round: []uint64{7, 7, 1},
		Dropped: []uint8{Applied, DroppedLate, DroppedDuplicate},
	}
}

// TestDropped: what was dropped travels with the decisions of a swarm that drops, and the batches
// of others are as they were.
func TestDropped(t *testing.T) {
	want := droppedDecisions()
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDecisions(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	want.Dropped = nil
	without, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err = DecodeDecisions(without); err != nil || got.Dropped != nil || len(without) >= len(data) {
		t.Errorf("%d bytes and %v of decisions that know no drops, %d with them (%v)", len(without), got, len(data),
			err)
	}
	for name, spoil := range map[string]func(d *Decisions){
		"a reason that there is not":    func(d *Decisions) { d.Dropped[1] = 3 },
		"a decision on what is dropped": func(d *Decisions) { d.Decision[2] = 0 },
	} {
		d := droppedDecisions()
		spoil(d)
		if data, err = d.Encode(); err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeDecisions(data); !isInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ragged := droppedDecisions()
	ragged.Dropped = ragged.Dropped[:2]
	if _, err := ragged.Encode(); err == nil {
		t.Error("encoded two reasons for three decisions")
	}
}
