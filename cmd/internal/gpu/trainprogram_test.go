package gpu

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTrainProgram: the weights of a program are trained, from files and drawn ones, and go on from
// the end of another training. Large arrays are objects of the job.
func TestTrainProgram(t *testing.T) {
	url := agent(t)
	x, y := save(t, "x.npy", []float32{1, 2, 3, 4, 5, 6, 7, 9}, 4, 2), save(t, "y.npy", []float32{5, 11, 17, 25}, 4, 1)
	b := save(t, "b.npy", []float32{0}, 1, 1)
	folder := filepath.Join(t.TempDir(), "weights")
	args := []string{
		"--program", "mean(square(matmul(x, w) * a + b - y))", "--in", "x=" + x, "--in", "y=" + y, "--param", "w=2x1",
		"--param", "b=" + b, "--set", "a=1", "--rate", "0.05", "--out", folder,
	}
	stdout, stderr, err := runTrain(t, url, append(args, "--steps", "400", "--id", "first")...)
	if err != nil || !strings.HasPrefix(stdout, "LOSS") {
		t.Fatalf("train --program: %q, %q, error %v", stdout, stderr, err)
	}
	losses := saved[float32](t, filepath.Join(folder, "losses.npy"))
	w := saved[float32](t, filepath.Join(folder, "w.npy"))
	if len(losses) != 400 || losses[399] > 0.1 || losses[399] > losses[0]/50 || len(w) != 2 {
		t.Errorf("%d losses from %v to %v, weights %v", len(losses), losses[0], losses[len(losses)-1], w)
	}
	if _, stderr, err := runTrain(t, url, append(args, "--steps", "500", "--continue", "first")...); err != nil {
		t.Errorf("train --continue: %s, error %v", stderr, err)
	}
	more := saved[float32](t, filepath.Join(folder, "losses.npy"))
	if len(more) != 500 || !slices.Equal(more[:400], losses) {
		t.Errorf("%d losses of a training that goes on", len(more))
	}
	large := largeInput
	defer func() { largeInput = large }()
	largeInput = 10
	if _, stderr, err := runTrain(t, url, append(args, "--steps", "400")...); err != nil {
		t.Errorf("train --program with objects: %s, error %v", stderr, err)
	}
	if again := saved[float32](t, filepath.Join(folder, "losses.npy")); !slices.Equal(again, losses) {
		t.Error("the same training has other losses")
	}
}

// TestTrainProgramChecksFirst: mistakes of files and flags are found without a server.
func TestTrainProgramChecksFirst(t *testing.T) {
	x := save(t, "x.npy", []float32{1})
	for want, args := range map[string][]string{
		"--out is missing":                   {"--param", "w=1x1"},
		"leave out -f and --input":           {"-f", "swarm.yaml", "--out", "m"},
		"none.npy":                           {"--in", "x=none.npy", "--out", "m"},
		"--in " + x + ": use NAME=FILE":      {"--in", x, "--out", "m"},
		"--param w=2x2: use NAME=FILE, each": {"--param", "w=1x1", "--param", "w=2x2", "--out", "m"},
		"use 1 to 67108864 elements":         {"--param", "w=99999x99999", "--out", "m"},
		"--set a=b: use a number":            {"--param", "w=1x1", "--set", "a=b", "--out", "m"},
		"spec.weights: 0 weights":            {"--in", "x=" + x, "--out", "m"},
		"spec.steps 0":                       {"--param", "w=1x1", "--steps", "0", "--out", "m"},
		"use another name":                   {"--param", "losses=1x1", "--out", "m"},
	} {
		_, _, err := runTrain(t, "nats://127.0.0.1:1", append([]string{"--program", "sum(w)"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("train --program %q without a server: %v, want %s", args, err, want)
		}
	}
}
