// Package partition is a swarm of several shards seen as one: it splits what is asked of agents or
// groups by the shard that has them, and merges what the shards answer. Of a swarm of one shard,
// what comes out is what went in. It does no I/O; its values belong to one goroutine at a time.
package partition

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Errors of this package.
var (
	// ErrID: there is no such agent or group in the swarm.
	ErrID = errors.New("no such id")
	// ErrAnswer: an answer is not one to what was asked of the shard.
	ErrAnswer = errors.New("not the answer of this shard")
)

// Split is a list of ids by the shards that have them.
type Split struct {
	ids    []uint32
	places [][]int // by shard: those of its ids in the list, in their order
}

// Agents splits ids of agents, in groups of perGroup. The split keeps the list.
func Agents(s swarms.Swarm, perGroup int, ids []uint32) (*Split, error) {
	return split(s, perGroup, ids, "agent")
}

// Nodes splits numbers of knowledge nodes, of so many of the swarm; 0: each group has one. The split
// keeps the list. A number of nodes is a multiple of that of shards, unless each shard has all of them.
func Nodes(s swarms.Swarm, nodes int, everywhere bool, ids []uint32) (*Split, error) {
	if nodes > 0 {
		s.Groups = nodes
	}
	if !everywhere {
		return split(s, 1, ids, "node")
	}
	shards := s.ShardCount()
	s.Shards = 1
	p, err := split(s, 1, ids, "node")
	if err != nil {
		return nil, err
	}
	for range shards - 1 {
		p.places = append(p.places, p.places[0])
	}
	return p, nil
}

// Groups splits numbers of groups. The split keeps the list.
func Groups(s swarms.Swarm, ids []uint32) (*Split, error) { return split(s, 1, ids, "group") }

func split(s swarms.Swarm, size int, ids []uint32, what string) (*Split, error) {
	p := &Split{ids: ids, places: make([][]int, s.ShardCount())}
	for i, id := range ids {
		group := int64(id) / int64(size)
		if group >= int64(s.Groups) {
			return nil, fmt.Errorf("%s %d of %d: %w", what, id, int64(s.Groups)*int64(size), ErrID)
		}
		k := s.ShardOf(int(group))
		p.places[k] = append(p.places[k], i)
	}
	return p, nil
}

// Has says whether a shard has any of the ids.
func (p *Split) Has(k int) bool { return len(p.places[k]) > 0 }

// IDs are those of shard k, in the order of the list.
func (p *Split) IDs(k int) []uint32 {
	if len(p.places[k]) == len(p.ids) {
		return p.ids
	}
	own := make([]uint32, len(p.places[k]))
	for i, at := range p.places[k] {
		own[i] = p.ids[at]
	}
	return own
}

// Observations are those of shard k, of one for each id of the list. They share memory with o where
// they are all of it.
func (p *Split) Observations(o *batch.AgentObservations, k int) *batch.AgentObservations {
	own := &batch.AgentObservations{Agent: p.IDs(k), Width: o.Width}
	if len(own.Agent) == len(p.ids) {
		own.Features = o.Features
		return own
	}
	own.Features = make([]float32, 0, len(own.Agent)*o.Width)
	for _, at := range p.places[k] {
		own.Features = append(own.Features, o.Features[at*o.Width:][:o.Width]...)
	}
	return own
}

// Lessons are those of shard k, of one for each id of the list.
func (p *Split) Lessons(l swarms.Learn, k int) swarms.Learn {
	own, width := l, len(l.Values)/len(p.ids)
	own.Nodes, own.Values = p.IDs(k), nil
	for _, at := range p.places[k] {
		own.Values = append(own.Values, l.Values[at*width:][:width]...)
	}
	return own
}

// check says with an ErrAnswer that shard k has not answered for its ids.
func (p *Split) check(k int, ids []uint32) error {
	if len(ids) != len(p.places[k]) {
		return fmt.Errorf("shard %d: %d rows for %d ids: %w", k, len(ids), len(p.places[k]), ErrAnswer)
	}
	for i, at := range p.places[k] {
		if ids[i] != p.ids[at] {
			return fmt.Errorf("shard %d: row %d is of %d, not of %d: %w", k, i, ids[i], p.ids[at], ErrAnswer)
		}
	}
	return nil
}

// Decisions are those of all shards, in the order of the list. The decisions of a shard without ids
// are not looked at.
func (p *Split) Decisions(of []*batch.AgentDecisions) (*batch.AgentDecisions, error) {
	all := &batch.AgentDecisions{Agent: p.ids, Vote: make([]uint8, len(p.ids)), Decision: make([]uint8, len(p.ids))}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Agent); err != nil {
			return nil, err
		}
		for i, at := range places {
			all.Vote[at], all.Decision[at] = of[k].Vote[i], of[k].Decision[i]
		}
	}
	return all, nil
}

// AgentStates are those of all shards, as Decisions.
func (p *Split) AgentStates(of []*batch.AgentStates) (*batch.AgentStates, error) {
	all := &batch.AgentStates{Agent: p.ids, Vote: make([]uint8, len(p.ids))}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Agent); err != nil {
			return nil, err
		}
		if all.State == nil {
			all.Width, all.State = of[k].Width, make([]float32, len(p.ids)*of[k].Width)
		}
		if of[k].Width != all.Width {
			return nil, fmt.Errorf("shard %d: states of %d values, others have %d: %w", k, of[k].Width, all.Width,
				ErrAnswer)
		}
		for i, at := range places {
			all.Vote[at] = of[k].Vote[i]
			copy(all.State[at*all.Width:][:all.Width], of[k].State[i*all.Width:])
		}
	}
	return all, nil
}

// KnownNodes are the knowledge nodes of all shards, as Decisions. Where several shards have a node, it is
// that with the most updates: a client may have ended between the ticks of two shards. Of equal ones the age
// is the largest.
func (p *Split) KnownNodes(of []*batch.KnownNodes) (*batch.KnownNodes, error) {
	n := len(p.ids)
	all := &batch.KnownNodes{Node: p.ids, Updates: make([]uint64, n), Age: make([]uint64, n)}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Node); err != nil {
			return nil, err
		}
		if all.Units == nil {
			all.Width, all.Units = of[k].Width, make([]float32, n*of[k].Width)
		}
		if of[k].Width != all.Width {
			return nil, fmt.Errorf("shard %d: nodes of %d units, others have %d: %w", k, of[k].Width, all.Width,
				ErrAnswer)
		}
		for i, at := range places {
			switch n := of[k].Updates[i]; {
			case n < all.Updates[at]:
				continue
			case n == all.Updates[at]:
				all.Age[at] = max(all.Age[at], of[k].Age[i])
			default:
				all.Updates[at], all.Age[at] = n, of[k].Age[i]
			}
			copy(all.Units[at*all.Width:][:all.Width], of[k].Units[i*all.Width:])
		}
	}
	return all, nil
}

// GroupStates are those of all shards, as Decisions.
func (p *Split) GroupStates(of []*batch.GroupStates) (*batch.GroupStates, error) {
	all := &batch.GroupStates{Group: p.ids, Decision: make([]uint8, len(p.ids)), Round: make([]uint64, len(p.ids))}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Group); err != nil {
			return nil, err
		}
		if all.Counts == nil {
			all.Candidates, all.Counts = of[k].Candidates, make([]uint32, len(p.ids)*of[k].Candidates)
		}
		if of[k].Candidates != all.Candidates {
			return nil, fmt.Errorf("shard %d: groups of %d candidates, others have %d: %w", k, of[k].Candidates,
				all.Candidates, ErrAnswer)
		}
		for i, at := range places {
			all.Decision[at], all.Round[at] = of[k].Decision[i], of[k].Round[i]
			copy(all.Counts[at*all.Candidates:][:all.Candidates], of[k].Counts[i*all.Candidates:])
		}
	}
	return all, nil
}
