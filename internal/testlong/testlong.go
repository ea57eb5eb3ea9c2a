// Package testlong marks the tests that take long. A plain go test ./... skips them, so that it
// takes minutes; make test-long and the gate run them.
package testlong

import (
	"os"
	"testing"
)

// Env is the environment variable that has long tests run. Any value but the empty one does.
const Env = "EXOSWARM_LONG"

// Enabled reports whether long tests run. A test with a sample whose size is free takes a small one
// otherwise.
func Enabled() bool { return os.Getenv(Env) != "" }

// Only skips t unless long tests run.
func Only(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skip("a long test: make test-long runs it, or " + Env + "=1 go test")
	}
}

// Of returns all where long tests run, and few elsewhere: the size of a sample.
func Of(all, few int) int {
	if Enabled() {
		return all
	}
	return few
}
