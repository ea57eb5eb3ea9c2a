package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

var trainKills = flag.Int("train.kills", 10, "kill -9 of the GPU agent in TestTrainRecovery, and a third as many in "+
	"TestTrainProgramRecovery")

// TestTrainRecovery: a training whose agent is killed again and again has the model, the epochs and
// the predictions of one that nothing disturbs.
func TestTrainRecovery(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	// A killed agent keeps its job for the rest of a lease of 15 s.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(*trainKills)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	gpu := r.gpus[0]
	gpu.command = append(gpu.command, "--snapshots", r.root, "--train-checkpoint", "1ms")
	gpu.start(t)
	// An epoch has four steps: each kill has 600, and the agents get to the end of 400 before it.
	spec := write(t, filepath.Join(t.TempDir(), "swarm.yaml"), fmt.Sprintf(
		"name: tracing\naddressed: agent\nagents: 256\nfeatures: [answer]\n"+
			"cell: {kind: gru, embed: {rows: 20, width: 8}, items: 10}\nvote: {candidates: [weak, strong]}\n"+
			"train: {target: right, sequence: agent, item: skill, ahead: 1, batch: 64, rate: 0.001, dropout: 0.2, "+
			"epochs: %d, patience: 10000, seed: 1}\n", 150*(*trainKills+1)))
	train := func(id string) (result string, out gpujob.TrainOutput) {
		predictions := filepath.Join(t.TempDir(), "p.csv")
		code, stdout, stderr := exec(ctx, t, "train", "-f", spec, "--input",
			filepath.Join("..", "..", "examples", "tracing", "answers.csv"), "--out", id, "--id", id, "--hold-out",
			"part=test", "--predictions", predictions, "--nats", r.url, "--patience", "10m", "-o", "jsonl")
		var all jobs.Result
		if code != 0 || json.Unmarshal([]byte(stdout), &all) != nil || json.Unmarshal(all.Output, &out) != nil {
			t.Errorf("exoswarm train: exit %d, %s%s\n%s", code, stdout, stderr, gpu.log)
			return "", out
		}
		rows, err := os.ReadFile(predictions)
		testkit.NoError(t, "read the predictions", err)
		epochs, err := json.Marshal(out.Epochs)
		testkit.NoError(t, "encode the epochs", err)
		return out.Weights + "\n" + string(epochs) + "\n" + string(rows), out
	}
	want, undisturbed := train("undisturbed")
	var got string
	var out gpujob.TrainOutput
	r.killTraining(ctx, "killed", *trainKills, 400, func() { got, out = train("killed") })
	if t.Failed() {
		return
	}
	if got != want || out.Steps != undisturbed.Steps {
		t.Errorf("after %d kills and %d steps the result is\n%.300s\nwant %d steps and\n%.300s", *trainKills, out.Steps,
			got, undisturbed.Steps, want)
	}
}

// killTraining kills the GPU agent while train runs a job, a number of steps behind the kill before
// and behind a checkpoint of the attempt that runs, and waits for the end of train.
func (r *recovery) killTraining(ctx context.Context, job string, kills int, steps int64, train func()) {
	t, gpu := r.t, r.gpus[0]
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		train()
	}()
	used := func() {
		if log := gpu.log.String(); strings.Contains(log, "not used") {
			t.Errorf("a checkpoint was refused:\n%s", log)
		}
	}
	step := int64(0)
	for killed := range kills {
		from := step
		testkit.Until(t, "steps behind a checkpoint", func() bool {
			select {
			case <-ended:
				t.Fatalf("the training ended after %d kills, want %d: it is too short", killed, kills)
			default:
			}
			running, err := r.conn.Queue.Running(ctx, jobs.PoolGPU, job)
			var p gpujob.TrainProgress // step and resumed are in the progress of both kinds
			if err != nil || len(running) == 0 || json.Unmarshal(running[0].Progress, &p) != nil {
				return false
			}
			if killed > 0 && p.Step > 0 && p.Resumed == 0 {
				t.Fatalf("after %d kills an attempt has begun from the start", killed)
			}
			step = p.Step
			return step > from && step >= steps*int64(killed+1)
		})
		gpu.end(t, syscall.SIGKILL)
		used()
		gpu.start(t)
	}
	<-ended
	used()
}

// TestTrainProgramRecovery: the weights and the losses of a program have the same bits if its agent
// is killed again and again.
func TestTrainProgramRecovery(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	kills := max(1, *trainKills/3)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(kills)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	gpu := r.gpus[0]
	gpu.command = append(gpu.command, "--train-checkpoint", "1ms")
	gpu.start(t)
	folder := t.TempDir()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "programs", "autoencoder.txt"))
	testkit.NoError(t, "read the program", err)
	x := write(t, filepath.Join(folder, "x.npy"), string(randomArray(500, 32)))
	train := func(id string) map[string]string {
		out := filepath.Join(folder, id)
		code, stdout, stderr := exec(ctx, t, "train", "--program", string(text), "--in", "x="+x, "--param", "w1=32x8",
			"--param", "b1=1x8", "--param", "w2=8x32", "--param", "b2=1x32", "--steps", fmt.Sprint(600*(kills+1)),
			"--out", out, "--id", id, "--nats", r.url, "--patience", "10m")
		if code != 0 {
			t.Errorf("exoswarm train --program: exit %d, %s%s\n%s", code, stdout, stderr, gpu.log)
			return nil
		}
		files := map[string]string{}
		for _, name := range []string{"losses", "w1", "b1", "w2", "b2"} {
			data, err := os.ReadFile(filepath.Join(out, name+".npy"))
			testkit.NoError(t, "read a weight", err)
			files[name] = string(data)
		}
		return files
	}
	want := train("undisturbed")
	var got map[string]string
	r.killTraining(ctx, "killed", kills, 300, func() { got = train("killed") })
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("after %d kills %s has %d bytes that differ from the %d of an undisturbed training", kills, name,
				len(got[name]), len(want[name]))
		}
	}
}

// randomArray returns random numbers as a .npy file.
func randomArray(rows, columns int64) []byte {
	random := rand.New(rand.NewPCG(uint64(rows), uint64(columns)))
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	a := gpujob.From(values, rows, columns)
	var b bytes.Buffer
	if err := numpy.Write(&b, &numpy.Array{Type: "<f4", Shape: a.Shape, Data: a.Data}); err != nil {
		panic(err) // a buffer takes all
	}
	return b.Bytes()
}
