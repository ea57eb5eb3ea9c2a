package model

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"weak"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Weights are a weights table that the shards of a process share. It is not changed.
type Weights struct{ Table []uint32 }

// inUse has the Weights that somebody holds, by model and sizes of the cell: an embedding takes up
// to 128 MiB, and a process may serve many shards of a swarm.
var inUse = struct {
	sync.Mutex
	of map[string]weak.Pointer[Weights]
}{of: map[string]weak.Pointer[Weights]{}}

// Shared is Table for a model that Find has returned for ref. All callers get one table for cells
// of the same sizes as long as one of them holds it, and the file is not read again.
func (m *Manifest) Shared(
	ctx context.Context, store snapshot.Store, ref swarms.ModelRef, cell *cells.Addressed,
) (*Weights, error) {
	key := fmt.Sprintf("%s %v %d+%d %d %d %d", ref.SHA256, cell.Value("hidden"), cell.Features, cell.Hears,
		cell.Candidates, cell.Rows, cell.Items)
	inUse.Lock()
	w := inUse.of[key].Value()
	inUse.Unlock()
	if w != nil {
		return w, nil
	}
	table, err := m.Table(ctx, store, cell)
	if err != nil {
		return nil, err
	}
	inUse.Lock()
	defer inUse.Unlock()
	if w := inUse.of[key].Value(); w != nil { // of somebody who was faster
		return w, nil
	}
	maps.DeleteFunc(inUse.of, func(_ string, p weak.Pointer[Weights]) bool { return p.Value() == nil })
	w = &Weights{table}
	inUse.of[key] = weak.Make(w)
	return w, nil
}
