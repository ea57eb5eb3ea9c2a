package swarmclient

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Parts are sent in turn, one at a time, and the next one while the answer before it is used. An
// error names the first row that did not take effect.
func TestInTurn(t *testing.T) {
	var sent, under atomic.Int32
	send := func(first, end int) (int, error) {
		if under.Add(1) > 1 {
			t.Error("two parts are on their way")
		}
		defer under.Add(-1)
		sent.Add(1)
		if first == 30 {
			return 0, errors.New("refused")
		}
		return end - first, nil
	}
	var got []int
	collect := func(n int) error { got = append(got, n); return nil }
	if n, err := inTurn(25, 10, send, collect); n != 3 || err != nil || !slices.Equal(got, []int{10, 10, 5}) {
		t.Errorf("%d parts, %v: %v", n, err, got)
	}
	got = nil
	if n, err := inTurn(0, 10, send, collect); n != 0 || err != nil || got != nil {
		t.Errorf("%d parts of nothing, %v: %v", n, err, got)
	}
	n, err := inTurn(50, 10, send, collect)
	if n != 3 || err == nil || !strings.Contains(err.Error(), "observations from number 31 on") {
		t.Errorf("%d parts before the one that is refused: %v", n, err)
	}

	// The part that is on its way when fn fails takes effect too.
	sent.Store(0)
	broken := errors.New("no reader")
	if n, err := inTurn(25, 10, send, func(int) error { return broken }); n != 2 || !errors.Is(err, broken) ||
		sent.Load() != 2 {
		t.Errorf("%d of %d parts took effect: %v", n, sent.Load(), err)
	}
	// fn runs while the next part is sent.
	next := make(chan struct{})
	if _, err := inTurn(2, 1, func(first, _ int) (int, error) {
		if first == 1 {
			close(next)
		}
		return first, nil
	}, func(part int) error {
		if part == 0 {
			<-next
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
