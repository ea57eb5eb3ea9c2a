package gpujobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// stepsTime is how long the steps between two waits for the device may take, about: the end of the
// job waits for so long.
const stepsTime = 200 * time.Millisecond

// trainProgram returns the work of a job of kind train_program. All weights stay on the device, in
// two sets of buffers that take turns as input and output of a step.
func (t *task) trainProgram(s *gpujob.TrainProgramSpec) func() (any, error) {
	r := &programRun{task: t, spec: s, inputs: map[string]*input{}}
	all := maps.Clone(s.Weights)
	maps.Copy(all, s.In)
	var sources []expr.Source
	for _, name := range slices.Sorted(maps.Keys(all)) {
		field := "in." + name
		if s.Weights[name] != nil {
			field = "weights." + name
			t.bytes += 5 * all[name].Size() // two moments, and the second set of all three
		}
		r.inputs[name] = t.in(field, all[name])
		sources = append(sources, sourceOf(name, all[name]))
	}
	for name := range s.Numbers {
		sources = append(sources, expr.Source{Name: name, Type: ir.F32, Scalar: true})
	}
	a := expr.DefaultAdam
	a.Rate, a.Decay = s.Rate, s.Decay
	training, err := expr.ParseTraining(s.Expr, s.Names(), a, s.Inexact, sources...)
	if err != nil {
		t.refused = computeError(err)
		return nil
	}
	t.limit = max(t.h.o.Memory, maxTrainData)
	rows := rowsOf(sources)
	t.bytes += expr.Products(training.Program, rows) + 4*int64(s.Steps)
	r.training, r.rows = training, rows
	return r.run
}

// sourceOf describes an array to the parser of expressions.
func sourceOf(name string, a *gpujob.Array) expr.Source {
	s := expr.Source{Name: name, Type: exprTypes[a.Type], Rows: a.Shape[0], Width: 1}
	if len(a.Shape) == 2 {
		s.Width = a.Shape[1]
	}
	return s
}

// programRun is one attempt at a training of a program. One goroutine uses it.
type programRun struct {
	*task
	spec     *gpujob.TrainProgramSpec
	inputs   map[string]*input
	training *expr.Training
	rows     int64

	step   *expr.Compiled
	stream device.Stream
	in     map[string]expr.Memory    // of the next step
	sets   [2]map[string]expr.Memory // weights and moments; sets[0] is the input of the next step
	losses device.Buffer             // by step, on the device
	state  programState
	begun  int       // steps of the checkpoint that this attempt has begun with
	stored time.Time // the last checkpoint
}

// names returns the names of weights and moments, in the order of checkpoints.
func (r *programRun) names() (all []string) {
	for _, name := range r.spec.Names() {
		mean, square := expr.Moments(name)
		all = append(all, name, mean, square)
	}
	return all
}

func (r *programRun) run() (_ any, err error) {
	// Steps end before the training looks whether the job has ended, so that the weights are always
	// those behind a known step.
	ctx := context.WithoutCancel(r.ctx)
	r.state.digest = r.digest()
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	for pause := 1; r.state.step < r.spec.Steps; {
		if cause := context.Cause(r.ctx); cause != nil {
			if errors.Is(cause, jobs.ErrFinish) && r.state.step > 0 {
				break
			}
			r.keepLast(ctx, r.checkpoint)
			return nil, cause
		}
		began, n := time.Now(), min(pause, r.spec.Steps-r.state.step)
		if err := r.steps(ctx, n); err != nil {
			return nil, err
		}
		if took := time.Since(began); took < stepsTime/2 {
			pause *= 2
		} else if took > stepsTime {
			pause = max(1, pause/2)
		}
		r.progress(gpujob.TrainProgramProgress{
			Stage: "computing", Step: r.state.step, Resumed: r.begun, Loss: r.state.losses[r.state.step-1],
		})
		if time.Since(r.stored) >= r.h.o.TrainCheckpoint {
			if err := r.checkpoint(ctx); err != nil {
				return nil, err
			}
		}
	}
	r.ctx = ctx                               // the context of a job that is asked to finish has ended
	if err := r.checkpoint(ctx); err != nil { // for jobs that go on behind this one
		return nil, err
	}
	return r.finish()
}

// begin makes the program and the buffers, with the last checkpoint or the first weights.
func (r *programRun) begin(ctx context.Context) (err error) {
	dev := r.slot.Device()
	r.step, err = expr.Compile(dev, r.training.Program, expr.Options{Rows: max(r.rows, 1)})
	if errors.Is(err, expr.ErrLimit) || errors.Is(err, expr.ErrType) {
		return computeError(err)
	}
	if err != nil {
		return fmt.Errorf("train_program: %w", err)
	}
	if r.stream, err = r.opened(dev.NewBackgroundStream()); err != nil {
		return err
	}
	if r.losses, err = r.alloc(4 * int64(r.spec.Steps)); err != nil {
		return err
	}
	if err := r.lastCheckpoint(ctx); err != nil {
		return err
	}
	r.begun, r.stored = r.state.step, time.Now()
	r.in = map[string]expr.Memory{"": {Rows: r.rows}}
	used, _ := r.training.Program.Inputs()
	for name, in := range r.inputs {
		if r.spec.Weights[name] != nil || !slices.Contains(used, name) {
			continue
		}
		b, err := r.upload(in.data)
		if err != nil {
			return err
		}
		r.in[name] = expr.Memory{Buffer: b, Rows: r.spec.In[name].Shape[0]}
	}
	for name, v := range r.spec.Numbers {
		r.in[name] = expr.Memory{Bits: math.Float32bits(v)}
	}
	r.sets = [2]map[string]expr.Memory{{}, {}}
	for i, name := range r.names() {
		weight := r.inputs[r.spec.Names()[i/3]]
		data := r.state.arrays[name]
		if data == nil { // the first step: moments are 0
			data = make([]byte, len(weight.data))
			if i%3 == 0 {
				data = weight.data
			}
		}
		for k := range r.sets {
			b, err := r.upload(data)
			if err != nil {
				return err
			}
			r.sets[k][name] = expr.Memory{Buffer: b, Rows: weight.of.Shape[0]}
		}
	}
	return nil
}

// steps runs n steps and reads their losses.
func (r *programRun) steps(ctx context.Context, n int) error {
	for i := range n {
		in := maps.Clone(r.in)
		maps.Copy(in, r.sets[0])
		for name, v := range r.training.Step(int64(r.state.step + i + 1)) {
			in[name] = expr.Memory{Bits: math.Float32bits(v)}
		}
		out := maps.Clone(r.sets[1])
		out[r.training.Loss] = expr.Memory{Buffer: r.losses, Off: 4 * int64(r.state.step+i)}
		_, err := r.step.Run(ctx, r.stream, in, out)
		if errors.Is(err, expr.ErrArgs) || errors.Is(err, expr.ErrLimit) {
			return fmt.Errorf("%w: give all arrays as many rows, and weights one row, unless they are second factors "+
				"of matmul", computeError(err))
		}
		if err != nil {
			return err
		}
		r.sets[0], r.sets[1] = r.sets[1], r.sets[0]
	}
	if err := r.stream.Sync(ctx); err != nil {
		return err
	}
	losses := make([]float32, n)
	if err := r.losses.Read(4*int64(r.state.step), device.Bytes(losses)); err != nil {
		return err
	}
	for i, v := range losses {
		if v-v != 0 {
			return jobs.Errorf(jobs.CodeInput, "step %d: the loss is %v: use a lower rate, and see that the "+
				"arrays are of size 1; the checkpoint before is kept", r.state.step+i+1, v)
		}
	}
	r.state.losses = append(r.state.losses, losses...)
	r.state.step += n
	return nil
}

// finish reads the weights and stores them.
func (r *programRun) finish() (any, error) {
	out := &gpujob.TrainProgramOutput{
		Weights: map[string]gpujob.Array{}, Losses: gpujob.From(r.state.losses),
		Loss: r.state.losses[len(r.state.losses)-1],
	}
	names, arrays := []string{"losses"}, []*gpujob.Array{&out.Losses}
	for _, name := range r.spec.Names() {
		of := r.spec.Weights[name]
		a := gpujob.Array{Type: gpujob.F32, Shape: of.Shape, Data: make([]byte, of.Size())}
		if err := r.sets[0][name].Buffer.Read(0, a.Data); err != nil {
			return nil, fmt.Errorf("train_program: weight %s: %w", name, err)
		}
		names, arrays = append(names, "weight-"+name), append(arrays, &a)
	}
	out.Ran = r.computed()
	if err := r.store(names, arrays); err != nil {
		return nil, err
	}
	for i, name := range r.spec.Names() {
		out.Weights[name] = *arrays[i+1]
	}
	return out, nil
}
