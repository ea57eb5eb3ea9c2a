package training

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// Pipeline are the three parts of a training: batches become inputs, a model makes a loss and its
// gradient of them, and an optimizer steps the weights.
type Pipeline struct {
	FeatureExtractor *FeatureExtractor
	Model            *Model
	Optimizer        *Optimizer

	host  device.HostBuffer // control and totals
	steps uint64            // that are done
	err   error             // that has ended the training
}

// Trainer is a Pipeline on a device that it was opened on. It is used by one goroutine at a time.
// The caller closes it before the device.
type Trainer struct {
	Pipeline
	o Options
}

// New opens a trainer. initial are the weights to begin with, which are not kept; nil: random ones
// of the seed.
func New(ctx context.Context, dev device.Device, o Options, initial *Weights) (*Trainer, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	if initial == nil {
		drawn := o.draw(o.Seed)
		initial = &drawn
	}
	v, err := o.vector(initial)
	if err != nil {
		return nil, err
	}
	exponents := make([]int32, (o.Window+trainset.Run-1)/trainset.Run)
	for i := range exponents {
		exponents[i] = trainset.FirstExponent
	}
	zeros := make([]float32, len(v))
	return open(ctx, dev, o, &state{weights: v, mean: zeros, square: zeros, exponents: exponents})
}

// state is what a trainer knows.
type state struct {
	steps                 uint64
	weights, mean, square []float32
	exponents             []int32
}

func open(ctx context.Context, dev device.Device, o Options, s *state) (_ *Trainer, err error) {
	m, err := openMemory(dev, &o)
	if err != nil {
		return nil, err
	}
	t := &Trainer{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	t.FeatureExtractor, t.Model, t.steps = newFeatureExtractor(m, &o), newModel(m, &o), s.steps
	if t.Optimizer, err = newOptimizer(m, &o, t.Model.keep); err != nil {
		return nil, err
	}
	if t.host, err = dev.AllocHost(4*trainset.ControlWords+8*trainset.Totals, purpose); err != nil {
		return nil, fmt.Errorf("host memory of a training: %w", err)
	}
	if err := t.Optimizer.set(s.weights, s.mean, s.square, s.exponents); err != nil {
		return nil, err
	}
	return t, t.sync(ctx)
}

// Close releases the memory on the device. A second call does nothing.
func (t *Trainer) Close() error {
	err := t.Model.close()
	if t.host != nil {
		err = errors.Join(err, t.host.Close())
	}
	return err
}

// Steps is the number of steps that are done.
func (p *Pipeline) Steps() uint64 { return p.steps }

// sync waits for the stream. An error ends the training, because the state of the device is
// unknown.
func (p *Pipeline) sync(ctx context.Context) error {
	if err := p.Model.stream.Sync(ctx); err != nil {
		return p.fail(fmt.Errorf("step %d of a training: %w", p.steps+1, err))
	}
	return nil
}

func (p *Pipeline) fail(err error) error {
	p.err = err
	return err
}

// TrainStep makes a step with the gradient of the mean loss of a batch. A batch without targets
// makes no step. After an error other than ErrInvalid the trainer is of no more use. Cancelling ctx
// is such an error.
func (p *Pipeline) TrainStep(ctx context.Context, b Batch) (Loss, error) {
	if p.err != nil {
		return Loss{}, p.err
	}
	f, m := p.FeatureExtractor, p.Model
	targets, err := m.check(&b, f.window)
	if err != nil || targets == 0 {
		return Loss{}, err
	}
	if err := p.queue(ctx, &b, targets); err != nil {
		return Loss{}, p.fail(err)
	}
	loss, err := p.read(ctx, targets)
	if err != nil {
		return Loss{}, err
	}
	p.steps++
	return loss, nil
}

// queue queues the work of a step.
func (p *Pipeline) queue(ctx context.Context, b *Batch, targets int64) error {
	if err := p.gradients(ctx, b); err != nil {
		return err
	}
	if err := p.Optimizer.gather(b.Moments, targets); err != nil {
		return err
	}
	return p.Optimizer.step(p.steps + 1)
}

// gradients queues the work that adds up the gradients of a batch.
func (p *Pipeline) gradients(ctx context.Context, b *Batch) error {
	if err := p.Model.begin(b.Moments); err != nil {
		return err
	}
	return p.FeatureExtractor.parts(ctx, b, nil, func(part part) error {
		return p.Model.gradient(part, p.steps)
	})
}

// read waits for a step and returns its loss.
func (p *Pipeline) read(ctx context.Context, targets int64) (Loss, error) {
	m := p.Model
	if err := m.stream.DownloadAll([]device.Piece{
		{Buffer: m.control, Host: p.host, Bytes: 4 * trainset.ControlWords},
		{Buffer: m.totals, Host: p.host, HostOff: 4 * trainset.ControlWords, Bytes: 8 * trainset.Totals},
	}); err != nil {
		return Loss{}, p.fail(fmt.Errorf("download the loss: %w", err))
	}
	if err := p.sync(ctx); err != nil {
		return Loss{}, err
	}
	control := device.Of[uint32](p.host.Bytes()[:4*trainset.ControlWords])
	totals := device.Of[uint64](p.host.Bytes()[4*trainset.ControlWords:])
	loss := Loss{
		Sum: float64(int64(totals[trainset.TotalLoss])) / (1 << trainset.LossBits), Count: targets,
		Saturated: int64(totals[trainset.TotalCut]), Norm: math.Float32frombits(control[trainset.ControlNorm]),
	}
	if !(loss.Norm <= math.MaxFloat32) {
		return loss, p.fail(fmt.Errorf("step %d of a training: the gradient is %w", p.steps+1, ErrNotFinite))
	}
	for _, bits := range control[trainset.ControlGates:][:4] {
		if v := math.Float32frombits(bits); !(v <= math.MaxFloat32) {
			return loss, p.fail(fmt.Errorf("step %d of a training: a weight is %w", p.steps+1, ErrNotFinite))
		}
	}
	return loss, nil
}

// Evaluate steps the sequences of a batch, of any number of moments, without dropout and without a
// change of weights. states are the units at the beginning, [Sequences][Hidden], and then at the
// end; nil: zeros, and no end is returned. predictions, [Moments][Sequences] with items and
// [Moments][Sequences][Candidates] otherwise, get the probabilities of all moments, with items of
// the ones that ask one; nil: none. The other elements stay. With items, predictions are the scores
// of a swarm with the same weights, to the bit.
func (p *Pipeline) Evaluate(ctx context.Context, b Batch, states, predictions []float32) (Loss, error) {
	if p.err != nil {
		return Loss{}, p.err
	}
	m := p.Model
	targets, err := m.check(&b, math.MaxInt32)
	if err != nil {
		return Loss{}, err
	}
	for _, part := range []struct {
		name       string
		have, want int
	}{
		{"states", len(states), b.Sequences * m.Hidden},
		{"predictions", len(predictions), b.Sequences * b.Moments * m.elements()},
	} {
		if part.have != part.want && part.have != 0 {
			return Loss{}, fmt.Errorf("%w: %d %s of a batch, want %d or none", ErrInvalid, part.have, part.name,
				part.want)
		}
	}
	carried := states
	if len(states) == 0 && b.Moments > p.FeatureExtractor.window {
		carried = make([]float32, b.Sequences*m.Hidden)
	}
	if err := m.stream.Fill(m.totals, 0, 8*trainset.Totals, 0); err != nil {
		return Loss{}, p.fail(fmt.Errorf("clear a loss: %w", err))
	}
	err = p.FeatureExtractor.parts(ctx, &b, carried, func(part part) error {
		return m.predict(ctx, &b, part, carried, predictions)
	})
	if err != nil {
		return Loss{}, p.fail(err)
	}
	return p.read(ctx, targets)
}

// Weights returns a copy of the weights.
func (t *Trainer) Weights(ctx context.Context) (Weights, error) {
	s, err := t.state(ctx)
	if err != nil {
		return Weights{}, err
	}
	return t.o.weights(s.weights), nil
}

// state reads the state from the device.
func (t *Trainer) state(ctx context.Context) (*state, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := t.sync(ctx); err != nil {
		return nil, err
	}
	n, p := t.o.size(), t.Optimizer
	s := &state{
		t.steps, make([]float32, n), make([]float32, n), make([]float32, n), make([]int32, p.runs),
	}
	for _, b := range []struct {
		from device.Buffer
		to   []byte
	}{
		{p.weights, device.Bytes(s.weights)},
		{p.mean, device.Bytes(s.mean)},
		{p.square, device.Bytes(s.square)},
		{p.exponents, device.Bytes(s.exponents)},
	} {
		if err := b.from.Read(0, b.to); err != nil {
			return nil, fmt.Errorf("read weights: %w", err)
		}
	}
	return s, nil
}
