package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// TestMain makes this binary the processes that the command starts, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"server", "agent", "burn"}, os.Args[1]) {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestMeasure measures a small cluster: all series that the simulator needs are there, and the
// rates of a run fit its latencies by Little's law.
func TestMeasure(t *testing.T) {
	testkit.OnlyLong(t)
	out := t.TempDir()
	args := []string{"-out", out, "-rows", "600", "-shards", "1", "-each", "5ms", "-run", "500ms"}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := run(ctx, args); err != nil {
		t.Fatal(err)
	}
	read := func(name string) *times.File {
		f, err := os.Open(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		file, err := times.Read(name, f)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	found := map[string]int64{}
	for _, s := range read("stages.times").Series {
		found[s.Name] += s.Times.N()
	}
	for _, name := range []string{
		"encode", "decode", "answer", "merge", "observe", "workers", "cores", "append", "raft", "fetch",
		"deliver", "sync",
	} {
		if found[name] == 0 {
			t.Errorf("stages.times has no times of %s: %v", name, found)
		}
	}
	runs := 0
	for _, s := range read("runs.times").Series {
		if s.Name != "run" {
			continue
		}
		runs++
		inside := s.Keys["answered"] * s.Times.Mean() / 1e9
		if s.Keys["window"] > 0 && (inside < 1 || inside > 1.5*window) {
			t.Errorf("%v entries/s with a latency of %v are %.1f inside, want up to the window of %d",
				s.Keys["answered"], time.Duration(s.Times.Mean()), inside, window)
		}
	}
	if runs != 6 {
		t.Errorf("%d runs, want 6", runs)
	}
}

// TestArguments: wrong arguments are refused before anything starts.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-rows", "70000"}, {"-shards", "0"}, {"-run", "-1s"}, {"file"}} {
		if err := run(t.Context(), args); err == nil || !strings.HasPrefix(err.Error(), "use -rows from 60") {
			t.Errorf("%q: %v, want what to use", args, err)
		}
	}
	if w := worked(os.Getpid()); w < 0 {
		t.Errorf("worked is %v", w)
	}
	if err := parallel(3, func(k int) error {
		if k == 1 {
			return os.ErrExist
		}
		return nil
	}); err == nil {
		t.Error("parallel has lost an error")
	}
}
