package testkit

import (
	"io"
	"testing"
)

// Close closes c at the end of t, and fails t if that fails.
func Close(t testing.TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %T: %v", c, err)
		}
	})
}
