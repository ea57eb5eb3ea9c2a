package pages

import "testing"

// TestBroadcast: a channel is closed by the next Send and by no earlier one.
func TestBroadcast(t *testing.T) {
	b := NewBroadcast()
	open := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return false
		default:
			return true
		}
	}
	first, same := b.Next(), b.Next()
	if !open(first) || first != same {
		t.Error("a channel is closed before the first Send, or is not shared")
	}
	b.Send()
	if second := b.Next(); open(first) || !open(second) {
		t.Error("Send has not closed the first channel alone")
	}
}
