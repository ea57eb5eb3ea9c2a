package pager

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
)

// TestInPairs: every group moves once, at most two at a time, and is done with in order; nothing is
// under way afterwards, and an error ends it.
func TestInPairs(t *testing.T) {
	broken := errors.New("broken")
	for groups := range 6 {
		for fails := range groups + 1 { // the last: none
			for empty := range groups + 1 { // the one that has no page; the last: none
				gs := newGroups(4)
				var under, most atomic.Int32
				var moved, finished []int
				var moves [6]atomic.Int32
				i, filled := 0, 0
				err := gs.inPairs(func(g *group, most int) bool {
					if most != 2 && (filled == 0 || most != 4) {
						t.Fatalf("%d groups: at most %d pages after %d groups", groups, most, filled)
					}
					if i < groups && i != empty {
						g.add(uint64(i), nil, ByHint)
						filled++
					}
					i++
					return i < groups
				}, func(g *group) {
					if n := under.Add(1); n > most.Load() {
						most.Store(n)
					}
					moves[g.pages[0]].Add(1)
					under.Add(-1)
				}, func(g *group) error {
					n := int(g.pages[0])
					if finished = append(finished, n); n == fails {
						return broken
					}
					return nil
				})
				if under.Load() != 0 || most.Load() > 2 {
					t.Fatalf("%d groups: %d under way, %d at most", groups, under.Load(), most.Load())
				}
				for n := range moves {
					switch moves[n].Load() {
					case 0:
					case 1:
						moved = append(moved, n)
					default:
						t.Fatalf("%d groups: group %d moved %d times", groups, n, moves[n].Load())
					}
				}
				if !slices.Equal(moved, finished) {
					t.Fatalf("%d groups, %d fails: moved %v, done with %v", groups, fails, moved, finished)
				}
				want := fails < groups && fails != empty
				if errors.Is(err, broken) != want || !want && len(moved) != groups-min(1, groups-empty) {
					t.Fatalf("%d groups, %d fails, %d empty: %v, moved %v", groups, fails, empty, err, moved)
				}
				if want && len(moved) > fails+2 {
					t.Fatalf("%d groups, %d fails: went on to %v", groups, fails, moved)
				}
			}
		}
	}
}
