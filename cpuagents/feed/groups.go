package feed

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Groups numbers the groups of a swarm as outputs do: by entity, in the order of their first rows,
// or by source for a swarm without a key. With one shard both numbers are equal.
type Groups struct {
	Record swarms.Swarm
	Keyed  bool // groups are entities
}

// Group returns the group in the swarm of entity or source number i.
func (g Groups) Group(i int) int {
	if !g.Keyed {
		return i
	}
	return g.Record.EntityGroup(i)
}

// Number returns the number whose Group is a group.
func (g Groups) Number(group int) int {
	if !g.Keyed {
		return group
	}
	return g.Record.GroupEntity(group)
}

// ShardOf returns the shard that has the group of number i.
func (g Groups) ShardOf(i int) int { return g.Record.ShardOf(g.Group(i)) }

// StoreKeys appends the keys of entities that a dictionary does not have yet. add is as for
// statelog.Keys.
func (g Groups) StoreKeys(ctx context.Context, to *statelog.Keys, keys []string,
	add func(ctx context.Context, v any) error,
) error {
	if g.Record.ShardCount() == 1 {
		return to.Store(ctx, keys, add)
	}
	first := to.Stored()
	all := make([]statelog.Assignment, len(keys))
	for i, key := range keys {
		all[i] = statelog.Assignment{Group: g.Group(first + i), Key: key}
	}
	return to.Assign(ctx, all, 0, add)
}

// Part is the part of a batch that one shard gets, packed.
type Part struct {
	Shard int
	Data  []byte
}

// Split returns the parts of a batch whose groups are numbers, by shard. A shard without rows has
// none.
func (g Groups) Split(o *batch.Observations) ([]Part, error) {
	if g.Record.ShardCount() == 1 {
		data, err := o.Pack()
		return []Part{{Data: data}}, err
	}
	placed := make([]uint32, o.Len())
	for i, of := range o.Group {
		placed[i] = uint32(g.Group(int(of)))
	}
	var all []Part
	for k, places := range Places(g.Record, placed) {
		if len(places) == 0 {
			continue
		}
		data, err := Pick(o, places, placed).Pack()
		if err != nil {
			return nil, err
		}
		all = append(all, Part{Shard: k, Data: data})
	}
	return all, nil
}

// Places returns by shard the indices of its rows, whose groups in the swarm are placed.
func Places(record swarms.Swarm, placed []uint32) [][]int {
	places := make([][]int, record.ShardCount())
	for i, group := range placed {
		k := record.ShardOf(int(group))
		places[k] = append(places[k], i)
	}
	return places
}

// Pick returns the rows of a batch at some places, with their groups in the swarm, which placed has
// for all rows.
func Pick(o *batch.Observations, places []int, placed []uint32) *batch.Observations {
	part := o.Pick(places)
	for i, at := range places {
		part.Group[i] = placed[at]
	}
	return part
}

// Renumber gives the decisions of a shard the groups and leaders of a swarm with one shard. agents
// is the number of agents of a group. It refuses groups of other shards.
func (g Groups) Renumber(shard, agents int, d *batch.Decisions) error {
	if g.Record.ShardCount() == 1 {
		return nil
	}
	for i, group := range d.Group {
		if int(group) >= g.Record.Groups || g.Record.ShardOf(int(group)) != shard {
			return jobs.Errorf(jobs.CodeInternal, "swarm %s: a decision for group %d from shard %d: the logs were "+
				"changed by another program", g.Record.ID, group, shard)
		}
		SetGroup(d, i, g.Number(int(group)), agents)
	}
	return nil
}

// SetGroup gives decision i another group, and its leader the number in that group.
func SetGroup(d *batch.Decisions, i, group, agents int) {
	d.Leader[i] += (uint64(group) - uint64(d.Group[i])) * uint64(agents) // unsigned numbers wrap around
	d.Group[i] = uint32(group)
}
