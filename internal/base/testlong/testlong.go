// Package testlong marks the tests that take long. A plain go test ./... skips them or gives them
// smaller samples, so that it takes minutes. make test-long runs all of them, and the gate a slice:
// tools/longtests finds the tests that call this package.
package testlong

import (
	"flag"
	"os"
	"strconv"
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

// Few returns all where long tests run, and elsewhere n of them, evenly spread. It does not change all.
func Few[T any](all []T, n int) []T {
	if Enabled() || len(all) <= n {
		return all
	}
	few := make([]T, n)
	for i := range few {
		few[i] = all[i*len(all)/n]
	}
	return few
}

// Checks has rapid make few random cases a property until t has ended, where long tests do not run
// and the command line does not say how many with -rapid.checks. A test calls it before it becomes
// parallel.
func Checks(t testing.TB, few int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f == nil {
		t.Fatal("this test binary is without rapid")
	}
	if Enabled() || f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(strconv.Itoa(few)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Value.Set(f.DefValue); err != nil {
			t.Error(err)
		}
	})
}
