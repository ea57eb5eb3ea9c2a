// Command mutate measures whether tests notice changes. It makes a seeded sample of small changes
// (mutants) to the code that guards, fences, commits and limits, runs the tests of the changed
// package against each, and lists the changes that no test notices (survivors).
//
// All mutants of a package are compiled into one test binary, each behind a switch that an
// environment variable turns on. A first pass runs every test by itself and records which switches
// it reaches. A mutant then runs only against tests that reach it, the quickest first. Sources are
// changed by an overlay; the working tree is not touched.
//
//	mutate -n 200 -seed 1
//	mutate -n 40 -seed 7 gpuagents
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	n         int // mutants; in measure, of one area
	seed      uint64
	threshold float64
	jobs      int
	budget    time.Duration
	slowest   time.Duration
	match     *regexp.Regexp
	tests     string
}

func run(ctx context.Context) error {
	var o options
	flag.IntVar(&o.n, "n", 200, "mutants, in equal parts for each area that runs")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the sample")
	flag.Float64Var(&o.threshold, "threshold", 0.9, "share of killed mutants below which the command fails")
	flag.IntVar(&o.jobs, "jobs", 2, "tests that run at a time")
	flag.DurationVar(&o.budget, "budget", 3*time.Minute, "time for one mutant, after which it counts as a survivor")
	flag.DurationVar(&o.slowest, "slowest", 20*time.Minute, "tests that take longer are left out")
	flag.StringVar(&o.tests, "tests", "^(Test|Example|Fuzz)", "run only tests whose names match this expression")
	match := flag.String("match", "", "run only those mutants of the sample whose file, function and change match "+
		"this expression")
	equivalent := flag.String("equivalent", "tools/mutate/equivalent.txt", "mutants that change no behaviour, "+
		"each with its reason")
	flag.Parse()
	if err := os.Setenv(testkit.LongEnv, "1"); err != nil { // a test that does not run kills nothing
		return err
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		return err
	}
	known, err := readEquivalent(*equivalent)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	areas := flag.Args()
	if len(areas) == 0 {
		for _, a := range scope {
			areas = append(areas, a.name)
		}
	}
	total := score{}
	o.n /= len(areas)
	for _, name := range areas {
		a, err := areaOf(name)
		if err != nil {
			return err
		}
		s, err := measure(ctx, a, o, known, filepath.Join(dir, strings.ReplaceAll(a.name, "/", "_")))
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		total.add(s)
	}
	fmt.Printf("total: %s, seed %d\n", total, o.seed)
	if total.share() < o.threshold {
		return fmt.Errorf("%.1f %% of the mutants were killed, below the threshold of %.0f %%: add tests for the "+
			"survivors", 100*total.share(), 100*o.threshold)
	}
	return nil
}

type score struct {
	killed, survived, unreached, timeouts, equivalent int
}

func (s *score) add(o score) {
	s.killed += o.killed
	s.survived += o.survived
	s.unreached += o.unreached
	s.timeouts += o.timeouts
	s.equivalent += o.equivalent
}

// share returns the share of mutants that were killed, equivalent ones left out.
func (s score) share() float64 { return float64(s.killed) / float64(max(1, s.killed+s.survived)) }

func (s score) String() string {
	return fmt.Sprintf("%d of %d mutants killed (%.1f %%), %d of them by a timeout; %d survivors, %d of them "+
		"reached by no test; %d equivalent",
		s.killed, s.killed+s.survived, 100*s.share(), s.timeouts, s.survived, s.unreached, s.equivalent)
}

// measure samples the mutants of an area and runs them.
func measure(ctx context.Context, a area, o options, known map[string]string, dir string) (score, error) {
	pkgs := make([]*pkg, len(a.packages))
	var all []*site
	for i, p := range a.packages {
		var err error
		if pkgs[i], err = load(ctx, p); err != nil {
			return score{}, err
		}
		all = append(all, pkgs[i].sites...)
	}
	s := score{}
	// A site is taken at most once. What does not compile, or is known to be equivalent, makes room
	// for the next.
	shuffle(all, o.seed)
	sample, rest := []*site{}, []*site{}
	for _, m := range all {
		switch {
		case known[m.key()] != "":
			if len(sample) < o.n {
				s.equivalent++
			}
		case len(sample) < o.n:
			sample = append(sample, m)
		default:
			rest = append(rest, m)
		}
	}
	sample = slices.DeleteFunc(sample, func(m *site) bool { return !o.match.MatchString(m.key()) })
	fmt.Printf("== %s: %d sites, %d sampled, seed %d\n", a.name, len(all), len(sample), o.seed)
	for _, p := range pkgs {
		mine := of(sample, p)
		if len(mine) == 0 {
			continue
		}
		b, err := build(ctx, p, mine, func() *site {
			for i, m := range rest {
				if m.pkg == p {
					rest = append(rest[:i], rest[i+1:]...)
					return m
				}
			}
			return nil
		}, filepath.Join(dir, strings.ReplaceAll(p.dir, "/", "_")))
		if err != nil {
			return s, err
		}
		one, err := b.run(ctx, o)
		if err != nil {
			return s, err
		}
		fmt.Printf("   %s: %s\n", p.dir, one)
		s.add(one)
	}
	fmt.Printf("== %s: %s\n", a.name, s)
	return s, nil
}

func of(all []*site, p *pkg) (mine []*site) {
	for _, m := range all {
		if m.pkg == p {
			mine = append(mine, m)
		}
	}
	return mine
}

// readEquivalent reads the mutants that no test can notice. A line is "file function: change #
// reason".
func readEquivalent(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndex(line, " # ")
		if at < 0 {
			return nil, fmt.Errorf("%s:%d: write \"file function: change # reason\"", path, i+1)
		}
		known[strings.TrimSpace(line[:at])] = line[at+3:]
	}
	return known, nil
}
