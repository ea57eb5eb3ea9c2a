// Package testkit has the helpers that the tests of all packages share: the check for leaked
// goroutines, the mark of long tests, waits, and folders for temporary and compiled files.
package testkit

import (
	"testing"
	"time"
)

// Until waits for a condition. It fails t with what if the condition does not hold within five
// minutes, a time that a loaded machine does not reach. It calls met on the goroutine of the
// caller, at growing intervals from 1 to 50 ms.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	limit := time.Now().Add(5 * time.Minute)
	for pause := time.Millisecond; !met(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited five minutes for %s", what)
		}
		time.Sleep(pause)
	}
}
