package main

import (
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var module = sync.OnceValues(func() (*sources, error) { return load("../..", "../../tools", "../../examples") })

// TestFound: tests that reach testkit are found, whatever the way, and others are not.
func TestFound(t *testing.T) {
	m, err := module()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]longTest{}
	for _, l := range m.tests() {
		found[l.key()] = l
	}
	for key, only := range map[string]bool{
		"cmd/exoswarm.TestRecovery":                true,
		"cuda/host/celltwin.TestKernelsEqualTwins": false, // by a function of the test's package
		"cmd/internal/gpuprocess.TestDamage":       false, // by a variable
		"cuda/host.TestConformance":                false, // by a function of another package
		"jobs/natsq.TestConformance":               false,
	} {
		if l, ok := found[key]; !ok || l.only != only {
			t.Errorf("%s: found %v: %+v, want only %v", key, ok, l, only)
		}
	}
	for _, key := range []string{"cmd/exoswarm.TestInterrupt", "tools/longtests.TestFound"} {
		if l, ok := found[key]; ok {
			t.Errorf("%+v does not differ in a long run", l)
		}
	}
	for key := range always {
		if !found[key].only {
			t.Errorf("always has %s, which is no test that only a long run has", key)
		}
	}
}

// TestSlices: each test is in one slice and in the slice of all. Tests of the list always are in
// every slice.
func TestSlices(t *testing.T) {
	m, err := module()
	if err != nil {
		t.Fatal(err)
	}
	tests := m.tests()
	has := func(slice int, l longTest) bool {
		for _, c := range selected(tests, slice) {
			if path.Join(c[slices.Index(c, "-C")+1], c[len(c)-1]) == l.dir {
				names := strings.Trim(c[slices.Index(c, "-run")+1], "^()$")
				return slices.Contains(strings.Split(names, "|"), l.name)
			}
		}
		return false
	}
	for _, l := range tests {
		want := 1
		if always[l.key()] {
			want = parts
		}
		got := 0
		for slice := range parts {
			if has(slice, l) {
				got++
			}
		}
		if got != want || !has(allSlices, l) {
			t.Errorf("%s is in %d slices, want %d, and among all: %v", l.key(), got, want, has(allSlices, l))
		}
	}
}

func TestSliceOf(t *testing.T) {
	day := time.Date(2026, 11, 23, 23, 59, 0, 0, time.UTC)
	first, err := sliceOf("", day)
	next, nerr := sliceOf("", day.Add(time.Minute))
	if err != nil || nerr != nil || next != (first+1)%parts {
		t.Errorf("slice %d of a day, %d of the next: %v, %v", first, next, err, nerr)
	}
	for env, want := range map[string]int{"0": 0, "3": 3, "all": allSlices} {
		if got, err := sliceOf(env, day); err != nil || got != want {
			t.Errorf("%s: slice %d: %v", env, got, err)
		}
	}
	for _, env := range []string{"4", "-1", "x"} {
		if got, err := sliceOf(env, day); err == nil {
			t.Errorf("%s: slice %d", env, got)
		}
	}
}
