package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

var (
	besideHidden = flag.Int("beside.hidden", 32, "units of the training of TestTrainBeside")
	besideBatch  = flag.Int("beside.batch", 64, "windows of a batch of the training of TestTrainBeside")
	besideDevice = flag.String("beside.device", "host", "device of the agent of TestTrainBeside")
	besideAsks   = flag.Int("beside.asks", 2500, "observations of TestTrainBeside with the training and without")
)

// TestTrainBeside logs how long the observations of a swarm take alone, and beside a training of
// the same agent.
func TestTrainBeside(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	gpu := r.gpus[0]
	gpu.command = append(gpu.command, "--snapshots", r.root, "--log-level", "info", "--device", *besideDevice)
	gpu.start(t)
	dir := t.TempDir()
	swarm := write(t, filepath.Join(dir, "swarm.yaml"), "name: beside\naddressed: agent\nagents: 10240\n"+
		"features: [value]\ncell: {kind: gru}\nvote: {candidates: [low, high]}\n")
	expect(t, 0, "swarm", "create", "-f", swarm, "--nats", r.url)
	client, err := swarmclient.New(swarmclient.Options{Swarms: r.conn.Swarms})
	testkit.NoError(t, "swarmclient.New", err)
	s, err := client.Open(ctx, "beside")
	testkit.NoError(t, "Open", err)
	random := rand.New(rand.NewPCG(1, 1))
	measure := func(n int) []time.Duration {
		var took []time.Duration
		for range n {
			o := &batch.AgentObservations{Width: 1}
			for range 64 {
				o.Agent, o.Features = append(o.Agent, random.Uint32N(10240)), append(o.Features, random.Float32())
			}
			began := time.Now()
			_, err := s.Observe(ctx, o, func(*batch.AgentDecisions) error { return nil })
			testkit.NoError(t, "Observe", err)
			took = append(took, time.Since(began))
		}
		return took
	}
	training := besideTraining()
	measure(50)
	var alone, beside []time.Duration
	steps, trained := int64(0), time.Duration(0)
	for round := range besideRounds { // in turns, because machines are not as busy all the time
		alone = append(alone, measure(*besideAsks/besideRounds)...)
		id := fmt.Sprint("training-", round)
		progress := func() (p gpujob.TrainProgress, running bool) {
			all, err := r.conn.Queue.Running(ctx, jobs.PoolGPU, id)
			if err != nil || len(all) == 0 {
				return p, err != nil
			}
			return p, json.Unmarshal(all[0].Progress, &p) == nil
		}
		j, err := gpujob.NewJob(id, training)
		testkit.NoError(t, "NewJob", err)
		testkit.NoError(t, "Submit", r.conn.Queue.Submit(ctx, j))
		var first gpujob.TrainProgress
		testkit.Until(t, "steps", func() bool { first, _ = progress(); return first.Step > 0 })
		began := time.Now()
		beside = append(beside, measure(*besideAsks/besideRounds)...)
		last, _ := progress()
		steps, trained = steps+last.Step-first.Step, trained+time.Since(began)
		expect(t, 0, "job", "cancel", id, "--nats", r.url)
		testkit.Until(t, "the end of the training", func() bool { _, running := progress(); return !running })
	}
	if steps <= 0 {
		t.Error("the training makes no steps beside observations")
	}
	slices.Sort(alone)
	slices.Sort(beside)
	at := func(of []time.Duration, percent int) time.Duration {
		return of[len(of)*percent/100].Round(time.Microsecond)
	}
	t.Logf("alone: p50 %v, p90 %v, p99 %v", at(alone, 50), at(alone, 90), at(alone, 99))
	t.Logf("beside a training of %.0f steps/s: p50 %v, p90 %v, p99 %v: %.2f times", float64(steps)/trained.Seconds(),
		at(beside, 50), at(beside, 90), at(beside, 99), float64(at(beside, 99))/float64(at(alone, 99)))
}

// besideRounds is how often TestTrainBeside starts a training.
const besideRounds = 5

// besideTraining returns a training on random windows of 200 moments that does not end by itself.
func besideTraining() *gpujob.TrainSpec {
	const sequences, moments = 160, 200
	random := rand.New(rand.NewPCG(3, 3))
	lengths, inputs := make([]uint32, sequences), make([]float32, sequences*moments)
	targets := make([]int32, sequences*moments)
	for i := range lengths {
		lengths[i] = moments
	}
	for i := range inputs {
		inputs[i] = float32(random.NormFloat64())
	}
	for i := range targets {
		targets[i] = random.Int32N(2)
	}
	return &gpujob.TrainSpec{
		Model: "m", Hidden: *besideHidden, Width: 1, Candidates: 2, Window: moments, Batch: *besideBatch,
		Epochs: 10_000, Patience: 10_000, Rate: 0.001, Validate: 0.1, Seed: 1, Lengths: gpujob.From(lengths),
		Inputs: gpujob.From(inputs, sequences*moments, 1), Targets: gpujob.From(targets),
	}
}
