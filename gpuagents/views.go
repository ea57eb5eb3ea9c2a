package gpuagents

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Views are what people see of the inside of an agent. Its methods may be called from several
// goroutines.
type Views struct{ of *Agent }

// ViewsOf returns the views of an agent.
func ViewsOf(a *Agent) Views { return Views{a} }

// Picture draws a variable of the agents of a shard as at most a number of cells; see
// shard.OpenShard.Picture. It waits for the running batch, and does not wake a parked shard.
func (v Views) Picture(ctx context.Context, id shard.ID, variable string, cells int) (*raster.Picture, error) {
	open := v.openShard(id)
	if open == nil {
		return nil, shard.ErrNotOpen
	}
	return open.Picture(ctx, variable, cells)
}

// PageMap returns where the pages of a shard are, as at most a number of cells; see
// shard.OpenShard.PageMap.
func (v Views) PageMap(ctx context.Context, id shard.ID, cells int) (*shard.PageMap, error) {
	open := v.openShard(id)
	if open == nil {
		return nil, shard.ErrNotOpen
	}
	return open.PageMap(ctx, cells)
}

// Spans returns the stages of the last batches of all shards that ended after a time. The slice is
// the caller's.
func (v Views) Spans(from time.Time) []gpubatch.Span { return v.of.spans.Since(from) }

// Models describes the models on the devices of the agent, which shards hold or HoldModel does, by
// name and device.
func (v Views) Models() []pool.Model {
	all := v.of.pool.Models()
	slices.SortFunc(all, func(x, y pool.Model) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Device, y.Device), cmp.Compare(x.SHA256, y.SHA256))
	})
	return all
}

// KeptModels returns the models that the agent was asked to hold, by name.
func (v Views) KeptModels() (all []KeptModel) {
	v.of.models.mu.Lock()
	defer v.of.models.mu.Unlock()
	for _, k := range v.of.models.of {
		all = append(all, KeptModel{k.ref, k.held, k.err})
	}
	slices.SortFunc(all, func(x, y KeptModel) int { return cmp.Compare(x.Name, y.Name) })
	return all
}

func (v Views) openShard(id shard.ID) *shard.OpenShard {
	v.of.mu.Lock()
	defer v.of.mu.Unlock()
	if p := v.of.assignments[swarms.LeaseKey(id.Swarm, id.Shard)]; p != nil && p.state == stateServed {
		return p.open
	}
	return nil
}
