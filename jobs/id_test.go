package jobs_test

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestCheckID: an id is no flag of a command line.
func TestCheckID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "A-1_b": true, "_a": true, "9": true, "a-": true, strings.Repeat("x", 64): true,
		"": false, "-": false, "-a": false, "--help": false, "a.b": false, "a b": false, "\u00e4": false,
		strings.Repeat("x", 65): false,
	} {
		if err := jobs.CheckID("name", id); (err == nil) != want {
			t.Errorf("CheckID(%q) = %v, want accepted: %t", id, err, want)
		}
	}
}
