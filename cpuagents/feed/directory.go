package feed

import (
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Directory is the entities of a detector, which keep their groups or give them to others. The
// goroutine that feeds uses it, except for Key, which others may call at the same time.
type Directory struct {
	// Evictions is nil if entities keep their groups. The caller sets what it needs before Move.
	Evictions *Evictions
	entities  *Entities
}

// NewDirectory returns the entities of a swarm. With a time after which they lose their groups, a
// state of a group has some bytes. The memory is taken from hold, nil for none.
func NewDirectory(record swarms.Swarm, after time.Duration, stateBytes int, hold *access.Hold) *Directory {
	if after == 0 {
		return &Directory{entities: NewEntities(record.Groups, hold)}
	}
	groups := Groups{Record: record, Keyed: true}
	return &Directory{Evictions: &Evictions{
		Roster: NewRoster(record.Groups, after), Names: &Names{shardOf: groups.ShardOf}, groups: groups,
		bytes: stateBytes, hold: hold, left: map[string]leaving{},
	}}
}

// Key implements encode.Entities: it returns the key of an entity whose decisions come now.
func (d *Directory) Key(i int) (string, bool) {
	if d.Evictions != nil {
		return d.Evictions.Names.Key(i)
	}
	return d.entities.Key(i)
}

// Reach goes to the answer to an entry of a shard, behind which a group may have another entity.
func (d *Directory) Reach(shard int, entry uint64) {
	if d.Evictions != nil {
		d.Evictions.Names.Reach(shard, entry)
	}
}

// Len returns the number of entities with a group.
func (d *Directory) Len() int {
	if d.Evictions != nil {
		return d.Evictions.Roster.Len()
	}
	return d.entities.Len()
}

// Number returns the number of the entity of a row with a time in Unix nanoseconds, and false if
// there is none. With Evictions there is one after the batch was appended.
func (d *Directory) Number(key string, at int64) (i int, ok bool, err error) {
	if d.Evictions != nil {
		i, ok = d.Evictions.Roster.Group(key, at)
		return i, ok, nil
	}
	i, _, full, err := d.entities.Add(key)
	return i, !full, err
}

// Restore implements commitlog.Dictionary.
func (d *Directory) Restore(all []statelog.Assignment) error {
	if d.Evictions != nil {
		return d.Evictions.Restore(all)
	}
	return d.entities.Restore(all)
}

// Fresh implements commitlog.Dictionary.
func (d *Directory) Fresh(from int) []string {
	if d.Evictions != nil {
		return nil
	}
	return d.entities.Fresh(from)
}
