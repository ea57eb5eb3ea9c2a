// Command longtests runs the tests in which a long run differs from a plain one. It finds them in
// the sources: a test differs if it calls package testkit, itself or through functions of the
// modules, which are the product, tools and examples. It runs at the root of the repository.
//
// Each test is in one of four slices, and one slice runs a day. Tests of the list always are in
// every slice. EXOSWARM_SLICE names another slice than that day's, and "all" names all slices.
//
// usage: longtests [-list] [-jobs N]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// parts is the number of slices.
const parts = 4

// modules are the folders of the modules. The first is the root.
var modules = []string{".", "tools", "examples"}

// sliceEnv is the environment variable that names a slice: a number below parts, or "all".
const sliceEnv = "EXOSWARM_SLICE"

// always are the tests of safety that every slice has, although only a long run has them. The
// defaults of their flags bound them. TestRecovery of cmd/exoswarm is not among them, because the
// gate has make recover-race.
var always = map[string]bool{"cmd/exoswarm.TestChaos": true, "tiers/pagestore.TestFault": true}

func main() {
	list := flag.Bool("list", false, "print the commands and do not run them")
	jobs := flag.Int("jobs", 3, "packages at a time; tests of processes mostly wait")
	flag.Parse()
	if err := run(*list, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "longtests:", err)
		os.Exit(1)
	}
}

func run(list bool, jobs int) error {
	slice, err := sliceOf(os.Getenv(sliceEnv), time.Now())
	if err != nil {
		return err
	}
	m, err := load(modules...)
	if err != nil {
		return err
	}
	commands := selected(m.tests(), slice)
	fmt.Printf("long tests, slice %s of 0 to %d: %s=%s repeats it\n", name(slice), parts-1, sliceEnv, name(slice))
	if list {
		for _, c := range commands {
			fmt.Println(strings.Join(c, " "))
		}
		return nil
	}
	if err := os.Setenv(testkit.LongEnv, "1"); err != nil {
		return err
	}
	return runAll(commands, jobs)
}

// allSlices selects the tests of every slice.
const allSlices = -1

func name(slice int) string {
	if slice == allSlices {
		return "all"
	}
	return strconv.Itoa(slice)
}

// sliceOf returns the slice that the environment names, or the slice of the day in UTC.
func sliceOf(env string, now time.Time) (int, error) {
	switch n, err := strconv.Atoi(env); {
	case env == "":
		return int(now.Unix() / (24 * 60 * 60) % parts), nil
	case env == "all":
		return allSlices, nil
	case err != nil || n < 0 || n >= parts:
		return 0, fmt.Errorf("%s is %q: want a number from 0 to %d, or all", sliceEnv, env, parts-1)
	default:
		return n, nil
	}
}

// selected returns a command for each package with tests of the slice, in the order of tests.
func selected(tests []longTest, slice int) (commands [][]string) {
	var packages []string
	names := map[string][]string{}
	turn := 0
	for _, t := range tests {
		mine := always[t.key()]
		if !mine {
			turn++
			mine = turn%parts == slice
		}
		if !mine && slice != allSlices {
			continue
		}
		if names[t.dir] == nil {
			packages = append(packages, t.dir)
		}
		names[t.dir] = append(names[t.dir], t.name)
	}
	for _, dir := range packages {
		module, below := ".", filepath.ToSlash(dir)
		for _, m := range modules[1:] {
			if rest, ok := strings.CutPrefix(below, m+"/"); ok {
				module, below = m, rest
			}
		}
		commands = append(commands, []string{
			"go", "test", "-C", module, "-count=1", "-timeout", "20m", "-run",
			"^(" + strings.Join(names[dir], "|") + ")$", "./" + below,
		})
	}
	return commands
}

var errFailed = errors.New("tests failed")

// runAll runs commands, some at a time, and prints each with its output when it has ended.
func runAll(commands [][]string, jobs int) error {
	var (
		all    sync.WaitGroup
		mu     sync.Mutex // guards standard output and failed
		failed error
		room   = make(chan struct{}, max(1, jobs))
	)
	for _, c := range commands {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			var out bytes.Buffer
			cmd := exec.Command(c[0], c[1:]...)
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf("%s\n%s", strings.Join(c, " "), out.Bytes())
			if err != nil {
				failed = errFailed
			}
		})
	}
	all.Wait()
	return failed
}
