package gpu

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestCompute: an expression and a chain from the command line to an agent and back.
func TestCompute(t *testing.T) {
	url := agent(t)
	x, y := save(t, "x.npy", []float32{3, 5}), save(t, "y.npy", []float32{4, 12})
	out := filepath.Join(t.TempDir(), "out.npy")
	text, err := run(
		t,
		url,
		"compute",
		"sum(sqrt(x*x + y*y)); d = x * a",
		"--in",
		"x="+x,
		"--in",
		"y="+y,
		"--set",
		"a=2",
		"--out",
		"d="+out,
	)
	if err != nil || !strings.Contains(text, "out=18 ") || !slices.Equal(saved[float32](t, out), []float32{6, 10}) {
		t.Errorf("gpu compute: %q, error %v", text, err)
	}
	text, err = run(t, url, "compute", "x +", "--in", "x="+x)
	if err == nil || jobs.AsError(err).Code != jobs.CodeInvalid || !strings.Contains(err.Error(), "column 4") {
		t.Errorf("a wrong expression: %q, error %v", text, err)
	}
	if _, err := run(t, url, "compute", "x", "--in", x); err == nil || !strings.Contains(err.Error(), "NAME=FILE") {
		t.Errorf("--in without a name: %v", err)
	}
	m := save(t, "m.npy", []float32{1, 2, 3, 4}, 2, 2)
	text, err = run(t, url, "chain", "--in", m, "--in", m, "--in", m, "--out", out)
	if err != nil || !strings.Contains(text, "m1") ||
		!slices.Equal(saved[float32](t, out), []float32{37, 54, 81, 118}) {
		t.Errorf("gpu chain: %q, error %v", text, err)
	}
}

// TestComputeChecksFirst: mistakes of files and flags are found without a server.
func TestComputeChecksFirst(t *testing.T) {
	x := save(t, "x.npy", []float32{1})
	for want, args := range map[string][]string{
		"none.npy":     {"--in", "x=none.npy"},
		"NAME=FILE":    {"--in", x},
		"use a number": {"--in", "x=" + x, "--set", "a=b"},
	} {
		_, err := run(t, "nats://127.0.0.1:1", append([]string{"compute", "x"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("gpu compute %q without a server: %v, want %s", args, err, want)
		}
	}
}
