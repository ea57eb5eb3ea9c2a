package batch

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
)

// Variable is a state variable of all rows of a batch: Width values a row, row by row.
type Variable struct {
	Name  string
	Width int
	// Values is a []float32, []uint32, []uint64, []int64 or []uint8, by what the cell keeps; of
	// bf16 it is a []float32.
	Values any
}

// AgentVariables are what agents of a swarm whose groups are addressed are, in the order in which
// they were asked for.
type AgentVariables struct {
	Agent []uint32
	// Embedding is Width values a row, row by row. A cell that has none has a Width of 0.
	Embedding []float32
	Width     int
	Vars      []Variable
}

// GroupVariables are what the groups of such a swarm are, in the order in which they were asked
// for: the round among Vars.
type GroupVariables struct {
	Group []uint32
	Vars  []Variable
}

const (
	colEmbedding = "embedding"
	// colVariable begins the names of the columns of variables, so they differ from all other
	// columns.
	colVariable = "state."
)

// layout lists the fixed columns. The embedding, which only some batches have, and the variables
// follow.
func (a *AgentVariables) layout() layout {
	return layout{"agent-variables", len(a.Agent), []column{scalars(colAgent, &a.Agent)}}
}

func (a *AgentVariables) embedding() column { return vectors(colEmbedding, &a.Embedding, &a.Width) }

// Encode writes the batch as an Arrow IPC stream.
func (a *AgentVariables) Encode() ([]byte, error) {
	l := a.layout()
	if len(a.Embedding) != len(a.Agent)*a.Width {
		return nil, fmt.Errorf("encode variables of agents: %d values for %d embeddings of %d", len(a.Embedding),
			len(a.Agent), a.Width)
	}
	if a.Width > 0 {
		l.columns = append(l.columns, a.embedding())
	}
	return l.encodeVariables(a.Vars)
}

// DecodeAgentVariables reads a batch, as DecodeAgentObservations does.
func DecodeAgentVariables(data []byte) (*AgentVariables, error) {
	a := &AgentVariables{}
	return a, a.layout().decode(data, func(r *record) {
		if r.get(colEmbedding) != nil {
			a.embedding().read(r)
		}
		a.Vars = variables(r)
	})
}

func (g *GroupVariables) layout() layout {
	return layout{"group-variables", len(g.Group), []column{scalars(colGroup, &g.Group)}}
}

// Encode writes the batch as an Arrow IPC stream.
func (g *GroupVariables) Encode() ([]byte, error) { return g.layout().encodeVariables(g.Vars) }

// DecodeGroupVariables reads a batch, as DecodeAgentObservations does.
func DecodeGroupVariables(data []byte) (*GroupVariables, error) {
	g := &GroupVariables{}
	return g, g.layout().decode(data, func(r *record) { g.Vars = variables(r) })
}

// encodeVariables writes the columns of l and, behind them, the columns of variables.
func (l layout) encodeVariables(vars []Variable) ([]byte, error) {
	for _, v := range vars {
		name := colVariable + v.Name
		var c column
		switch values := v.Values.(type) {
		case []float32:
			c = vectors(name, &values, &v.Width)
		case []uint32:
			c = vectors(name, &values, &v.Width)
		case []uint64:
			c = vectors(name, &values, &v.Width)
		case []int64:
			c = vectors(name, &values, &v.Width)
		case []uint8:
			c = vectors(name, &values, &v.Width)
		default:
			return nil, fmt.Errorf("encode %s: variable %q is a %T", l.kind, v.Name, v.Values)
		}
		l.columns = append(l.columns, c)
	}
	return l.encode()
}

// variables views the columns of variables without copying, in their order.
func variables(r *record) (all []Variable) {
	for i := range int(r.NumCols()) {
		column := r.ColumnName(i)
		name, is := strings.CutPrefix(column, colVariable)
		if !is {
			continue
		}
		v := Variable{Name: name}
		var elem any
		if a, ok := r.get(column).(*array.FixedSizeList); ok {
			elem = elements(a.ListValues())
		}
		switch elem.(type) {
		case []float32:
			v.Values, v.Width = listed[float32](r, column)
		case []uint32:
			v.Values, v.Width = listed[uint32](r, column)
		case []uint64:
			v.Values, v.Width = listed[uint64](r, column)
		case []int64:
			v.Values, v.Width = listed[int64](r, column)
		case []uint8:
			v.Values, v.Width = listed[uint8](r, column)
		default:
			r.fail("column %q is %v, want lists of float32, uint32, uint64, int64 or uint8", column, r.typeOf(column))
			return nil
		}
		all = append(all, v)
	}
	return all
}

// listed is lists whose values have no type yet.
func listed[T number](r *record, name string) (any, int) {
	values, width := lists[T](r, name)
	return values, width
}
