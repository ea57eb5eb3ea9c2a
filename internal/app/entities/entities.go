// Package entities finds the entities of a swarm by their keys.
package entities

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Logs holds the logs of swarms. The field Swarms of a connection is one.
type Logs interface {
	// Log returns the log of a shard. key is swarms.Swarm.Key.
	Log(key string, shard int, d swarms.Direction) swarms.Log
}

// Entity is an entity of a swarm.
type Entity struct {
	// Name is the value of the key column, or the values of several columns separated by ", ", as
	// in tables and reports.
	Name string `json:"name"`
	// Key has the values by key column.
	Key   map[string]string `json:"key"`
	Group int               `json:"group"` // its number in the swarm
	Shard int               `json:"shard"` // that has the group
}

// Directory is the entities of one swarm. It reads their keys from the log where a job or a
// detector stores them. Its methods may be called from several goroutines.
type Directory struct {
	record  swarms.Swarm
	columns []string
	log     swarms.Log

	mu     sync.Mutex
	known  statelog.Dictionary
	groups map[string]int // by key
	size   int            // groups that are in groups, or free
}

// Open returns the directory of a swarm, which is empty until Update. keys is the number of the log
// with the dictionary: statelog.KeyShard for the swarms of jobs and detectors. It fails with
// ErrNoKey if the specification of the swarm has no key.
func Open(logs Logs, record swarms.Swarm, keys int) (*Directory, error) {
	spec, err := swarm.FromJSON(record.Spec)
	if err != nil {
		return nil, fmt.Errorf("swarm %s: %w", record.ID, err)
	}
	if len(spec.Key) == 0 {
		return nil, fmt.Errorf("swarm %s: %w", record.ID, ErrNoKey)
	}
	return &Directory{
		record: record, columns: spec.Key, log: logs.Log(record.Key(), keys, swarms.In), groups: map[string]int{},
	}, nil
}

// Find returns the entities of the swarm of a job or a detector with some keys, in their order. It
// fails as Open and Directory.Find do.
func Find(ctx context.Context, logs Logs, record swarms.Swarm, keys ...string) ([]Entity, error) {
	d, err := Open(logs, record, statelog.KeyShard)
	if err != nil {
		return nil, err
	}
	if err := d.Update(ctx); err != nil {
		return nil, err
	}
	found := make([]Entity, len(keys))
	for i, key := range keys {
		if found[i], err = d.Find(key); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Columns returns the names of the key columns, which the caller does not change.
func (d *Directory) Columns() []string { return d.columns }

// Len returns the number of entities.
func (d *Directory) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.groups)
}

// Update reads the entities that are new since the last call. A swarm without rows has none, which
// is no error.
func (d *Directory) Update(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, err := d.known.Update(ctx, d.log)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("entities of swarm %s: %w", d.record.ID, err)
	}
	keys := d.known.Keys()
	if first < d.size { // groups were given to other entities
		clear(d.groups)
		first = 0
	}
	for g, key := range keys[first:] {
		if key != "" {
			d.groups[key] = first + g
		}
	}
	d.size = len(keys)
	return nil
}

// Name returns the name of the entity of a group; empty if there is none.
func (d *Directory) Name(group int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if keys := d.known.Keys(); group >= 0 && group < len(keys) && keys[group] != "" {
		return rows.EntityName(keys[group])
	}
	return ""
}

// Values appends the values of the key of a group to a slice, in the order of Columns, and returns
// false if the group has no entity.
func (d *Directory) Values(to []string, group int) ([]string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if keys := d.known.Keys(); group >= 0 && group < len(keys) && keys[group] != "" {
		return append(to, rows.KeyValues(keys[group])...), true
	}
	return to, false
}

func (d *Directory) entity(group int) Entity {
	key := d.known.Keys()[group]
	e := Entity{
		Name: rows.EntityName(key), Key: map[string]string{}, Group: group, Shard: d.record.ShardOf(group),
	}
	for i, v := range rows.KeyValues(key) {
		if i < len(d.columns) {
			e.Key[d.columns[i]] = v
		}
	}
	return e
}

// Find returns the entity that a text names: the value of the key column, the values of several as
// in site=a,device=7 in any order, or the name of the entity. Values with commas, quotes or spaces
// at an end are quoted as in Go. It fails with jobs.CodeInvalid if the text names no key, and with
// jobs.ErrNotFound, naming the nearest keys, if there is no such entity, and with ErrEvicted if it
// has lost its group.
func (d *Directory) Find(text string) (Entity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, ok := d.groups[text]; ok && len(d.columns) == 1 {
		return d.entity(g), nil
	}
	key, err := parseKey(text, d.columns)
	if err == nil {
		if g, ok := d.groups[key]; ok {
			return d.entity(g), nil
		}
	}
	if len(d.columns) > 1 {
		for g, k := range d.known.Keys() {
			if rows.EntityName(k) == text {
				return d.entity(g), nil
			}
		}
	}
	if err != nil && len(d.columns) > 1 {
		return Entity{}, jobs.Errorf(jobs.CodeInvalid, "key %q of swarm %s: %v", text, d.record.ID, err)
	}
	name := text
	if err == nil {
		if name = rows.EntityName(key); d.known.Had(key) {
			return Entity{}, fmt.Errorf("entity %q of swarm %s: %w: %w", text, d.record.ID, ErrEvicted,
				jobs.ErrNotFound)
		}
	}
	return Entity{}, d.missing(text, name)
}

// missing returns the error of a text that names an entity which is not there. mu is held.
func (d *Directory) missing(text, name string) error {
	keys := d.known.Keys()
	if len(d.groups) == 0 {
		return fmt.Errorf("swarm %s has no entity yet: %w", d.record.ID, jobs.ErrNotFound)
	}
	near := ""
	for i, g := range d.nearest(name, nearKeys) {
		near += []string{": the nearest are ", ", "}[min(i, 1)] + quote(rows.EntityName(keys[g]), len(d.columns) > 1)
	}
	return fmt.Errorf("swarm %s has no entity %q among its %d%s: %w", d.record.ID, text, len(d.groups), near,
		jobs.ErrNotFound)
}

// Page is a part of the entities of a swarm.
type Page struct {
	Columns  []string `json:"columns"` // of the key
	Count    int      `json:"count"`   // entities in all
	Matches  int      `json:"matches"` // entities that match
	Entities []Entity `json:"entities"`
}

// Search returns up to limit entities whose name has a text, in any case: first the entity with
// exactly this name, then names that begin with it, then all other matches, each in the order of
// their first rows. An empty text matches all. If none matches, Entities has the nearest names, and
// Matches is 0.
func (d *Directory) Search(text string, limit int) Page {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := Page{Columns: d.columns, Count: len(d.groups), Entities: []Entity{}}
	found := d.matching(text, limit, &p.Matches)
	if p.Matches == 0 {
		found = d.nearest(text, min(limit, nearKeys))
	}
	for _, g := range found {
		p.Entities = append(p.Entities, d.entity(g))
	}
	return p
}
