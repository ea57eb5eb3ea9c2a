package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

var trainKills = flag.Int("train.kills", 10, "kill -9 of the GPU agent in TestTrainRecovery")

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
	ended := make(chan struct{})
	var got string
	var out gpujob.TrainOutput
	go func() {
		defer close(ended)
		got, out = train("killed")
	}()
	step := int64(0)
	for kills := 0; kills < *trainKills; kills++ {
		from := step
		testkit.Until(t, "steps behind a checkpoint", func() bool {
			select {
			case <-ended:
				t.Fatalf("the training ended after %d kills, want %d: it is too short", kills, *trainKills)
			default:
			}
			running, err := r.conn.Queue.Running(ctx, jobs.PoolGPU, "killed")
			var p gpujob.TrainProgress
			if err != nil || len(running) == 0 || json.Unmarshal(running[0].Progress, &p) != nil {
				return false
			}
			if kills > 0 && p.Step > 0 && p.Resumed == 0 {
				t.Fatalf("after %d kills an attempt has begun from the start", kills)
			}
			step = p.Step
			return step > from
		})
		gpu.end(t, syscall.SIGKILL)
		gpu.start(t)
	}
	<-ended
	if t.Failed() {
		return
	}
	if got != want || out.Steps != undisturbed.Steps {
		t.Errorf("after %d kills and %d steps the result is\n%.300s\nwant %d steps and\n%.300s", *trainKills, out.Steps,
			got, undisturbed.Steps, want)
	}
	if log := gpu.log.String(); strings.Contains(log, "not used") {
		t.Errorf("a checkpoint was refused:\n%s", log)
	}
}
