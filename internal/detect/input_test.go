package detect

import (
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/runinput"
)

// TestClock: each record has the arrival of the part in which it ends, and one whose quoted field
// has a line end does not make the records behind it later.
func TestClock(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	c := clock{
		text:     []byte("h\naa\nbb\nc\"\n\"c\ndd"),
		arrivals: []runinput.Arrival{{End: 6, At: at(1)}, {End: 8, At: at(2)}, {End: 17, At: at(3)}},
	}
	for i, want := range []int{1, 1, 2, 3, 3, 3, 3} {
		if got := c.next(); !got.Equal(at(want)) {
			t.Errorf("line %d arrived at %v, want %v", i, got, at(want))
		}
	}
	if got := (&clock{}).next(); time.Since(got) > time.Minute {
		t.Errorf("a record without arrivals arrived at %v, want now", got)
	}
}
