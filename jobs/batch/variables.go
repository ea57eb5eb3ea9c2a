package batch

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
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
	// colVariable begins the names of the columns of variables, which so are no other column's.
	colVariable = "state."
)

// Encode writes the batch as an Arrow IPC stream.
func (a *AgentVariables) Encode() ([]byte, error) {
	n := len(a.Agent)
	if len(a.Embedding) != n*a.Width {
		return nil, fmt.Errorf("encode variables of agents: %d values for %d embeddings of %d", len(a.Embedding), n,
			a.Width)
	}
	fields, columns := []arrow.Field{{Name: colAgent, Type: arrow.PrimitiveTypes.Uint32}},
		[]arrow.ArrayData{fixed(arrow.PrimitiveTypes.Uint32, a.Agent)}
	if a.Width > 0 {
		t := arrow.FixedSizeListOfNonNullable(int32(a.Width), arrow.PrimitiveTypes.Float32)
		fields, columns = append(fields, arrow.Field{Name: colEmbedding, Type: t}),
			append(columns, list(t, arrow.PrimitiveTypes.Float32, n, a.Embedding))
	}
	return encodeVariables("agent-variables", n, fields, columns, a.Vars)
}

// DecodeAgentVariables reads a batch, as DecodeAgentObservations does.
func DecodeAgentVariables(data []byte) (*AgentVariables, error) {
	a := &AgentVariables{}
	return a, decode("agent-variables", data, func(r *record) {
		a.Agent = column[uint32](r, colAgent)
		if r.get(colEmbedding) != nil {
			a.Embedding, a.Width = lists[float32](r, colEmbedding)
		}
		a.Vars = variables(r)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (g *GroupVariables) Encode() ([]byte, error) {
	return encodeVariables("group-variables", len(g.Group),
		[]arrow.Field{{Name: colGroup, Type: arrow.PrimitiveTypes.Uint32}},
		[]arrow.ArrayData{fixed(arrow.PrimitiveTypes.Uint32, g.Group)}, g.Vars)
}

// DecodeGroupVariables reads a batch, as DecodeAgentObservations does.
func DecodeGroupVariables(data []byte) (*GroupVariables, error) {
	g := &GroupVariables{}
	return g, decode("group-variables", data, func(r *record) {
		g.Group, g.Vars = column[uint32](r, colGroup), variables(r)
	})
}

// encodeVariables writes columns and, behind them, those of variables of n rows.
func encodeVariables(kind string, n int, fields []arrow.Field, columns []arrow.ArrayData, vars []Variable) ([]byte,
	error,
) {
	for _, v := range vars {
		var elem arrow.DataType
		var data func(t arrow.DataType) arrow.ArrayData
		have := 0
		switch values := v.Values.(type) {
		case []float32:
			elem, have = arrow.PrimitiveTypes.Float32, len(values)
			data = func(t arrow.DataType) arrow.ArrayData { return list(t, elem, n, values) }
		case []uint32:
			elem, have = arrow.PrimitiveTypes.Uint32, len(values)
			data = func(t arrow.DataType) arrow.ArrayData { return list(t, elem, n, values) }
		case []uint64:
			elem, have = arrow.PrimitiveTypes.Uint64, len(values)
			data = func(t arrow.DataType) arrow.ArrayData { return list(t, elem, n, values) }
		case []int64:
			elem, have = arrow.PrimitiveTypes.Int64, len(values)
			data = func(t arrow.DataType) arrow.ArrayData { return list(t, elem, n, values) }
		case []uint8:
			elem, have = arrow.PrimitiveTypes.Uint8, len(values)
			data = func(t arrow.DataType) arrow.ArrayData { return list(t, elem, n, values) }
		default:
			return nil, fmt.Errorf("encode %s: variable %q is a %T", kind, v.Name, v.Values)
		}
		if v.Width < 1 || have != n*v.Width {
			return nil, fmt.Errorf("encode %s: variable %q has %d values for %d rows of %d", kind, v.Name, have, n,
				v.Width)
		}
		t := arrow.FixedSizeListOfNonNullable(int32(v.Width), elem)
		fields, columns = append(fields, arrow.Field{Name: colVariable + v.Name, Type: t}), append(columns, data(t))
	}
	return encode(schema(kind, fields), n, columns)
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
		a, _ := r.get(column).(*array.FixedSizeList)
		var elem arrow.Array
		if a != nil {
			elem = a.ListValues()
		}
		switch elem.(type) {
		case *array.Float32:
			v.Values, v.Width = listed[float32](r, column)
		case *array.Uint32:
			v.Values, v.Width = listed[uint32](r, column)
		case *array.Uint64:
			v.Values, v.Width = listed[uint64](r, column)
		case *array.Int64:
			v.Values, v.Width = listed[int64](r, column)
		case *array.Uint8:
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
