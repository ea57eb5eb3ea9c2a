package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

type unit struct {
	name    string // the pattern that selects it
	took    time.Duration
	reaches []int
}

const (
	// slow is the time from which the subtests of a test run by themselves.
	slow = 2 * time.Second
	// patience is added to three times a test's usual time: other work on the machine is no reason
	// to kill a mutant.
	patience = 5 * time.Second
)

// exec runs a unit with a mutant on; 0 for none.
func (b *binary) exec(ctx context.Context, u string, mutant int, limit time.Duration, trace string,
	verbose bool,
) (out []byte, took time.Duration, timeout bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second) // the binary ends itself before
	defer cancel()
	tmp, err := os.MkdirTemp(b.dir, "tmp")
	if err != nil {
		return nil, 0, false, err
	}
	defer os.RemoveAll(tmp)
	args := []string{"-test.run", u, "-test.failfast", "-test.timeout", limit.String()}
	if verbose {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.p.dir
	cmd.Env = append(os.Environ(), fmt.Sprint("MUTANT=", mutant), "MUTANT_TRACE="+trace, "TMPDIR="+tmp)
	var buf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buf, &buf
	cmd.WaitDelay = time.Second
	began := time.Now()
	err = cmd.Run()
	timeout = ctx.Err() != nil || bytes.Contains(buf.Bytes(), []byte("panic: test timed out"))
	return buf.Bytes(), time.Since(began), timeout, err
}

var subtest = regexp.MustCompile(`(?m)^    --- PASS: (\S+) \(`)

// record runs every test once without a mutant, and returns what each reaches. A test that fails is
// left out.
func (b *binary) record(ctx context.Context, o options) ([]unit, error) {
	list := exec.CommandContext(ctx, b.path, "-test.list", o.tests)
	list.Dir = b.p.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var names []string
	for _, name := range strings.Fields(string(out)) {
		names = append(names, "^"+name+"$")
	}
	first, err := b.recordAll(ctx, names, o)
	if err != nil {
		return nil, err
	}
	var units []unit
	var names2 []string
	for _, r := range first {
		if len(r.subtests) > 1 && r.took > slow && len(r.reaches) > 0 {
			names2 = append(names2, r.subtests...)
			continue
		}
		units = append(units, r.unit)
	}
	second, err := b.recordAll(ctx, names2, o)
	for _, r := range second {
		units = append(units, r.unit)
	}
	return units, err
}

type recorded struct {
	unit
	subtests []string
}

func (b *binary) recordAll(ctx context.Context, names []string, o options) ([]recorded, error) {
	results := make([]*recorded, len(names))
	err := inParallel(o.jobs, len(names), func(i int) error {
		trace := filepath.Join(b.dir, fmt.Sprintf("trace%d-%d", len(names), i))
		defer os.Remove(trace)
		out, took, late, err := b.exec(ctx, names[i], 0, o.slowest, trace, true)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if late {
			fmt.Printf("   %s takes longer than %v and is left out\n", names[i], o.slowest)
			return nil
		}
		if err != nil {
			fmt.Printf("   %s fails without a mutant and is left out: %s\n", names[i], lastLines(out, 5))
			return nil
		}
		ids, err := numbers(trace)
		r := &recorded{unit: unit{names[i], took, ids}}
		for _, m := range subtest.FindAllSubmatch(out, -1) {
			r.subtests = append(r.subtests, pattern(string(m[1])))
		}
		results[i] = r
		return err
	})
	var all []recorded
	for _, r := range results {
		if r != nil {
			all = append(all, *r)
		}
	}
	return all, err
}

func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// run runs every mutant against the tests that reach it.
func (b *binary) run(ctx context.Context, o options) (score, error) {
	began := time.Now()
	units, err := b.record(ctx, o)
	if err != nil {
		return score{}, err
	}
	slices.SortFunc(units, func(x, y unit) int { return int(x.took - y.took) })
	fmt.Printf("   %s: %d tests recorded in %.0f s\n", b.p.dir, len(units), time.Since(began).Seconds())
	var mu sync.Mutex
	var s score
	err = inParallel(o.jobs, len(b.sites), func(i int) error {
		id := i + 1
		killer, timeout, reached := "", false, 0
		deadline := time.Now().Add(o.budget)
		for _, u := range units {
			if !slices.Contains(u.reaches, id) {
				continue
			}
			reached++
			if time.Now().After(deadline) {
				break
			}
			_, _, late, err := b.exec(ctx, u.name, id, 3*u.took+patience, "", false)
			if late { // is it the mutant, or is the machine busier than when the test was recorded?
				_, now, broken, _ := b.exec(ctx, u.name, 0, 5*time.Minute, "", false)
				if broken {
					continue
				}
				_, _, late, err = b.exec(ctx, u.name, id, 3*max(now, u.took)+patience, "", false)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			var failed *exec.ExitError
			if err != nil && !late && !errors.As(err, &failed) {
				return fmt.Errorf("run %s: %w", u.name, err)
			}
			if err != nil || late {
				killer, timeout = u.name, late
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case killer != "":
			s.killed++
			how := ""
			if timeout {
				s.timeouts++
				how = " (timeout)"
			}
			fmt.Printf("   killed   %s by %s%s\n", b.sites[i], killer, how)
		case reached == 0:
			s.survived++
			s.unreached++
			fmt.Printf("   SURVIVED %s: no test reaches it\n", b.sites[i])
		default:
			s.survived++
			fmt.Printf("   SURVIVED %s: %d tests reach it\n", b.sites[i], reached)
		}
		return nil
	})
	return s, err
}

// inParallel calls f for 0 to n-1, at most jobs at a time, and returns the first error.
func inParallel(jobs, n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	for range min(jobs, n) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := first != nil
				mu.Unlock()
				if i >= n || stop {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
