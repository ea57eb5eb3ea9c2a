package explain

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// moving are options with moves, and without limits.
func moving() FleetLimits {
	o := options(0, 0)
	o.Together = 5 * time.Minute
	return o
}

// storms returns rows of entities whose incidents are independent, and of two storms: at 900 and at
// 1,400 all entities but quiet ones open an incident of ten rows, within two rows.
func storms(seed uint64, entities, n, quiet int) (all []row) {
	r := rand.New(rand.NewPCG(seed, 2))
	left := make([]int, entities)
	for i := range n {
		for e := range entities {
			decision := uint32(normal)
			switch storm := (i == 900+e%2 || i == 1400+e%2) && e >= quiet; {
			case storm && left[e] == 0:
				decision, left[e] = anomalous, 10
			case left[e] > 0:
				left[e]--
				decision = suspicious
			case r.IntN(1800) == 0:
				decision, left[e] = anomalous, 3
			}
			all = append(all, row{e, int64(i)*step - 50*hour, 0.4, decision})
		}
	}
	return all
}

// TestMove: a storm over a fleet has few anomalous rows, and all of its incidents are one move.
// Incidents outside it stay, and independent incidents are no move.
func TestMove(t *testing.T) {
	for _, entities := range []int{8, 40, 400} {
		const quiet = 2
		c, es := NewControl(moving()), make([]FleetEntity, entities)
		moves, shown, members := map[uint64]int{}, map[uint64]int{}, map[uint64]map[int]bool{}
		own := 0
		for _, r := range storms(1, entities, 2000, quiet) {
			e := &es[r.entity]
			got := c.Decide(e, r.ns, r.score, r.decision)
			if m := c.Moved(); m != nil {
				moves[m.Number]++
				members[m.Number] = map[int]bool{}
				for k := range es {
					if c.Claim(&es[k], m) {
						members[m.Number][k] = true
					}
				}
			}
			switch {
			case e.Move != 0 && r.decision == anomalous:
				members[e.Move][r.entity] = true
				if got == anomalous {
					shown[e.Move]++
				}
			case e.Move != 0 && got == anomalous:
				t.Fatalf("%d entities: a row inside of a move is anomalous", entities)
			case e.Move == 0 && got != r.decision:
				t.Fatalf("%d entities: a row outside of moves is decided %d, want %d", entities, got, r.decision)
			case e.Move == 0 && got == anomalous:
				own++
			}
		}
		if len(moves) != 2 {
			t.Errorf("%d entities: %d moves, want 2", entities, len(moves))
		}
		for m := range moves {
			if n := len(members[m]); n < entities-quiet-entities/50-1 || n > entities-quiet+2 {
				t.Errorf("%d entities: move %d has %d members, want about %d", entities, m, n, entities-quiet)
			}
			if shown[m] != 1 {
				t.Errorf("%d entities: move %d is found with %d anomalous rows, want 1", entities, m, shown[m])
			}
		}
		// Those before a move is found are shown as their own.
		if most := entities*2000/1800*5/4 + 2*20; own > most {
			t.Errorf("%d entities: %d incidents of their own are shown, want at most %d", entities, own, most)
		}
		for k := range es {
			want := k >= quiet
			if m := c.state.Moves[1]; c.Missed(&es[k], &m) == want && k < quiet {
				t.Errorf("%d entities: entity %d has missed the move: %v", entities, k, !want)
			}
		}
	}
}

// TestNoMove: independent incidents are no move, at any rate that the fleet is used to.
func TestNoMove(t *testing.T) {
	const entities = 300
	r := rand.New(rand.NewPCG(4, 4))
	for _, rate := range []float64{1.0 / 1800, 1.0 / 300} {
		c, es := NewControl(moving()), make([]FleetEntity, entities)
		moves := 0
		for i := range 4000 {
			for e := range entities {
				decision := uint32(normal)
				if r.Float64() < rate && i > 300 || r.Float64() < 1.0/1800 {
					decision = anomalous
				}
				c.Decide(&es[e], int64(i)*step, 0.4, decision)
				if c.Moved() != nil {
					moves++
				}
			}
		}
		// A rate that rises at row 300 is one, until the fleet is used to it.
		if most := map[bool]int{true: 0, false: 12}[rate < 1.0/1000]; moves > most {
			t.Errorf("at a rate of %.4f: %d moves, want at most %d", rate, moves, most)
		}
	}
}

// TestMoveState: a control with moves that is restored from bytes decides as one that was never
// stopped.
func TestMoveState(t *testing.T) {
	const entities = 60
	all := storms(3, entities, 1600, 1)
	o := options(0.2, 0)
	o.Together = 10 * time.Minute
	want := decide(NewControl(o), entities, all)
	c, es := NewControl(o), make([]FleetEntity, entities)
	got := make([][]uint32, entities)
	for i, r := range all {
		if i%997 == 996 || i > 900*entities && i < 902*entities {
			c, es = restored(t, o, c, es)
		}
		got[r.entity] = append(got[r.entity], c.Decide(&es[r.entity], r.ns, r.score, r.decision))
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("other decisions after State and Restore")
	}
	if c.state.Found < 2 {
		t.Errorf("%d moves were found: the test shows nothing", c.state.Found)
	}
}

// TestBins: what is kept is bounded, and rows of times that are too old change nothing.
func TestBins(t *testing.T) {
	c, e := NewControl(moving()), FleetEntity{}
	for i := range int64(mostBins + 500) {
		c.Decide(&e, i*step, 0.4, normal)
	}
	if n := len(c.state.Bins); n != mostBins {
		t.Errorf("%d bins, want %d", n, mostBins)
	}
	c.Decide(&e, 0, 0.4, anomalous)
	if n := len(c.state.Bins); n != mostBins || c.state.Bins[0].Number == 0 {
		t.Errorf("%d bins from %d on: a row that is too old is kept", n, c.state.Bins[0].Number)
	}
	for i := range int64(2 * mostMoves) {
		for range 20 {
			c.Decide(&e, (mostBins+600+12*i)*step, 0.4, anomalous)
		}
	}
	if n := len(c.state.Moves); n != mostMoves {
		t.Errorf("%d moves, want %d", n, mostMoves)
	}
}
