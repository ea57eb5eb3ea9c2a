package testkit

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// LongEnv is the environment variable that has long tests run. Any value but the empty one does.
const LongEnv = "EXOSWARM_LONG"

// Long reports whether long tests run. A test with a sample whose size is free takes a small one
// otherwise.
func Long() bool { return os.Getenv(LongEnv) != "" }

// OnlyLong skips t unless long tests run. A plain go test ./... runs no long test, make test-long
// runs all of them, and the gate a slice: tools/longtests finds the tests that call OnlyLong, Of,
// Few and Checks.
func OnlyLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("a long test: make test-long runs it, or " + LongEnv + "=1 go test")
	}
}

// Of returns all where long tests run, and few elsewhere: the size of a sample.
func Of(all, few int) int {
	if Long() {
		return all
	}
	return few
}

// Few returns all where long tests run, and elsewhere n of them, evenly spread. It does not change
// all.
func Few[T any](all []T, n int) []T {
	if Long() || len(all) <= n {
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
	if Long() || f.Value.String() != f.DefValue {
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
