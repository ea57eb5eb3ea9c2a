package partition

import (
	"fmt"
	"reflect"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// GroupObservations returns the rows of shard k of observations with one row for each id of the
// list. The result is o itself if it has all rows.
func (p *Split) GroupObservations(o *batch.Observations, k int) *batch.Observations {
	if len(p.places[k]) == len(p.ids) {
		return o
	}
	return o.Pick(p.places[k])
}

// GroupDecisions merges the decisions of all shards into the order of the list. It does not read the
// decisions of a shard without ids.
func (p *Split) GroupDecisions(of []*batch.Decisions) (*batch.Decisions, error) {
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Group); err != nil {
			return nil, err
		}
		if len(places) == len(p.ids) {
			return of[k], nil
		}
	}
	d, err := batch.MergeDecisions(len(p.ids), of, p.places)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return d, nil
}

// AgentVariables merges the variables of agents of all shards, as GroupDecisions does.
func (p *Split) AgentVariables(of []*batch.AgentVariables) (*batch.AgentVariables, error) {
	all := &batch.AgentVariables{Agent: p.ids}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Agent); err != nil {
			return nil, err
		}
		if all.Vars == nil {
			all.Width, all.Embedding = of[k].Width, make([]float32, len(p.ids)*of[k].Width)
		}
		if of[k].Width != all.Width {
			return nil, fmt.Errorf("shard %d: embeddings of %d values, others have %d: %w", k, of[k].Width, all.Width,
				ErrAnswer)
		}
		for i, at := range places {
			copy(all.Embedding[at*all.Width:][:all.Width], of[k].Embedding[i*all.Width:])
		}
		if err := p.variables(k, &all.Vars, of[k].Vars); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// GroupVariables merges the variables of groups of all shards, as GroupDecisions does.
func (p *Split) GroupVariables(of []*batch.GroupVariables) (*batch.GroupVariables, error) {
	all := &batch.GroupVariables{Group: p.ids}
	for k, places := range p.places {
		if len(places) == 0 {
			continue
		}
		if err := p.check(k, of[k].Group); err != nil {
			return nil, err
		}
		if err := p.variables(k, &all.Vars, of[k].Vars); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// variables copies the variables of shard k to the places of its ids. The first shard determines
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
		return fmt.Errorf("shard %d: %d variables, others have %d: %w", k, len(from), len(*to), ErrAnswer)
	}
	for i, v := range from {
		into := (*to)[i]
		if v.Name != into.Name || v.Width != into.Width || reflect.TypeOf(v.Values) != reflect.TypeOf(into.Values) {
			return fmt.Errorf("shard %d: variable %s of %d %T, others have %s of %d %T: %w", k, v.Name, v.Width,
				v.Values, into.Name, into.Width, into.Values, ErrAnswer)
		}
		dst, src := reflect.ValueOf(into.Values), reflect.ValueOf(v.Values)
		for row, at := range p.places[k] {
			reflect.Copy(dst.Slice(at*v.Width, (at+1)*v.Width), src.Slice(row*v.Width, (row+1)*v.Width))
		}
	}
	return nil
}
