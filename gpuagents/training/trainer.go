package training

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// Trainer is a training on one device or several. Each has the weights, and a pipeline that makes
// the gradients of its share of a batch. Their sums are integers, which have one sum in any order,
// so each device makes the same step. It is used by one goroutine at a time. The caller closes it
// before the devices and the collective.
type Trainer struct {
	*Pipeline // of the first device

	o     Options
	all   []*Pipeline // by device
	steps uint64      // that are done
	err   error       // that has ended the training
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
	devices := []device.Device{dev}
	if o.Collective != nil {
		if devices = o.Collective.Devices(); devices[0] != dev {
			return nil, fmt.Errorf("%w: the first device of the collective is %s, not %s", ErrInvalid,
				devices[0].Properties().Name, dev.Properties().Name)
		}
	}
	t := &Trainer{o: o, steps: s.steps}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	for _, d := range devices {
		p, err := openPipeline(d, &o, s)
		if err != nil {
			return nil, err
		}
		t.all = append(t.all, p)
	}
	t.Pipeline = t.all[0]
	return t, t.sync(ctx)
}

// Close releases the memory on the devices. A second call does nothing.
func (t *Trainer) Close() (err error) {
	for _, p := range t.all {
		err = errors.Join(err, p.close())
	}
	return err
}

// Steps is the number of steps that are done.
func (t *Trainer) Steps() uint64 { return t.steps }

// sync waits for the streams. An error ends the training, because the state of a device is unknown.
func (t *Trainer) sync(ctx context.Context) error {
	if err := t.each(func(_ int, p *Pipeline) error { return p.Model.stream.Sync(ctx) }); err != nil {
		return t.fail(fmt.Errorf("step %d of a training: %w", t.steps+1, err))
	}
	return nil
}

func (t *Trainer) fail(err error) error {
	t.err = err
	return err
}

// each calls do for all devices at the same time, and returns behind the last call.
func (t *Trainer) each(do func(rank int, p *Pipeline) error) error {
	if len(t.all) == 1 {
		return do(0, t.Pipeline)
	}
	errs := make([]error, len(t.all))
	var wg sync.WaitGroup
	for rank, p := range t.all {
		wg.Go(func() { errs[rank] = do(rank, p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TrainStep makes a step with the gradient of the mean loss of a batch. A batch without targets
// makes no step. After an error other than ErrInvalid the trainer is of no more use. Cancelling ctx
// is such an error.
func (t *Trainer) TrainStep(ctx context.Context, b Batch) (Loss, error) {
	if t.err != nil {
		return Loss{}, t.err
	}
	targets, err := t.o.Shape.check(&b, t.o.Window)
	if err != nil || targets == 0 {
		return Loss{}, err
	}
	if err := t.gradients(ctx, &b); err != nil {
		return Loss{}, t.fail(fmt.Errorf("step %d of a training: %w", t.steps+1, err))
	}
	for _, p := range t.all {
		if err := p.update(b.Moments, targets, t.steps+1); err != nil {
			return Loss{}, t.fail(err)
		}
	}
	loss, err := t.read(ctx, targets)
	if err != nil {
		return Loss{}, err
	}
	t.steps++
	return loss, nil
}

// gradients adds up the gradients of a batch, which all devices then have.
func (t *Trainer) gradients(ctx context.Context, b *Batch) error {
	shares := b.shares(len(t.all))
	err := t.each(func(rank int, p *Pipeline) error { return p.gradients(ctx, b, shares[rank], t.steps) })
	if err != nil || len(t.all) == 1 {
		return err
	}
	return t.exchange(ctx, b.Moments)
}

// exchange gives all devices the sums and the largest gradients of all, of a batch of some moments.
func (t *Trainer) exchange(ctx context.Context, moments int) error {
	if err := t.each(func(_ int, p *Pipeline) error { return p.readMaxima(ctx) }); err != nil {
		return err
	}
	places := make([]device.Place, len(t.all))
	for _, p := range t.all[1:] {
		for run, v := range p.maxima { // of floats that are not negative, so their bits have their order
			t.maxima[run] = max(t.maxima[run], v)
		}
	}
	for rank, p := range t.all {
		copy(p.maxima, t.maxima)
		if err := p.writeMaxima(); err != nil {
			return err
		}
		places[rank] = device.Place{Stream: p.Model.stream, Buffer: p.Model.sums}
	}
	return t.o.Collective.Sum(ctx, device.KindUint64, t.Model.sumBytes(moments)/8, places)
}

// read waits for a step and returns its loss.
func (t *Trainer) read(ctx context.Context, targets int64) (Loss, error) {
	step := fmt.Sprintf("step %d of a training", t.steps+1)
	if err := t.each(func(_ int, p *Pipeline) error { return p.read(ctx) }); err != nil {
		return Loss{}, t.fail(fmt.Errorf("%s: %w", step, err))
	}
	loss, sum := Loss{Count: targets, Norm: math.Float32frombits(t.control[trainset.ControlNorm])}, int64(0)
	for _, p := range t.all {
		sum += int64(p.totals[trainset.TotalLoss])
		loss.Saturated += int64(p.totals[trainset.TotalCut])
	}
	loss.Sum = float64(sum) / (1 << trainset.LossBits)
	if !(loss.Norm <= math.MaxFloat32) {
		return loss, t.fail(fmt.Errorf("%s: the gradient is %w", step, ErrNotFinite))
	}
	for _, bits := range t.control[trainset.ControlGates:][:4] {
		if v := math.Float32frombits(bits); !(v <= math.MaxFloat32) {
			return loss, t.fail(fmt.Errorf("%s: a weight is %w", step, ErrNotFinite))
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
func (t *Trainer) Evaluate(ctx context.Context, b Batch, states, predictions []float32) (Loss, error) {
	if t.err != nil {
		return Loss{}, t.err
	}
	targets, err := t.o.Shape.check(&b, math.MaxInt32)
	if err != nil {
		return Loss{}, err
	}
	for _, part := range []struct {
		name       string
		have, want int
	}{
		{"states", len(states), b.Sequences * t.o.Hidden},
		{"predictions", len(predictions), b.Sequences * b.Moments * t.o.elements()},
	} {
		if part.have != part.want && part.have != 0 {
			return Loss{}, fmt.Errorf("%w: %d %s of a batch, want %d or none", ErrInvalid, part.have, part.name,
				part.want)
		}
	}
	carried := states
	if len(states) == 0 && b.Moments > t.o.Window {
		carried = make([]float32, b.Sequences*t.o.Hidden)
	}
	shares := b.shares(len(t.all))
	if err := t.each(func(rank int, p *Pipeline) error {
		m := p.Model
		if err := m.stream.Fill(m.totals, 0, 8*trainset.Totals, 0); err != nil {
			return fmt.Errorf("clear a loss: %w", err)
		}
		return p.FeatureExtractor.parts(ctx, &b, shares[rank], carried, func(part part) error {
			return m.predict(ctx, &b, part, carried, predictions)
		})
	}); err != nil {
		return Loss{}, t.fail(err)
	}
	return t.read(ctx, targets)
}

// Weights returns a copy of the weights.
func (t *Trainer) Weights(ctx context.Context) (Weights, error) {
	s, err := t.state(ctx)
	if err != nil {
		return Weights{}, err
	}
	return t.o.weights(s.weights), nil
}

// state reads the state, which all devices must have.
func (t *Trainer) state(ctx context.Context) (*state, error) {
	if t.err != nil {
		return nil, t.err
	}
	if err := t.sync(ctx); err != nil {
		return nil, err
	}
	n := t.o.size()
	s := &state{
		t.steps, make([]float32, n), make([]float32, n), make([]float32, n), make([]int32, t.Model.runs),
	}
	for rank, p := range t.all {
		for i, to := range [][]byte{
			device.Bytes(s.weights), device.Bytes(s.mean), device.Bytes(s.square), device.Bytes(s.exponents),
		} {
			m := p.Optimizer
			from := [...]device.Buffer{m.weights, m.mean, m.square, m.exponents}[i]
			read := to
			if rank > 0 {
				read = make([]byte, len(to))
			}
			if err := from.Read(0, read); err != nil {
				return nil, t.fail(fmt.Errorf("read weights: %w", err))
			}
			if !bytes.Equal(read, to) {
				return nil, t.fail(fmt.Errorf("step %d of a training: %s and %s have other weights: %w", t.steps,
					t.Model.dev.Properties().Name, p.Model.dev.Properties().Name, device.ErrSticky))
			}
		}
	}
	return s, nil
}
