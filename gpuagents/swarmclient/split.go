package swarmclient

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	// errID: the swarm has no such agent, group or node.
	errID = errors.New("no such id")
	// errAnswer: an answer does not fit the request to the shard.
	errAnswer = errors.New("not the answer of this shard")
)

// Split is a list of ids, divided by the shards that have them. One goroutine uses it at a time.
type Split struct {
	ids []uint32
	at  [][]int // by shard: the positions of its ids in the list, in ascending order
}

// SplitAgents splits ids of agents, in groups of perGroup. The split keeps the list.
func SplitAgents(s swarms.Swarm, perGroup int, ids []uint32) (*Split, error) {
	return split(s, perGroup, ids, "agent")
}

// SplitGroups splits numbers of groups. The split keeps the list.
func SplitGroups(s swarms.Swarm, ids []uint32) (*Split, error) { return split(s, 1, ids, "group") }

// SplitNodes splits numbers of knowledge nodes. nodes is the number of nodes of the swarm, a
// multiple of the number of shards unless everywhere is set; 0: each group has a node. With
// everywhere, each shard has all nodes. The split keeps the list.
func SplitNodes(s swarms.Swarm, nodes int, everywhere bool, ids []uint32) (*Split, error) {
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
		p.at = append(p.at, p.at[0])
	}
	return p, nil
}

func split(s swarms.Swarm, size int, ids []uint32, what string) (*Split, error) {
	p := &Split{ids: ids, at: make([][]int, s.ShardCount())}
	for i, id := range ids {
		group := int64(id) / int64(size)
		if group >= int64(s.Groups) {
			return nil, fmt.Errorf("%s %d of %d: %w", what, id, int64(s.Groups)*int64(size), errID)
		}
		k := s.ShardOf(int(group))
		p.at[k] = append(p.at[k], i)
	}
	return p, nil
}

// Has reports whether shard k has an id of the list.
func (p *Split) Has(k int) bool { return len(p.at[k]) > 0 }

// IDs returns the ids of shard k, in the order of the list.
func (p *Split) IDs(k int) []uint32 {
	if len(p.at[k]) == len(p.ids) {
		return p.ids
	}
	own := make([]uint32, len(p.at[k]))
	for i, at := range p.at[k] {
		own[i] = p.ids[at]
	}
	return own
}

// pick returns the rows of shard k from a table with a row of width values for each id. It returns
// the table itself if the shard has all ids.
func pick[T any](p *Split, values []T, width, k int) []T {
	if len(p.at[k]) == len(p.ids) {
		return values
	}
	own := make([]T, 0, len(p.at[k])*width)
	for _, at := range p.at[k] {
		own = append(own, values[at*width:][:width]...)
	}
	return own
}

// Observations returns the observations of shard k; o has one for each id. The result may share
// memory with o.
func (p *Split) Observations(o *batch.AgentObservations, k int) *batch.AgentObservations {
	own := &batch.AgentObservations{Agent: p.IDs(k), Width: o.Width, Features: pick(p, o.Features, o.Width, k)}
	if o.Item != nil {
		own.Item = pick(p, o.Item, 1, k)
	}
	return own
}

// GroupObservations is Observations for groups. The result is o itself if shard k has all ids.
func (p *Split) GroupObservations(o *batch.Observations, k int) *batch.Observations {
	if len(p.at[k]) == len(p.ids) {
		return o
	}
	return o.Pick(p.at[k])
}

// Lessons returns the part of l for shard k; l has values for each id.
func (p *Split) Lessons(l swarms.Learn, k int) swarms.Learn {
	l.Nodes, l.Values = p.IDs(k), pick(p, l.Values, len(l.Values)/len(p.ids), k)
	return l
}

// check returns an errAnswer unless the ids of an answer are the ids of shard k.
func (p *Split) check(k int, ids []uint32) error {
	if len(ids) != len(p.at[k]) {
		return fmt.Errorf("shard %d: %d rows for %d ids: %w", k, len(ids), len(p.at[k]), errAnswer)
	}
	for i, at := range p.at[k] {
		if ids[i] != p.ids[at] {
			return fmt.Errorf("shard %d: row %d is of %d, not of %d: %w", k, i, ids[i], p.ids[at], errAnswer)
		}
	}
	return nil
}

// rows merges the answers of the shards that have ids. For each answer it compares the ids and
// calls fits, and then row for each row: i is its number in the answer, and at its position in the
// list.
func rows[A any](
	p *Split, of []*A, ids func(*A) []uint32, fits func(k int, a *A) error, row func(a *A, i, at int),
) error {
	for k, positions := range p.at {
		if len(positions) == 0 {
			continue
		}
		if err := p.check(k, ids(of[k])); err != nil {
			return err
		}
		if err := fits(k, of[k]); err != nil {
			return err
		}
		for i, at := range positions {
			row(of[k], i, at)
		}
	}
	return nil
}

// widthOf returns the width of the answer of the first shard that has ids; 0 without ids.
func widthOf[A any](p *Split, of []*A, width func(*A) int) int {
	for k := range p.at {
		if p.Has(k) {
			return width(of[k])
		}
	}
	return 0
}

// sameWidth returns an errAnswer if the rows of shard k have another width than the first ones.
func sameWidth(k, has, want int, rows, values string) error {
	if has == want {
		return nil
	}
	return fmt.Errorf("shard %d: %s of %d %s, others have %d: %w", k, rows, has, values, want, errAnswer)
}

// Decisions merges the decisions of all shards into the order of the list, and so do the methods
// below. Answers of shards without ids are not read.
func (p *Split) Decisions(of []*batch.AgentDecisions) (*batch.AgentDecisions, error) {
	all := &batch.AgentDecisions{Agent: p.ids, Vote: make([]uint8, len(p.ids)), Decision: make([]uint8, len(p.ids))}
	scores := widthOf(p, of, func(d *batch.AgentDecisions) int { return len(d.Score) }) > 0
	if scores {
		all.Score = make([]float32, len(p.ids))
	}
	return all, rows(p, of, func(d *batch.AgentDecisions) []uint32 { return d.Agent },
		func(k int, d *batch.AgentDecisions) error {
			if has := len(d.Score) > 0; has != scores {
				return fmt.Errorf("shard %d: scores are %v there, and %v elsewhere: %w", k, has, scores, errAnswer)
			}
			return nil
		},
		func(d *batch.AgentDecisions, i, at int) {
			all.Vote[at], all.Decision[at] = d.Vote[i], d.Decision[i]
			if scores {
				all.Score[at] = d.Score[i]
			}
		})
}

// GroupDecisions merges the decisions of groups.
func (p *Split) GroupDecisions(of []*batch.Decisions) (*batch.Decisions, error) {
	for k, positions := range p.at {
		if len(positions) == 0 {
			continue
		}
		if err := p.check(k, of[k].Group); err != nil {
			return nil, err
		}
		if len(positions) == len(p.ids) {
			return of[k], nil
		}
	}
	d, err := batch.MergeDecisions(len(p.ids), of, p.at)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return d, nil
}

// AgentStates merges the states of agents.
func (p *Split) AgentStates(of []*batch.AgentStates) (*batch.AgentStates, error) {
	width := widthOf(p, of, func(s *batch.AgentStates) int { return s.Width })
	all := &batch.AgentStates{
		Agent: p.ids, Vote: make([]uint8, len(p.ids)), Width: width, State: make([]float32, len(p.ids)*width),
	}
	return all, rows(p, of, func(s *batch.AgentStates) []uint32 { return s.Agent },
		func(k int, s *batch.AgentStates) error { return sameWidth(k, s.Width, width, "states", "values") },
		func(s *batch.AgentStates, i, at int) {
			all.Vote[at] = s.Vote[i]
			copy(all.State[at*width:][:width], s.State[i*width:])
		})
}

// KnownNodes merges knowledge nodes. If several shards have a node, it returns the copy with the
// most updates: a client may have ended between the ticks of two shards. For equal numbers of
// updates the age is the largest one.
func (p *Split) KnownNodes(of []*batch.KnownNodes) (*batch.KnownNodes, error) {
	width := widthOf(p, of, func(s *batch.KnownNodes) int { return s.Width })
	n := len(p.ids)
	all := &batch.KnownNodes{
		Node: p.ids, Updates: make([]uint64, n), Age: make([]uint64, n), Width: width, Units: make([]float32, n*width),
	}
	return all, rows(p, of, func(s *batch.KnownNodes) []uint32 { return s.Node },
		func(k int, s *batch.KnownNodes) error { return sameWidth(k, s.Width, width, "nodes", "units") },
		func(s *batch.KnownNodes, i, at int) {
			switch updates := s.Updates[i]; {
			case updates < all.Updates[at]:
				return
			case updates == all.Updates[at]:
				all.Age[at] = max(all.Age[at], s.Age[i])
			default:
				all.Updates[at], all.Age[at] = updates, s.Age[i]
			}
			copy(all.Units[at*width:][:width], s.Units[i*width:])
		})
}

// GroupStates merges the states of groups.
func (p *Split) GroupStates(of []*batch.GroupStates) (*batch.GroupStates, error) {
	width := widthOf(p, of, func(s *batch.GroupStates) int { return s.Candidates })
	n := len(p.ids)
	all := &batch.GroupStates{
		Group: p.ids, Decision: make([]uint8, n), Round: make([]uint64, n), Candidates: width,
		Counts: make([]uint32, n*width),
	}
	return all, rows(p, of, func(s *batch.GroupStates) []uint32 { return s.Group },
		func(k int, s *batch.GroupStates) error {
			return sameWidth(k, s.Candidates, width, "groups", "candidates")
		},
		func(s *batch.GroupStates, i, at int) {
			all.Decision[at], all.Round[at] = s.Decision[i], s.Round[i]
			copy(all.Counts[at*width:][:width], s.Counts[i*width:])
		})
}

// AgentVariables merges the variables of agents.
func (p *Split) AgentVariables(of []*batch.AgentVariables) (*batch.AgentVariables, error) {
	width := widthOf(p, of, func(s *batch.AgentVariables) int { return s.Width })
	all := &batch.AgentVariables{Agent: p.ids, Width: width, Embedding: make([]float32, len(p.ids)*width)}
	return all, rows(p, of, func(s *batch.AgentVariables) []uint32 { return s.Agent },
		func(k int, s *batch.AgentVariables) error {
			if err := sameWidth(k, s.Width, width, "embeddings", "values"); err != nil {
				return err
			}
			return p.variables(k, &all.Vars, s.Vars)
		},
		func(s *batch.AgentVariables, i, at int) {
			copy(all.Embedding[at*width:][:width], s.Embedding[i*width:])
		})
}

// GroupVariables merges the variables of groups.
func (p *Split) GroupVariables(of []*batch.GroupVariables) (*batch.GroupVariables, error) {
	all := &batch.GroupVariables{Group: p.ids}
	return all, rows(p, of, func(s *batch.GroupVariables) []uint32 { return s.Group },
		func(k int, s *batch.GroupVariables) error { return p.variables(k, &all.Vars, s.Vars) },
		func(*batch.GroupVariables, int, int) {})
}

// variables copies the variables of shard k to the positions of its ids. The first shard determines
// the names, the widths and the types.
func (p *Split) variables(k int, to *[]batch.Variable, from []batch.Variable) error {
	if *to == nil {
		*to = make([]batch.Variable, 0, len(from))
		for _, v := range from {
			values := reflect.MakeSlice(reflect.TypeOf(v.Values), len(p.ids)*v.Width, len(p.ids)*v.Width)
			*to = append(*to, batch.Variable{Name: v.Name, Width: v.Width, Values: values.Interface()})
		}
	}
	if len(from) != len(*to) {
		return fmt.Errorf("shard %d: %d variables, others have %d: %w", k, len(from), len(*to), errAnswer)
	}
	for i, v := range from {
		into := (*to)[i]
		if v.Name != into.Name || v.Width != into.Width || reflect.TypeOf(v.Values) != reflect.TypeOf(into.Values) {
			return fmt.Errorf("shard %d: variable %s of %d %T, others have %s of %d %T: %w", k, v.Name, v.Width,
				v.Values, into.Name, into.Width, into.Values, errAnswer)
		}
		dst, src := reflect.ValueOf(into.Values), reflect.ValueOf(v.Values)
		for row, at := range p.at[k] {
			reflect.Copy(dst.Slice(at*v.Width, (at+1)*v.Width), src.Slice(row*v.Width, (row+1)*v.Width))
		}
	}
	return nil
}
