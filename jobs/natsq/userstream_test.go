package natsq

import (
	"testing"
)

// TestOverlap: two patterns of subjects overlap if one subject can match both.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.c", true},
		{"a.>", "a.c.d", true},
		{"a.>", "a", false},
		{"*.c", "a.>", true},
		{"a.*", "a.b.c", false},
	} {
		if got := overlap(c.a, c.b); got != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestOwnStream: the streams and subjects of the queue, of buckets and of the server are not a
// user's.
func TestOwnStream(t *testing.T) {
	for name, want := range map[string]bool{
		"EXO_RESULTS": true, "KV_a": true, "OBJ_a": true, "$SYS": true,
		"ORDERS": false,
	} {
		if got := ownStream(name); got != want {
			t.Errorf("stream %s: %v, want %v", name, got, want)
		}
	}
	for subject, want := range map[string]bool{
		"exo": true, "exo.job.a": true, "exo.out.a": false, "$JS.API": true,
		"_INBOX.a": true, "orders.a": false,
	} {
		if got := ownSubject(subject); got != want {
			t.Errorf("subject %s: %v, want %v", subject, got, want)
		}
	}
}
