package nab

import (
	"slices"
	"testing"
)

// TestHalves: each kind is split evenly, whatever the order of the streams.
func TestHalves(t *testing.T) {
	var streams []Stream
	for _, name := range []string{"a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "b/4", "c/1"} {
		streams = append(streams, Stream{Name: name})
	}
	first, second := Halves(streams)
	count := map[string]int{}
	for _, s := range first {
		count[s.Kind()]++
	}
	for _, s := range second {
		count[s.Kind()]--
	}
	for kind, n := range count {
		if n < -1 || n > 1 {
			t.Errorf("kind %s: %d more in the first half", kind, n)
		}
	}
	if len(first) != 4 || len(second) != 4 {
		t.Errorf("%d and %d streams", len(first), len(second))
	}
	slices.Reverse(streams)
	again, _ := Halves(streams)
	same := func(a, b Stream) bool { return a.Name == b.Name }
	if !slices.EqualFunc(first, again, same) {
		t.Errorf("%v, and in another order %v", first, again)
	}
}
