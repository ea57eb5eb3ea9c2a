package gpujobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/training"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

const (
	// trainBatchBytes bounds the memory of the moments of a batch on the device, beside the memory of
	// shards.
	trainBatchBytes = 256 << 20
	// maxTrainData bounds the arrays of a job of kind train, in bytes, unless Options.Memory is more.
	maxTrainData = 4 << 30
	// progressPause is between two reports inside an epoch.
	progressPause = 500 * time.Millisecond
	// lastWait bounds the storing of a checkpoint when a job ends early.
	lastWait = 10 * time.Second
	// trainShare and trainHostShare are the fewest sequences of a batch that each multiprocessor of a
	// GPU, and each core, has if several devices train. For fewer a device takes as long: a GPU steps 16
	// agents in each of 8 warps of a multiprocessor at a time, and a core of the host two.
	trainShare, trainHostShare = 128, 2
	// shownEpochs is how many epochs the progress of a job has.
	shownEpochs = 20
)

// train returns the work of a job of kind train. The agent stores the model before the result: the
// submitter may be gone by then, and objects of the job live as long as its result alone.
func (t *task) train(s *gpujob.TrainSpec) func() (any, error) {
	r := &trainRun{
		task: t, spec: s, lengths: t.in("lengths", &s.Lengths), inputs: t.in("inputs", &s.Inputs),
		targets: t.in("targets", &s.Targets),
	}
	if s.Asked != nil {
		r.asked = t.in("asked", s.Asked)
	}
	t.limit = max(t.h.o.Memory, maxTrainData)
	t.room = trainBytes(s)
	t.spread = func(p device.Properties) int {
		share := trainShare
		if p.ComputeMajor == 0 {
			share = trainHostShare
		}
		return s.Batch / (share * p.Multiprocessors)
	}
	return func() (_ any, err error) {
		defer func() {
			if r.collective != nil { // its work uses the memory and the streams of the trainers
				t.left = append(t.left, r.collective)
			}
		}()
		// A step ends before the training looks whether the job has ended, so the trainer is never
		// between two states. The watchdog of the device bounds a step.
		ctx := context.WithoutCancel(t.ctx)
		if err := r.begin(ctx); err != nil {
			return nil, err
		}
		t.left = append(t.left, r.trainer)
		err = r.epochs(ctx)
		if errors.Is(err, jobs.ErrFinish) {
			err = r.early(ctx)
		}
		if err != nil {
			return nil, r.ended(ctx, err)
		}
		return r.finish(ctx)
	}
}

// trainRun is one attempt at a training. One goroutine uses it.
type trainRun struct {
	*task
	spec                            *gpujob.TrainSpec
	lengths, inputs, targets, asked *input // asked is nil without items

	data       *trainData
	collective device.Collective // nil: the job has one device
	trainer    *training.Trainer
	state      trainState
	resumed    int64     // steps of the checkpoint that this attempt has begun with
	stored     time.Time // the last checkpoint
	reported   time.Time // the last progress
}

func (r *trainRun) options() training.Options {
	s := r.spec
	return training.Options{
		Shape: training.Shape{
			Hidden: s.Hidden, Inputs: s.Width, Rows: s.Rows, Items: s.Items, Candidates: s.Candidates,
		},
		Adam: training.Adam{Rate: s.Rate, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Decay: s.Decay},
		Clip: s.Clip, Dropout: s.Dropout, Window: s.Window, Seed: s.Seed, BatchBytes: trainBatchBytes,
		Collective: r.collective,
	}
}

// model returns the name of the model. Models of a tenant begin with its name, as its jobs do: the
// place of models is the same for all tenants.
func (r *trainRun) model() string {
	if of := jobs.OwnerOf(r.job); !of.Shared() {
		return of.Tenant + "--" + r.spec.Model
	}
	return r.spec.Model
}

// begin reads the arrays, and makes the trainer from a checkpoint or from the start.
func (r *trainRun) begin(ctx context.Context) (err error) {
	if r.data, err = r.readData(); err != nil {
		return err
	}
	c, err := r.lastCheckpoint(ctx)
	if err != nil {
		return err
	}
	if len(r.slots) > 1 {
		if r.collective, err = r.h.o.Collective(r.ctx, r.devices()); err != nil {
			return err
		}
	}
	dev := r.slot.Device()
	if c != nil {
		r.state, r.resumed = c.state, c.state.Steps
		if r.trainer, err = training.Restore(ctx, dev, r.options(), c.trainer); err != nil {
			return fmt.Errorf("checkpoint of step %d: %w", c.state.Steps, err)
		}
		jobs.Logger(r.ctx).Info("training goes on from a checkpoint", "step", c.state.Steps, "epoch",
			len(c.state.Epochs)+1)
	} else {
		r.state = trainState{Digest: r.data.digest}
		if err := r.nameIsFree(ctx); err != nil {
			return err
		}
		if r.trainer, err = training.New(ctx, dev, r.options(), nil); err != nil {
			return r.classed(err)
		}
	}
	r.stored = time.Now()
	return nil
}

// nameIsFree returns an error if there is a model of the name. It is not of an earlier attempt,
// whose checkpoint would be there, so it would be in the way in the end.
func (r *trainRun) nameIsFree(ctx context.Context) error {
	if err := jobs.CheckID("spec.model", r.model()); err != nil {
		return err
	}
	_, _, err := model.ReadManifest(ctx, r.h.o.Models, r.model())
	switch {
	case errors.Is(err, model.ErrNotFound):
		return nil
	case err == nil, errors.Is(err, model.ErrCorrupt), errors.Is(err, model.ErrMismatch):
		return jobs.Errorf(jobs.CodeInvalid, "spec.model %s: there is a model of that name: choose another name, or "+
			"delete it first (exoswarm model delete)", r.model())
	}
	return jobs.Retry(err)
}

// classed gives an error of the trainer its class. A batch is cut into parts that fit, so a device
// without room at the beginning has none for the weights, or is full.
func (r *trainRun) classed(err error) error {
	switch {
	case errors.Is(err, training.ErrInvalid):
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	case errors.Is(err, device.ErrOutOfMemory) && r.state.Steps == r.resumed:
		return jobs.Errorf(jobs.CodeInvalid, "%v, and a training takes %d bytes of the device: use a smaller window, "+
			"batch or embedding, or an agent with more memory", err, trainBytes(r.spec))
	}
	return err
}

// trainBytes returns about how many bytes of a device a training takes: the vectors of weights,
// their sums, and the moments of a batch.
func trainBytes(s *gpujob.TrainSpec) int64 {
	units := int64(kernels.AgentHidden(max(s.Hidden, s.Width)))
	weights := 6*units*units + 6*units + int64(max(s.Items, s.Candidates))*(units+4) + int64(s.Rows)*units
	sums := 8 * (6*units*units + 6*units) * int64(s.Window/8+1)
	moment := 16*units + 4*int64(s.Predictions()) + 32
	return 24*weights + sums + min(moment*int64(s.Window)*int64(s.Batch), trainBatchBytes)
}

// over reports whether no epoch is left.
func (r *trainRun) over() bool {
	done := len(r.state.Epochs)
	return done >= r.spec.Epochs || done > 0 && done-r.state.Best >= r.spec.Patience
}

// epochs trains until no epoch is left, or until the job ends.
func (r *trainRun) epochs(ctx context.Context) error {
	for !r.over() {
		batches := training.Shuffle(r.data.all.Windows(r.data.train, r.spec.Window), r.spec.Batch, r.spec.Seed,
			len(r.state.Epochs))
		for r.state.Done < len(batches) {
			if cause := context.Cause(r.ctx); cause != nil {
				return cause
			}
			loss, err := r.trainer.TrainStep(ctx, r.data.batcher.Batch(batches[r.state.Done]))
			if err != nil {
				return err
			}
			r.state.add(loss, r.trainer.Steps())
			r.report(len(batches))
			if time.Since(r.stored) >= r.h.o.TrainCheckpoint {
				if err := r.checkpoint(ctx); err != nil {
					return err
				}
			}
		}
		if err := r.validate(ctx); err != nil {
			return err
		}
	}
	return r.checkpoint(ctx)
}

// validate ends an epoch: it measures the weights on the sequences of validation, and keeps them if
// they are the best so far.
func (r *trainRun) validate(ctx context.Context) error {
	loss, err := r.evaluate(ctx, r.trainer, r.data.validation, nil)
	if err != nil {
		return err
	}
	e := gpujob.TrainEpoch{
		Epoch: len(r.state.Epochs) + 1, Loss: mean(r.state.Sum, r.state.Count), Validation: mean(loss.Sum, loss.Count),
		Saturated: r.state.Saturated,
	}
	s := &r.state
	if s.Best == 0 || e.Validation < s.Epochs[s.Best-1].Validation {
		s.Best = e.Epoch
		if s.best, err = r.trainer.Checkpoint(ctx); err != nil {
			return err
		}
	}
	s.Epochs = append(s.Epochs, e)
	s.Done, s.Sum, s.Count, s.Saturated = 0, 0, 0, 0
	jobs.Logger(r.ctx).Info("epoch", "epoch", e.Epoch, "loss", e.Loss, "validation", e.Validation)
	r.reported = time.Time{}
	r.report(0)
	return nil
}

func mean(sum float64, n int64) float64 { return sum / float64(max(n, 1)) }

// report tells how far the training is, not more often than progressPause.
func (r *trainRun) report(batches int) {
	if time.Since(r.reported) < progressPause {
		return
	}
	r.reported = time.Now()
	all := r.state.Epochs
	r.progress(gpujob.TrainProgress{
		Stage: "computing", Step: r.state.Steps, Resumed: r.resumed, Devices: len(r.slots), Epoch: len(all) + 1,
		Done: r.state.Done, Batches: batches,
		Epochs: append([]gpujob.TrainEpoch(nil), all[max(0, len(all)-shownEpochs):]...),
	})
}

// ended ends an attempt that has an error, and returns the error for the queue. A job that was
// cancelled, or goes to another agent, keeps a checkpoint of this moment.
func (r *trainRun) ended(ctx context.Context, err error) error {
	if errors.Is(err, training.ErrNotFinite) {
		return jobs.Errorf(jobs.CodeInput, "step %d: %v: use a lower train.rate or train.clip, and see that features "+
			"are of size 1; the checkpoint before is kept", r.state.Steps+1, err)
	}
	if r.ctx.Err() == nil {
		return r.classed(err)
	}
	r.keepLast(ctx, r.checkpoint)
	return err
}

// early ends a training that its user has asked to finish: the best weights so far are the model.
func (r *trainRun) early(ctx context.Context) error {
	r.ctx = ctx // the context of the job has ended
	if len(r.state.Epochs) == 0 {
		if err := r.validate(ctx); err != nil {
			return err
		}
	}
	return r.checkpoint(ctx)
}

// finish stores the model with the best weights, and predicts what is held out. Another attempt
// does the same from the last checkpoint, with the same bytes.
func (r *trainRun) finish(ctx context.Context) (_ any, err error) {
	if err := r.trainer.Close(); err != nil {
		return nil, err
	}
	best, err := training.Restore(ctx, r.slot.Device(), r.options(), r.state.best)
	if err != nil {
		return nil, fmt.Errorf("best weights: %w", err)
	}
	r.left = append(r.left, best)
	out := &gpujob.TrainOutput{
		Name: r.model(), Best: r.state.Best, Epochs: r.state.Epochs, Steps: r.state.Steps, Devices: len(r.slots),
	}
	if r.collective != nil {
		out.Route = r.collective.Route().Name
	}
	if r.spec.HeldOut > 0 {
		width := r.spec.Predictions()
		moments := 0
		for _, i := range r.data.heldOut {
			moments += int(r.data.all.Lengths[i])
		}
		predictions := make([]float32, moments*width)
		loss, err := r.evaluate(ctx, best, r.data.heldOut, predictions)
		if err != nil {
			return nil, err
		}
		out.HeldOutLoss = mean(loss.Sum, loss.Count)
		a := gpujob.From(predictions, int64(len(predictions)/width), int64(width))
		out.Predictions = &a
	}
	out.Ran = r.computed()
	r.progress(gpujob.TrainProgress{Stage: "storing", Step: r.state.Steps})
	w, err := best.Weights(ctx)
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, r.tensors(w)); err != nil {
		return nil, err
	}
	m, digest, err := model.Save(ctx, r.h.o.Models, r.model(), file.Bytes())
	if errors.Is(err, model.ErrExists) {
		return nil, jobs.Errorf(jobs.CodeInput, "spec.model: %v; the checkpoint is kept: exoswarm train --continue %s "+
			"--out NAME stores it under another name", err, r.job.ID)
	}
	if err != nil {
		return nil, jobs.Retry(err)
	}
	out.SHA256, out.Weights = digest, m.Files[0].SHA256
	if out.Predictions == nil {
		return out, nil
	}
	return out, r.store([]string{"predictions"}, []*gpujob.Array{out.Predictions})
}
