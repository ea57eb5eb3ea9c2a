package cluster

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/jobs"
)

// Entities returns up to limit entities of a swarm whose names have a text; see
// entities.Directory.Search. swarm is an id. It fails with jobs.ErrNotFound if there is no such
// swarm, or if its specification has no key.
func (w *Watcher) Entities(ctx context.Context, swarm, text string, limit int) (entities.Page, error) {
	record, err := w.conn.Swarms.Swarm(ctx, swarm)
	if err != nil {
		return entities.Page{}, fmt.Errorf("swarm %s: %w", swarm, err)
	}
	d, err := w.entities.Directory(ctx, record)
	if err != nil {
		return entities.Page{}, fmt.Errorf("%w: %w", jobs.ErrNotFound, err)
	}
	return d.Search(text, limit), nil
}
