package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const fixture = `package limit

import "errors"

var ErrFull = errors.New("full")

// Take fills a room of three.
func Take(n int, closed bool) error {
	if closed || n < 0 {
		return errors.New("refused")
	}
	if n > 3 {
		return ErrFull
	}
	return nil
}

// Never is code that no test reaches.
func Never(n int) int {
	n++
	return n + 1
}
`

// thorough notices every change to Take, and lax none.
const (
	thorough = `package limit

import "testing"

func TestTake(t *testing.T) {
	for n, want := range map[int]bool{-1: false, 0: true, 1: true, 3: true, 4: false} {
		if got := Take(n, false) == nil; got != want {
			t.Errorf("%d: %v", n, got)
		}
	}
	if Take(1, true) == nil {
		t.Error("it is closed")
	}
}
`
	lax = `package limit

import "testing"

func TestTake(*testing.T) { _ = Take(1, false); _ = Take(4, false) }
`
)

// TestMutants: the mutants of a package are found and compiled together; tests that look at
// everything kill all that they reach, tests that look at nothing kill none.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles packages: not with -short")
	}
	for name, c := range map[string]struct {
		test string
		all  bool
	}{"thorough": {thorough, true}, "lax": {lax, false}} {
		dir := t.TempDir()
		for file, text := range map[string]string{
			"go.mod":         "module example.org/limit\n\ngo 1.24\n",
			"limit/limit.go": fixture, "limit/limit_test.go": c.test,
		} {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Chdir(dir)
		p, err := load(context.Background(), "limit")
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, s := range p.sites {
			found = append(found, s.key())
		}
		for _, want := range []string{
			"limit/limit.go Take: negate closed || n < 0", "limit/limit.go Take: take as false closed",
			"limit/limit.go Take: n < 0 as <=", "limit/limit.go Take: n > 3 as >=",
			"limit/limit.go Take: 3 + 1", "limit/limit.go Take: 3 - 1", "limit/limit.go Take: return nil for ErrFull",
			`limit/limit.go Take: return nil for errors.New("refused")`,
			"limit/limit.go Never: leave out n++", "limit/limit.go Never: 1 + 1",
		} {
			if !strings.Contains("\n"+strings.Join(found, "\n")+"\n", "\n"+want+"\n") {
				t.Errorf("%s is not found in\n%s", want, strings.Join(found, "\n"))
			}
		}
		b, err := build(t.Context(), p, p.sites, func() *site { return nil }, filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.run(t.Context(), options{jobs: 2, budget: time.Hour, slowest: time.Minute, tests: "^Test"})
		if err != nil {
			t.Fatal(err)
		}
		never := 0
		for _, m := range b.sites {
			if m.fn == "Never" {
				never++
			}
		}
		if s.killed+s.survived != len(b.sites) || c.all && (s.survived != never || s.unreached != never) || !c.all &&
			s.killed > 0 {
			t.Errorf("%s: %s; %d of them are in code that is not reached", name, s, never)
		}
	}
}

func TestEquivalentList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("# none\n\na.go F: 1 + 1 # a capacity\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := readEquivalent(path)
	if err != nil || len(known) != 1 || known["a.go F: 1 + 1"] != "a capacity" {
		t.Errorf("%v, %v", known, err)
	}
	if err := os.WriteFile(path, []byte("a.go F: 1 + 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEquivalent(path); err == nil {
		t.Error("a mutant without a reason was taken")
	}
}
