package state

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// question answers an entry that does not change the state. When ctx ends, a fusion returns before
// it has read all pages. An entry that such a swarm does not answer is a *jobs.Error with the
// reason.
func (s *groupState) question(ctx context.Context, e swarms.Entry) (Answer, error) {
	switch e.Kind {
	case swarms.EntryQuery:
		return s.query(context.WithoutCancel(ctx), e.Data)
	case swarms.EntryFuse:
		return s.fuse(ctx, e.Data)
	case swarms.EntryCompute:
		return s.compute(ctx, e.Data)
	case swarms.EntryLearn:
		return Answer{}, noKnowledge("learn")
	case swarms.EntryVote:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"vote: agents of a swarm whose groups are addressed vote within an observation, and keep no vote: the "+
				"answer to each observation has its group's decision",
		)
	case swarms.EntryTick:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"tick: agents of a swarm whose groups are addressed step by observations: only swarms that are "+
				"addressed by agent tick",
		)
	}
	return Answer{}, unknownKind(e)
}

// query answers the variables of agents or groups, in the order of the question. It reads pages
// where they are: it moves none to the device and marks none as used. A page that does not exist
// reads as zeros.
func (s *groupState) query(ctx context.Context, data []byte) (Answer, error) {
	q, err := swarms.DecodeQuery(data)
	if err != nil {
		return Answer{}, err
	}
	if q.Knowledge {
		return Answer{}, noKnowledge("query")
	}
	_, width := s.bound.Embedding()
	what, ids, size, row := "agent", q.Agents, s.layout.Agents, 4+4*width
	if len(q.Groups) > 0 {
		what, ids, size, row = "group", q.Groups, 1, 4
	}
	groups := len(q.Groups) > 0
	for _, v := range s.layout.Vars {
		if v.Group == groups {
			row += v.Width * answerBytes(v.Elem)
		}
	}
	if most := max(1, swarms.MaxState/row); len(ids) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d %ss: ask for at most %d of this swarm at a time", len(ids), what, most,
		)
	}
	if _, err := s.has.owns(ids, size, what); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: %s %v", what, err)
	}
	own := s.has.local(nil, ids, size)
	var found interface{ Encode() ([]byte, error) }
	if groups {
		var of *batch.GroupVariables
		if of, err = s.groupVariables(ctx, own); err == nil {
			of.Group, found = ids, of
		}
	} else {
		var of *batch.AgentVariables
		if of, err = s.agentVariables(ctx, own); err == nil {
			of.Agent, found = ids, of
		}
	}
	if err != nil {
		return Answer{}, err
	}
	data, err = found.Encode()
	return Answer{Kind: swarms.EntryState, Data: data}, err
}

// answerBytes returns the bytes of an element in an answer, which has bf16 as float32. It is for
// the bound of an answer before the answer is made.
func answerBytes(e kernels.Elem) int {
	if e == kernels.BF16 {
		return 4
	}
	return e.Bytes()
}

// agentVariables reads the variables of agents of the shard. The embedding of an agent is copied
// from its variables, in the order of cells.Bound.Embedding.
func (s *groupState) agentVariables(ctx context.Context, ids []uint32) (*batch.AgentVariables, error) {
	vars, place, err := s.variables(ctx, ids, false)
	if err != nil {
		return nil, err
	}
	of, width := s.bound.Embedding()
	out := &batch.AgentVariables{Agent: ids, Vars: vars, Width: width, Embedding: make([]float32, 0, len(ids)*width)}
	for i := range ids {
		for _, v := range of {
			from := vars[place[v]]
			out.Embedding = append(out.Embedding, from.Values.([]float32)[i*from.Width:][:from.Width]...)
		}
	}
	return out, nil
}

// groupVariables reads the variables of groups of the shard. ids are valid, and the result shares
// their memory.
func (s *groupState) groupVariables(ctx context.Context, ids []uint32) (*batch.GroupVariables, error) {
	vars, _, err := s.variables(ctx, ids, true)
	return &batch.GroupVariables{Group: ids, Vars: vars}, err
}

// variables reads all variables of agents, or of groups, with one call of the pager. place maps an
// index of the layout to one of vars.
func (s *groupState) variables(
	ctx context.Context, ids []uint32, groups bool,
) (vars []batch.Variable, place map[int]int, err error) {
	place = map[int]int{}
	var read []*gathered
	var parts []pager.Part
	for v, of := range s.layout.Vars {
		if of.Group != groups {
			continue
		}
		g := s.gather(v, ids)
		place[v], read = len(read), append(read, g)
		parts = append(parts, g.parts...)
	}
	if err := s.memory.ReadAll(ctx, parts); err != nil {
		return nil, nil, err
	}
	for _, g := range read {
		vars = append(vars, batch.Variable{Name: g.of.Name, Width: g.of.Width, Values: g.values()})
	}
	return vars, place, nil
}

// gathered is a variable of agents, or of groups, that is being read from the pages.
type gathered struct {
	of    kernels.Var
	data  []byte // by run, element and id of the run: in the order of a page
	runs  []int  // the number of ids of each run
	parts []pager.Part
}

// gather returns the parts of pages that have a variable of ids. Consecutive ids in a page are a
// run: each of its elements is a part, or the whole run where the elements of an id stand together.
// ids are valid and may repeat. The parts write into g.data, so they are read before values is
// called.
func (s *groupState) gather(v int, ids []uint32) *gathered {
	of, per := s.layout.Vars[v], s.layout.Slots
	if !of.Group {
		per *= s.layout.Agents
	}
	size := of.Elem.Bytes()
	g := &gathered{of: of, data: make([]byte, len(ids)*of.Width*size)}
	for first, n := 0, 0; first < len(ids); first += n {
		page, at := int(ids[first])/per, int(ids[first])%per
		for n = 1; first+n < len(ids) && ids[first+n] == ids[first]+uint32(n) && at+n < per; n++ {
		}
		to := g.data[first*of.Width*size:]
		if of.Together {
			g.parts = append(g.parts, pager.Part{
				Page: uint64(page), Off: int64(s.layout.Offsets[v]) + int64(at*of.Width)*int64(size),
				Bytes: to[:n*of.Width*size],
			})
			continue
		}
		for c := range of.Width {
			g.parts = append(g.parts, pager.Part{
				Page: uint64(page), Off: int64(s.layout.Offsets[v]) + int64(c*per+at)*int64(size),
				Bytes: to[c*n*size:][:n*size],
			})
		}
		g.runs = append(g.runs, n)
	}
	return g
}

// values returns the values of the variable as a slice of its type, bf16 as float32; the elements
// of an id follow one another.
func (g *gathered) values() any {
	switch g.of.Elem {
	case kernels.U64:
		return inRows(device.Of[uint64](g.data), g)
	case kernels.I64:
		return inRows(device.Of[int64](g.data), g)
	case kernels.U32:
		return inRows(device.Of[uint32](g.data), g)
	case kernels.U8:
		return inRows(g.data, g)
	case kernels.BF16:
		short := inRows(device.Of[uint16](g.data), g)
		values := make([]float32, len(short))
		for i, v := range short {
			values[i] = device.FromBF16(v)
		}
		return values
	}
	return inRows(device.Of[float32](g.data), g)
}

// inRows brings the elements of each id together: in a run they are by element.
func inRows[T any](from []T, g *gathered) []T {
	width := g.of.Width
	if width == 1 || g.of.Together {
		return from
	}
	to := make([]T, len(from))
	first := 0
	for _, n := range g.runs {
		for c := range width {
			for i := range n {
				to[first+i*width+c] = from[first+c*n+i]
			}
		}
		first += n * width
	}
	return to
}

func (s *groupState) compute(ctx context.Context, data []byte) (Answer, error) {
	if err := s.stream.Sync(context.WithoutCancel(ctx)); err != nil {
		return Answer{}, gpubatch.Mark(err)
	}
	if s.computer == nil {
		s.computer = newComputer(computedShard{
			Device: s.dev, Memory: s.memory, Layout: s.layout, Vars: raster.Vars(s.layout),
			First: s.has.First, Groups: s.groups, All: s.has.All,
		})
	}
	return computed(ctx, s.computer, data)
}
