package labelled

import (
	"errors"
	"testing"
	"time"
)

// TestRecorded: the recording has windows in every series, at any step, and they cover the same
// time.
func TestRecorded(t *testing.T) {
	seconds, err := Recorded(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tens, err := Recorded(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(seconds) < 4 || len(tens) != len(seconds) {
		t.Fatalf("%d and %d series", len(seconds), len(tens))
	}
	windows := 0
	for i, s := range seconds {
		if n, tenth := len(s.Times), len(tens[i].Times); n != len(s.Values) || tenth < n/11 || tenth > n/9 {
			t.Errorf("%s: %d and %d rows", s.Name, n, tenth)
		}
		for k, w := range s.Windows {
			windows++
			other := tens[i].Windows[k]
			for _, d := range []int64{
				s.Times[w.First] - tens[i].Times[other.First], s.Times[w.Last] - tens[i].Times[other.Last],
			} {
				if d < 0 || d >= int64(10*time.Second) {
					t.Errorf("%s: window %v at a second, %v at ten", s.Name, w, other)
				}
			}
			if w.Last <= w.First || k > 0 && w.First <= s.Windows[k-1].Last {
				t.Errorf("%s: windows %v", s.Name, s.Windows)
			}
		}
	}
	if windows < 11 {
		t.Errorf("%d windows", windows)
	}
	if _, err := Recorded(time.Millisecond); !errors.Is(err, ErrStep) {
		t.Error(err)
	}
}
