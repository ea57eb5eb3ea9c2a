package measures

import (
	"fmt"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/quality"
)

// TestHalves: each kind is split evenly, whatever the order of the streams.
func TestHalves(t *testing.T) {
	var streams []quality.Stream
	for kind := range 10 {
		for n := range 1 + kind {
			streams = append(streams, quality.Stream{Name: fmt.Sprintf("kind%d/%d", kind, n)})
		}
	}
	first, second := Halves(streams)
	count := map[string]int{}
	for _, s := range first {
		count[Kind(s)]++
	}
	for _, s := range second {
		count[Kind(s)]--
	}
	for kind, n := range count {
		if n < -1 || n > 1 {
			t.Errorf("kind %s: %d more in the first half", kind, n)
		}
	}
	if len(first) != 30 || len(second) != 25 {
		t.Errorf("%d and %d streams", len(first), len(second))
	}
	// The rule is fixed: the order of the names within a kind.
	if first[1].Name != "kind1/0" || second[0].Name != "kind1/1" {
		t.Errorf("the first half goes on with %s, and the second begins with %s", first[1].Name, second[0].Name)
	}
	slices.Reverse(streams)
	again, _ := Halves(streams)
	same := func(a, b quality.Stream) bool { return a.Name == b.Name }
	if !slices.EqualFunc(first, again, same) {
		t.Errorf("%v, and in another order %v", first, again)
	}
}
