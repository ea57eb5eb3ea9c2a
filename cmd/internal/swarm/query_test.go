package swarm

import (
	"slices"
	"testing"
)

// TestParseIDs: ids and ranges keep their order and may repeat; texts that are neither, and too
// many ids, are refused.
func TestParseIDs(t *testing.T) {
	got, err := parseIDs("1, 5-7,0,5")
	if want := []uint32{1, 5, 6, 7, 0, 5}; err != nil || !slices.Equal(got, want) {
		t.Errorf("ids %v, error %v; want %v", got, err, want)
	}
	for _, text := range []string{"", "1,,2", "-1", "1-", "a", "4294967296", "0-65536", "0-65535,1"} {
		if ids, err := parseIDs(text); err == nil {
			t.Errorf("%q is read as %d ids, want an error", text, len(ids))
		}
	}
}
