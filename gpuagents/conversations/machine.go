package conversations

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/jobs"
)

// Machine computes a language model. What it does for a run depends on the tokens of the run and on
// the pages before it alone: on no other run, and not on how the tokens are cut into runs.
type Machine interface {
	Parameters() *architecture.Parameters
	// Step is transformer.Machine.Step.
	Step(ctx context.Context, pool device.Buffer, runs []transformer.Run, out []transformer.Token) error
	// Last is transformer.Machine.Last, and Logits transformer.Machine.Logits.
	Last(run int, out []float32)
	Logits(ctx context.Context, run int, tokens []int32, out []float32) error
	// Close releases the machine. A second call does nothing.
	Close() error
}

// language is a Machine whose weights are held on a device.
type language struct {
	*transformer.Machine
	held *weights.Model
}

// NewMachine returns a machine for conversations on a device, with the weights of a model that h
// holds. open opens the model if nobody holds it. A *jobs.Error says why the model is none for these
// conversations.
func NewMachine(
	ctx context.Context, dev device.Device, h *weights.Holder, ref weights.Ref,
	open func(ctx context.Context) (weights.Source, error), o Options,
) (Machine, error) {
	held, err := h.Hold(ctx, ref, open)
	if errors.Is(err, weights.ErrRoom) {
		return nil, jobs.Errorf(jobs.CodeDevice, "%v", err)
	}
	if err != nil {
		return nil, err
	}
	p := *held.Parameters()
	switch bytes := transformer.PositionBytes(p); {
	case bytes != o.CacheBytes:
		err = jobs.Errorf(jobs.CodeInvalid, "cell.cache_bytes %d: a position of model %s takes %d: leave it out when "+
			"you create the swarm", o.CacheBytes, ref.Name, bytes)
	case o.Context > p.Context:
		err = jobs.Errorf(jobs.CodeInvalid, "context %d: model %s was made for %d tokens: use at most that", o.Context,
			ref.Name, p.Context)
	}
	if err != nil {
		return nil, errors.Join(err, held.Release())
	}
	m, err := transformer.New(ctx, dev, transformer.Options{
		Parameters: p, Context: o.Context, PagePositions: o.positions(), PageSize: int64(o.Layout.PageBytes),
	}, held)
	if errors.Is(err, transformer.ErrModel) {
		err = jobs.Errorf(jobs.CodeInvalid, "model %s: %v", ref.Name, err)
	}
	if err != nil {
		return nil, errors.Join(err, held.Release())
	}
	return &language{m, held}, nil
}

func (l *language) Parameters() *architecture.Parameters { return l.held.Parameters() }

// Step implements Machine. If the weights were not on the device as claimed, what was computed is of
// no use.
func (l *language) Step(
	ctx context.Context, pool device.Buffer, runs []transformer.Run, out []transformer.Token,
) error {
	if err := l.Machine.Step(ctx, pool, runs, out); err != nil {
		return err
	}
	if err := l.held.Intact(); err != nil {
		return fmt.Errorf("%w: %w", gpubatch.ErrDevice, err)
	}
	return nil
}

// Close implements Machine.
func (l *language) Close() error { return errors.Join(l.Machine.Close(), l.held.Release()) }
