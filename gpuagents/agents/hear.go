package agents

import (
	"context"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// Hear sets what all agents hear in their next steps: one finite value for each of Cell().Hears.
// The values are zeros before the first call. A step costs the same whatever is heard. Hear waits
// for earlier steps, unless the values are unchanged. It does not keep values.
func (a *Agents) Hear(ctx context.Context, values []float32) error {
	if len(values) != a.cell.Hears {
		return fmt.Errorf("%w: %d values are heard, the cell hears %d", ErrInvalid, len(values), a.cell.Hears)
	}
	if slices.Equal(values, a.heard) {
		return nil
	}
	if err := a.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	a.heard = nil // after a failed write the content is unknown
	if err := a.weights.Write(cells.BiasBytes, device.Bytes(a.cell.Biases(a.base, values))); err != nil {
		return gpubatch.Failed(err)
	}
	a.heard = slices.Clone(values)
	return nil
}
