package training

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
)

// Pipeline are the three parts of a training on a device: batches become inputs, a model makes a
// loss and its gradient of them, and an optimizer steps the weights.
type Pipeline struct {
	FeatureExtractor *FeatureExtractor
	Model            *Model
	Optimizer        *Optimizer

	// What is read of the device: control, totals and maxima, which are in host.
	host            device.HostBuffer
	control, maxima []uint32
	totals          []uint64
}

// Where control, totals and maxima begin in host.
const (
	hostTotals = 4 * trainset.ControlWords
	hostMaxima = hostTotals + 8*trainset.Totals
)

// openPipeline makes the parts on a device, which begin with a state.
func openPipeline(dev device.Device, o *Options, s *state) (_ *Pipeline, err error) {
	m, err := openMemory(dev, o)
	if err != nil {
		return nil, err
	}
	p := &Pipeline{FeatureExtractor: newFeatureExtractor(m, o), Model: newModel(m, o)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.Optimizer, err = newOptimizer(m, o, p.Model.keep); err != nil {
		return nil, err
	}
	if p.host, err = dev.AllocHost(hostMaxima+4*m.runs, purpose); err != nil {
		return nil, fmt.Errorf("host memory of a training: %w", err)
	}
	bytes := p.host.Bytes()
	p.control, p.maxima = device.Of[uint32](bytes[:hostTotals]), device.Of[uint32](bytes[hostMaxima:])
	p.totals = device.Of[uint64](bytes[hostTotals:hostMaxima])
	return p, p.Optimizer.set(s.weights, s.mean, s.square, s.exponents)
}

// close waits for the work of the device and releases its memory. A second call does nothing.
func (p *Pipeline) close() error {
	err := p.Model.close()
	if p.host != nil {
		err = errors.Join(err, p.host.Close())
	}
	return err
}

// gradients queues the work that adds up the gradients of some sequences of a batch.
func (p *Pipeline) gradients(ctx context.Context, b *Batch, of span, step uint64) error {
	if err := p.Model.begin(b.Moments); err != nil {
		return err
	}
	return p.FeatureExtractor.parts(ctx, b, of, nil, func(part part) error { return p.Model.gradient(part, step) })
}

// update queues a step of the weights with the sums of a batch of some moments and targets.
func (p *Pipeline) update(moments int, targets int64, step uint64) error {
	if err := p.Optimizer.gather(moments, targets); err != nil {
		return err
	}
	return p.Optimizer.step(step)
}

// readMaxima waits for the gradients and reads the largest of each run.
func (p *Pipeline) readMaxima(ctx context.Context) error {
	m := p.Model
	if err := m.stream.Download(p.host, hostMaxima, m.maxima, 0, 4*m.runs); err != nil {
		return fmt.Errorf("download the largest gradients: %w", err)
	}
	return m.stream.Sync(ctx)
}

// writeMaxima queues the copy of the largest gradients of all devices.
func (p *Pipeline) writeMaxima() error {
	m := p.Model
	if err := m.stream.Upload(m.maxima, 0, p.host, hostMaxima, 4*m.runs); err != nil {
		return fmt.Errorf("upload the largest gradients: %w", err)
	}
	return nil
}

// read waits for all work, and reads control and totals.
func (p *Pipeline) read(ctx context.Context) error {
	m := p.Model
	if err := m.stream.DownloadAll([]device.Piece{
		{Buffer: m.control, Host: p.host, Bytes: hostTotals},
		{Buffer: m.totals, Host: p.host, HostOff: hostTotals, Bytes: 8 * trainset.Totals},
	}); err != nil {
		return fmt.Errorf("download the loss: %w", err)
	}
	return m.stream.Sync(ctx)
}
