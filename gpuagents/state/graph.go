package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// Attach reads the edges of a graph that are not in the record of the swarm from the store of
// snapshots; nil: there is no store. It does nothing for other swarms. A *jobs.Error says that the
// edges are missing. Any other error is an error of the store, and a later call may succeed.
func Attach(ctx context.Context, place snapshot.Store, spec *swarm.Spec) error {
	name := spec.Neighbours.Object()
	if name == "" {
		return nil
	}
	where := fmt.Sprintf("neighbours: graph %s: its edges are the object %s of the place of snapshots",
		spec.Neighbours.Graph, name)
	if place == nil {
		return jobs.Errorf(jobs.CodeInvalid, "%s, and none is named here: name it with --snapshots, as for all "+
			"GPU agents", where)
	}
	r, err := place.Open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return jobs.Errorf(jobs.CodeInvalid, "%s, which does not have it: create the swarm with the --snapshots of "+
			"the GPU agents", where)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, swarm.MaxPacked+1))
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return spec.Attach(string(text))
}
