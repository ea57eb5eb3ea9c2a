package entities

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// maxCached bounds the directories of a Cache. A directory takes some hundred bytes for an entity.
const maxCached = 8

// Cache keeps the directories of recently searched swarms, so that each question reads only new
// entities. Its methods may be called from several goroutines.
type Cache struct {
	logs  Logs
	mu    sync.Mutex
	known map[string]*Directory // by the key of the record
	order []string              // keys, the one that was used last at the end
}

// NewCache returns an empty cache of the directories of jobs and detectors.
func NewCache(logs Logs) *Cache { return &Cache{logs: logs, known: map[string]*Directory{}} }

// Directory returns the directory of a swarm with all entities that are stored now. It fails with
// ErrNoKey if the specification of the swarm has no key.
func (c *Cache) Directory(ctx context.Context, record swarms.Swarm) (*Directory, error) {
	d, err := c.find(record)
	if err != nil {
		return nil, err
	}
	return d, d.Update(ctx)
}

// find returns the directory of a swarm without its newest entities.
func (c *Cache) find(record swarms.Swarm) (*Directory, error) {
	key := record.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.known[key]
	if d == nil {
		var err error
		if d, err = Open(c.logs, record, statelog.KeyShard); err != nil {
			return nil, err
		}
		if len(c.order) == maxCached {
			delete(c.known, c.order[0])
			c.order = c.order[1:]
		}
		c.known[key] = d
		c.order = append(c.order, key)
		return d, nil
	}
	for i, k := range c.order {
		if k == key {
			c.order = append(append(c.order[:i:i], c.order[i+1:]...), key)
			break
		}
	}
	return d, nil
}
