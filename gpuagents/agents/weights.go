package agents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// SetWeights replaces the weights of all agents, from the next step on. The table is such as
// Options.Weights, and belongs to the Agents from then on. States stay, and so do the values that
// are heard. It waits for earlier steps.
func (a *Agents) SetWeights(ctx context.Context, table []uint32) error {
	if err := a.fits(table); err != nil {
		return err
	}
	if err := a.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	if err := a.weights.Write(0, device.Bytes(table[:a.cell.DeviceWords()])); err != nil {
		return gpubatch.Failed(err)
	}
	heard := a.heard
	a.base, a.heard = table, nil // the biases of the table are without what is heard
	if heard == nil {
		return nil
	}
	return a.Hear(ctx, heard)
}

// fits returns an ErrInvalid for a weights table of another length than the cell has.
func (a *Agents) fits(table []uint32) error {
	if with, without := a.cell.TableWords(); len(table) != with && len(table) != without {
		return fmt.Errorf("%w: a table of %d words, the cell has %d", ErrInvalid, len(table), with)
	}
	return nil
}
