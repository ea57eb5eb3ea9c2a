package pagestore

import (
	"errors"
	"testing"
)

// TestStop: a batch ends at the first of the pages that failed, in whatever order they did.
func TestStop(t *testing.T) {
	first, later := errors.New("first"), errors.New("later")
	for _, order := range [][]int{{3, 5}, {5, 3}} {
		b := newBatch(9)
		for _, i := range order {
			b.stop(i, map[int]error{3: first, 5: later}[i])
		}
		if b.end != 3 || !errors.Is(b.err, first) {
			t.Fatalf("failed in the order %v: ends at %d with %v, want 3 with %v", order, b.end, b.err, first)
		}
		if i, ok := b.take(); !ok || i != 0 {
			t.Errorf("page %d, %v is taken next, want 0", i, ok)
		}
		b.next = 3
		if i, ok := b.take(); ok {
			t.Errorf("page %d is taken behind the one that failed", i)
		}
		if b.await(4) {
			t.Error("the turn of a page comes behind the one that failed")
		}
	}
}

// TestTake: pages are taken in order, each once, up to the end, which may fall meanwhile.
func TestTake(t *testing.T) {
	b := newBatch(4)
	for want := range 2 {
		if i, ok := b.take(); i != want || !ok {
			t.Errorf("page %d, %v; want %d", i, ok, want)
		}
	}
	b.stop(3, errors.New("page 3"))
	if i, ok := b.take(); i != 2 || !ok {
		t.Errorf("page %d, %v; want 2", i, ok)
	}
	for range 2 {
		if i, ok := b.take(); i != 0 || ok {
			t.Errorf("page %d, %v behind the end", i, ok)
		}
	}
	if !b.await(0) || b.await(3) || b.await(4) {
		t.Error("the turn of a page does not come, or that of one behind the end")
	}
	b.pass()
	if !b.await(1) {
		t.Error("the turn does not go to the next page")
	}
}
