package shard

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// audit compares claims of the shard. After an error the shard starts again from its checkpoint.
func (t *loop) audit(ctx context.Context) error {
	checked, err := t.state.Memory().Audit(ctx, t.at)
	t.server.o.Metrics.audited(t.cell, checked, errors.Is(err, pages.ErrResidency))
	if errors.Is(err, pages.ErrResidency) {
		t.server.o.Violated(t.id, err)
		t.log.Error("pages are not on the device as claimed, the shard starts again from its checkpoint", "error", err)
	}
	return err
}
