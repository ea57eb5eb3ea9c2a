package gpujobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// trainer is a rig with a place of models.
type trainer struct {
	rig
	models *bucket.Folder
}

// startTraining returns handlers that store a checkpoint after each step.
func startTraining(t testing.TB) trainer {
	t.Helper()
	b := models(t)
	return trainer{start(t, gpujobs.Options{Models: b, TrainCheckpoint: 1}), b}
}

// models returns an empty place of models.
func models(t testing.TB) *bucket.Folder {
	t.Helper()
	b, err := bucket.OpenFolder(t.TempDir())
	testkit.NoError(t, "bucket.OpenFolder", err)
	testkit.Close(t, b)
	return b
}

// sequences returns a specification of a training on random sequences: the target of a moment is
// the input of the moment before.
func sequences(seed uint64) *gpujob.TrainSpec {
	r := rand.New(rand.NewPCG(seed, 1))
	var lengths []uint32
	var inputs []float32
	var targets []int32
	for range 40 {
		n := 3 + r.IntN(9)
		lengths = append(lengths, uint32(n))
		before := int32(-1)
		for range n {
			v := int32(r.IntN(2))
			inputs, targets = append(inputs, float32(v), r.Float32()), append(targets, before)
			before = v
		}
	}
	return &gpujob.TrainSpec{
		Model: "m", Hidden: 8, Width: 2, Candidates: 2, Window: 5, Batch: 8, Epochs: 6, Patience: 3, Rate: 0.02,
		Clip: 1, Dropout: 0.1, Validate: 0.2, Seed: 3, Lengths: gpujob.From(lengths), HeldOut: 5,
		Inputs: gpujob.From(inputs, int64(len(inputs)/2), 2), Targets: gpujob.From(targets),
	}
}

// attempt executes one attempt of a job, which ends with a cause after some reports of progress; 0:
// it goes on to its end. lines get the log.
func (r trainer) attempt(t testing.TB, id string, s *gpujob.TrainSpec, reports int, cause error, lines *bytes.Buffer) (
	out *gpujob.TrainOutput, err error,
) {
	t.Helper()
	j, err := gpujob.NewJob(id, s)
	testkit.NoError(t, "NewJob", err)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	log := slog.New(slog.NewTextHandler(lines, nil))
	ctx = jobs.WithLoggers(ctx, func(int) *slog.Logger { return log })
	got, err := r.Jobs()[gpujob.KindTrain](ctx, j, func(v any) {
		if p, is := v.(gpujob.TrainProgress); is && p.Stage == "computing" {
			if reports--; reports == 0 {
				cancel(cause)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return got.(*gpujob.TrainOutput), nil
}

// weights returns the SHA-256 of the file of a model.
func (r trainer) weights(t testing.TB, name string) string {
	t.Helper()
	m, _, err := model.ReadManifest(t.Context(), r.models, name)
	testkit.NoError(t, "model.ReadManifest", err)
	return m.Files[0].SHA256
}

// TestTrain: a training learns, stores its model and predicts what is held out. One that is cut off
// again and again has the same model and predictions.
func TestTrain(t *testing.T) {
	r := startTraining(t)
	var lines bytes.Buffer
	want, err := r.attempt(t, "whole", sequences(1), 0, nil, &lines)
	testkit.NoError(t, "train", err)
	first, best := want.Epochs[0], want.Epochs[want.Best-1]
	// The mean loss of all epochs together would be above 0.45.
	if first.Loss < 0.6 || best.Epoch != 6 || best.Loss > 0.35 || best.Validation > 0.25 ||
		want.Weights != r.weights(t, "m") {
		t.Errorf("epochs %+v, best %d; want a loss that falls to half, and the SHA-256 of the model", want.Epochs,
			want.Best)
	}
	predictions := gpujob.Decode[float32](want.Predictions.Data)
	odd := func(v float32) bool { return !(v >= 0 && v <= 1) }
	if rows := want.Predictions.Shape; rows[1] != 2 || int(rows[0])*2 != len(predictions) ||
		slices.ContainsFunc(predictions, odd) {
		t.Errorf("predictions of shape %v: %v; want two probabilities a moment", rows, predictions)
	}
	testkit.NoError(t, "remove the model", r.models.Remove(t.Context(), model.Folder("m")))
	got, cut := r.cut(t, sequences(1), &lines)
	sameOutput(t, got, want)
	if cut < 3 || !strings.Contains(lines.String(), "training goes on from a checkpoint") {
		t.Errorf("%d attempts were cut off; the log is %s", cut, lines.String())
	}
}

// cut executes attempts of a job, which are cut off, until one comes to its end.
func (r trainer) cut(t *testing.T, s *gpujob.TrainSpec, lines *bytes.Buffer) (out *gpujob.TrainOutput, cut int) {
	t.Helper()
	for ; cut < 1000; cut++ {
		out, err := r.attempt(t, "cut", s, 1+cut%3, jobs.ErrDrain, lines)
		if err == nil {
			return out, cut
		}
		if !errors.Is(err, jobs.ErrDrain) {
			t.Fatalf("an attempt: %v, want the end that it was given", err)
		}
	}
	t.Fatal("no attempt comes to its end")
	return nil, 0
}

// sameOutput compares outputs, but for where they were computed.
func sameOutput(t *testing.T, got, want *gpujob.TrainOutput) {
	t.Helper()
	own := *got
	own.Ran, own.Devices, own.Route = want.Ran, want.Devices, want.Route
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(own)
	if !bytes.Equal(a, b) {
		t.Errorf("the output is %s, want %s", b, a)
	}
}

// TestTrainContinues: another job goes on from the checkpoint of a job that was cancelled, also
// with more epochs; and one that is asked to finish has a model.
func TestTrainContinues(t *testing.T) {
	r := startTraining(t)
	var lines bytes.Buffer
	whole, err := r.attempt(t, "whole", sequences(1), 0, nil, &lines)
	testkit.NoError(t, "train", err)
	if _, err := r.attempt(t, "first", named(sequences(1), "a"), 2, jobs.ErrCancelled, &lines); !errors.Is(err,
		jobs.ErrCancelled) {
		t.Fatalf("a cancelled training: %v", err)
	}
	second := named(sequences(1), "b")
	second.Continue = "first"
	got, err := r.attempt(t, "second", second, 0, nil, &lines)
	testkit.NoError(t, "continue", err)
	if got.Weights != whole.Weights || got.Steps != whole.Steps {
		t.Errorf("the continued training has %s after %d steps, want %s after %d", got.Weights, got.Steps,
			whole.Weights, whole.Steps)
	}
	more := named(sequences(1), "c")
	more.Continue, more.Epochs, more.Patience = "second", 9, 9
	if got, err = r.attempt(t, "third", more, 0, nil, &lines); err != nil || len(got.Epochs) != 9 {
		t.Errorf("a training with more epochs: %+v, %v; want 9", got, err)
	}
	early, err := r.attempt(t, "early", named(sequences(2), "d"), 1, jobs.ErrFinish, &lines)
	if err != nil || early.Best < 1 || early.Weights != r.weights(t, "d") || early.Steps >= whole.Steps {
		t.Errorf("a training that is asked to finish: %+v, %v; want a model", early, err)
	}
}

func named(s *gpujob.TrainSpec, model string) *gpujob.TrainSpec {
	s.Model = model
	return s
}

// TestTrainOther: a checkpoint of another specification or of other data is not used.
func TestTrainOther(t *testing.T) {
	r := startTraining(t)
	var lines bytes.Buffer
	whole, err := r.attempt(t, "whole", sequences(1), 0, nil, &lines)
	testkit.NoError(t, "train", err)
	if _, err := r.attempt(t, "j", named(sequences(2), "a"), 2, jobs.ErrDrain, &lines); !errors.Is(err, jobs.ErrDrain) {
		t.Fatalf("an attempt: %v", err)
	}
	got, err := r.attempt(t, "j", named(sequences(1), "a"), 0, nil, &lines)
	if err != nil || got.Weights != whole.Weights {
		t.Errorf("with the checkpoint of other data: %+v, %v; want the weights %s", got, err, whole.Weights)
	}
	if !strings.Contains(lines.String(), "it is of another specification or of other data") {
		t.Errorf("the log does not say that the checkpoint is not used: %s", lines.String())
	}
	for want, change := range map[string]func(s *gpujob.TrainSpec){
		"that job has no checkpoint":                 func(s *gpujob.TrainSpec) { s.Continue = "nobody" },
		"it is of another specification or of other": func(s *gpujob.TrainSpec) { s.Continue, s.Rate = "whole", 0.1 },
		"there is a model of that name":              func(s *gpujob.TrainSpec) { s.Model = "m" },
		"spec.lengths[39]":                           func(s *gpujob.TrainSpec) { s.Lengths.Data[39*4+3] = 128 },
		"use as many moments together":               func(s *gpujob.TrainSpec) { s.Lengths.Data[39*4]-- },
		"the target of moment 0 of sequence":         func(s *gpujob.TrainSpec) { fill(s.Targets.Data, 2, 0, 0, 0) },
		"no target of the ":                          func(s *gpujob.TrainSpec) { fill(s.Targets.Data, 255) },
		"feature 0 of moment 0 of sequence":          func(s *gpujob.TrainSpec) { fill(s.Inputs.Data, 0, 0, 192, 127) },
	} {
		s := named(sequences(1), "x")
		change(s)
		if _, err := r.attempt(t, "bad", s, 0, nil, &lines); err == nil || !strings.Contains(err.Error(), want) ||
			jobs.Retryable(err) {
			t.Errorf("%v; want %q, and no other attempt", err, want)
		}
	}
}

// fill repeats bytes.
func fill(data []byte, with ...byte) {
	for i := range data {
		data[i] = with[i%len(with)]
	}
}

// TestTrainTenant: the models of a tenant begin with its name.
func TestTrainTenant(t *testing.T) {
	r := startTraining(t)
	j, err := gpujob.NewJob("acme--j", sequences(1))
	testkit.NoError(t, "NewJob", err)
	j.Tenant = "acme"
	out, err := r.Jobs()[gpujob.KindTrain](t.Context(), j, func(any) {})
	testkit.NoError(t, "train", err)
	if got := out.(*gpujob.TrainOutput); got.Name != "acme--m" || got.Weights != r.weights(t, "acme--m") {
		t.Errorf("the model of a tenant is %s with %s, want acme--m", got.Name, got.Weights)
	}
}

// TestTrainRoom: a training that its device has no room for is refused with the bytes, and is not
// tried again.
func TestTrainRoom(t *testing.T) {
	dev, err := cuda.Open(t.Context(), *deviceName, cuda.Options{MemoryLimit: 4 << 20, HostMemoryLimit: 4 << 20})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, dev)
	var open sync.WaitGroup
	h, err := gpujobs.New(gpujobs.Options{
		Slot: func(context.Context, int64) (gpujobs.Slot, error) {
			open.Add(1)
			return slot{dev, &open}, nil
		},
		Objects: &store{all: map[string][]byte{}}, Models: models(t),
	})
	testkit.NoError(t, "New", err)
	defer h.Close()
	s := sequences(1)
	s.Rows = 1 << 20
	s.Inputs = gpujob.From(make([]uint32, s.Targets.Shape[0]))
	var lines bytes.Buffer
	_, err = trainer{rig: rig{Handlers: h}}.attempt(t, "large", s, 0, nil, &lines)
	if err == nil || jobs.Retryable(err) || jobs.AsError(err).Code != jobs.CodeInvalid ||
		!strings.Contains(err.Error(), "a training takes 20") ||
		!strings.Contains(err.Error(), "use a smaller window") {
		t.Errorf("a training without room: %v, want the bytes and the cure", err)
	}
	open.Wait()
}
