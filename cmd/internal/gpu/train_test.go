package gpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

const events = `name: turns
addressed: agent
agents: 256
features: [value]
vote: {candidates: [left, middle, right]}
train: {target: turn, sequence: of, epochs: 3, batch: 8}
`

// runTrain runs exoswarm train against a server, and returns its outputs.
func runTrain(t *testing.T, url string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := Train()
	var out, problems bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	cmd.SilenceUsage = true
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(append(args, "--nats", url))
	err = cmd.ExecuteContext(ctx)
	return out.String(), problems.String(), err
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	testkit.NoError(t, "write", os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestTrain: a training from a table to a model and predictions by candidate. A name of a
// model is taken once, and a training goes on from the end of another one.
func TestTrain(t *testing.T) {
	url := agent(t, "--snapshots", t.TempDir())
	r := rand.New(rand.NewPCG(1, 2))
	table, held := "of,value,turn,part\n", []string{} // the targets of the sequences that are held out
	for sequence := range 30 {
		part := []string{"fit", "check"}[sequence%5/4]
		for range 6 {
			v := r.IntN(3)
			table += fmt.Sprintf("%d,%d,%d,%s\n", sequence, v, v, part)
			if part == "check" {
				held = append(held, fmt.Sprint(v))
			}
		}
	}
	spec, in, out := file(t, "swarm.yaml", events), file(t, "in.csv", table), filepath.Join(t.TempDir(), "p.csv")
	stdout, stderr, err := runTrain(t, url, "-f", spec, "--input", in, "--out", "m", "--hold-out", "part=check",
		"--predictions", out, "--id", "first")
	if err != nil || !strings.HasPrefix(stdout, "MODEL") || !strings.Contains(stderr, "epoch 3: loss") ||
		!strings.Contains(stderr, "held out: loss ") {
		t.Fatalf("train: %q, %q, error %v", stdout, stderr, err)
	}
	rows, err := os.ReadFile(out)
	if lines := strings.Split(string(rows), "\n"); err != nil ||
		lines[0] != "uid,position,probability.left,probability.middle,probability.right,target" ||
		len(lines) != 2+6*6 || !strings.HasPrefix(lines[1], "4,0,0.") {
		t.Errorf("predictions %s, error %v", rows, err)
	} else {
		for i, line := range lines[1:37] {
			if fields := strings.Split(line, ","); fields[5] != held[i] {
				t.Errorf("prediction %s, want the target %s", line, held[i])
			}
		}
	}
	if _, _, err := runTrain(t, url, "-f", spec, "--input", in, "--out", "m"); err == nil ||
		!strings.Contains(err.Error(), "there is a model of that name") {
		t.Errorf("a name that is taken: %v", err)
	}
	// The same data and specification go on from the end of the first training.
	_, stderr, err = runTrain(t, url, "-f", spec, "--input", in, "--out", "again", "--hold-out", "part=check",
		"--continue", "first")
	if err != nil || !strings.Contains(stderr, "epoch 3: loss") {
		t.Errorf("train --continue: %s, error %v", stderr, err)
	}
	if _, _, err := runTrain(t, url, "-f", spec, "--input", in, "--out", "other", "--continue", "first"); err == nil ||
		!strings.Contains(err.Error(), "it is of another specification or of other data") {
		t.Errorf("train --continue with other data: %v", err)
	}
	large := largeInput
	defer func() { largeInput = large }()
	largeInput = 100 // the arrays are objects of the job
	if _, stderr, err := runTrain(t, url, "-f", spec, "--input", in, "--out", "large"); err != nil {
		t.Errorf("train with objects: %s, error %v", stderr, err)
	}
}

// TestTrainingShown: each epoch and each change of the devices has one line.
func TestTrainingShown(t *testing.T) {
	var out strings.Builder
	epochs := []gpujob.TrainEpoch{{Epoch: 1, Loss: 0.5, Validation: 0.25}, {Epoch: 2, Loss: 0.4, Validation: 0.3}}
	s := trainingShown{devices: 1}
	s.show(&out, 0, nil) // it loads
	s.show(&out, 1, epochs[:1])
	s.show(&out, 3, epochs[:1])
	s.show(&out, 3, epochs)
	s.show(&out, 2, epochs)
	const want = "epoch 1: loss 0.5000, validation 0.2500\ndevices that share each batch: 3\n" +
		"epoch 2: loss 0.4000, validation 0.3000\ndevices that share each batch: 2\n"
	if out.String() != want {
		t.Errorf("shown %q, want %q", out.String(), want)
	}
}

// TestTrainChecksFirst: mistakes of files and flags are found without a server.
func TestTrainChecksFirst(t *testing.T) {
	good := file(t, "swarm.yaml", events)
	plain := file(t, "plain.yaml", "name: x\naddressed: agent\nagents: 256\nvote: {candidates: [a, b]}\n")
	table := file(t, "in.csv", "of,value,turn\na,1,0\nb,1,1\n")
	wrong := file(t, "wrong.csv", "of,value,turn\na,1,0\nb,1,7\n")
	for want, args := range map[string][]string{
		"-f is missing":                       {"--input", table},
		"--input is missing":                  {"-f", good},
		"--out is missing":                    {"-f", good, "--input", table},
		"no such file":                        {"-f", "none.yaml", "--input", table},
		"train is missing":                    {"-f", plain, "--input", table, "--out", "m"},
		"write COLUMN=VALUE":                  {"-f", good, "--input", table, "--out", "m", "--hold-out", "fold"},
		"add --hold-out":                      {"-f", good, "--input", table, "--out", "m", "--predictions", "p.csv"},
		`row 2: column "turn": 7 is not a wh`: {"-f", good, "--input", wrong, "--out", "m"},
		"none.csv":                            {"-f", good, "--input", "none.csv", "--out", "m"},
		"use 1 to 64 letters":                 {"-f", good, "--input", table, "--out", "a/b"},
		"--csv":                               {"-f", good, "--input", table, "--out", "m", "--csv", "delimiter"},
	} {
		if _, _, err := runTrain(t, "nats://127.0.0.1:1", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("train %q without a server: %v, want %s", args, err, want)
		}
	}
}
