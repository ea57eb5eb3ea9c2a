package batch

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// NoVote in place of a candidate: an agent that has never stepped, or a group that has not met its
// rule.
const NoVote = 255

// AgentObservations is a batch of observations for agents that are addressed one by one. An agent
// may have several, which take effect in their order. Slices that come from a Decode function share
// memory with the message and must not be changed.
type AgentObservations struct {
	Agent []uint32
	// Features are the agents' inputs: Width values a row, row by row.
	Features []float32
	Width    int
}

// AgentDecisions answer AgentObservations, one a row, in their order.
type AgentDecisions struct {
	Agent    []uint32
	Vote     []uint8 // the candidate that the agent votes for after its step
	Decision []uint8 // what its group decides then, or NoVote
}

// AgentStates are what agents are, in the order in which they were asked for.
type AgentStates struct {
	Agent []uint32
	Vote  []uint8 // the candidate, or NoVote
	// State is what the cell keeps of an agent between its steps, Width values a row: the units of
	// gru; potential and trace of leaky.
	State []float32
	Width int
}

// GroupStates are what groups are, in the order in which they were asked for.
type GroupStates struct {
	Group    []uint32
	Decision []uint8  // by the votes of its agents now, or NoVote
	Round    []uint64 // how often it has decided
	// Counts are the agents that vote for each candidate now, Candidates values a row. Agents that
	// have never stepped are in none.
	Counts     []uint32
	Candidates int
}

// FusedNodes are what agents know together, in the order of the nodes.
type FusedNodes struct {
	Node  []uint32
	Count []uint64 // the agents that are in its mean: of its members, those that have stepped
	// Mean is that of their embeddings, Width values a row, and 0 of nobody. An embedding is the
	// units of gru, the potential of leaky.
	Mean  []float32
	Width int
}

// FusedSums are FusedNodes with the sums of embeddings in place of their means: what shards know
// merges by these.
type FusedSums struct {
	Node  []uint32
	Count []uint64
	Sum   []float32
	Width int
}

const (
	colAgent = "agent"
	colVote  = "vote"
	colState = "state"
	colNode  = "node"
	colCount = "count"
	colMean  = "mean"
	colSum   = "sum"
)

// Encode writes the batch as an Arrow IPC stream.
func (o *AgentObservations) Encode() ([]byte, error) {
	n := len(o.Agent)
	if o.Width < 1 || len(o.Features) != n*o.Width {
		return nil, fmt.Errorf("encode observations of agents: %d features for %d rows of width %d", len(o.Features), n,
			o.Width)
	}
	s, t := rows(arrow.PrimitiveTypes.Float32, o.Width, "agent-observations", colFeatures,
		arrow.Field{Name: colAgent, Type: arrow.PrimitiveTypes.Uint32})
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, o.Agent),
		list(t, arrow.PrimitiveTypes.Float32, n, o.Features),
	})
}

// DecodeAgentObservations reads a batch that Pack or Encode wrote. A message that is not one,
// whatever is in it, gives a jobs.Error of class jobs.CodeInvalid or jobs.CodeVersion.
func DecodeAgentObservations(data []byte) (*AgentObservations, error) {
	o := &AgentObservations{}
	if isPacked(data) {
		return o, o.unpack(data)
	}
	return o, decode("agent-observations", data, func(r *record) {
		o.Agent = column[uint32](r, colAgent)
		o.Features, o.Width = lists[float32](r, colFeatures)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (d *AgentDecisions) Encode() ([]byte, error) {
	return encode(schema("agent-decisions", []arrow.Field{
		{Name: colAgent, Type: arrow.PrimitiveTypes.Uint32},
		{Name: colVote, Type: arrow.PrimitiveTypes.Uint8},
		{Name: colDecision, Type: arrow.PrimitiveTypes.Uint8},
	}), len(d.Agent), []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, d.Agent),
		fixed(arrow.PrimitiveTypes.Uint8, d.Vote), fixed(arrow.PrimitiveTypes.Uint8, d.Decision),
	})
}

// DecodeAgentDecisions reads a batch, as DecodeAgentObservations does.
func DecodeAgentDecisions(data []byte) (*AgentDecisions, error) {
	d := &AgentDecisions{}
	return d, decode("agent-decisions", data, func(r *record) {
		d.Agent, d.Vote, d.Decision = column[uint32](r, colAgent), column[uint8](r, colVote),
			column[uint8](r, colDecision)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (a *AgentStates) Encode() ([]byte, error) {
	n := len(a.Agent)
	if a.Width < 1 || len(a.State) != n*a.Width {
		return nil, fmt.Errorf("encode states of agents: %d values for %d rows of width %d", len(a.State), n, a.Width)
	}
	s, t := rows(arrow.PrimitiveTypes.Float32, a.Width, "agent-states", colState,
		arrow.Field{Name: colAgent, Type: arrow.PrimitiveTypes.Uint32},
		arrow.Field{Name: colVote, Type: arrow.PrimitiveTypes.Uint8})
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, a.Agent), fixed(arrow.PrimitiveTypes.Uint8, a.Vote),
		list(t, arrow.PrimitiveTypes.Float32, n, a.State),
	})
}

// DecodeAgentStates reads a batch, as DecodeAgentObservations does.
func DecodeAgentStates(data []byte) (*AgentStates, error) {
	a := &AgentStates{}
	return a, decode("agent-states", data, func(r *record) {
		a.Agent, a.Vote = column[uint32](r, colAgent), column[uint8](r, colVote)
		a.State, a.Width = lists[float32](r, colState)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (g *GroupStates) Encode() ([]byte, error) {
	n := len(g.Group)
	if g.Candidates < 1 || len(g.Counts) != n*g.Candidates {
		return nil, fmt.Errorf("encode states of groups: %d counts for %d rows of %d candidates", len(g.Counts), n,
			g.Candidates)
	}
	s, t := rows(arrow.PrimitiveTypes.Uint32, g.Candidates, "group-states", colCounts,
		arrow.Field{Name: colGroup, Type: arrow.PrimitiveTypes.Uint32},
		arrow.Field{Name: colDecision, Type: arrow.PrimitiveTypes.Uint8},
		arrow.Field{Name: colRound, Type: arrow.PrimitiveTypes.Uint64})
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, g.Group), fixed(arrow.PrimitiveTypes.Uint8, g.Decision),
		fixed(arrow.PrimitiveTypes.Uint64, g.Round),
		list(t, arrow.PrimitiveTypes.Uint32, n, g.Counts),
	})
}

// DecodeGroupStates reads a batch, as DecodeAgentObservations does.
func DecodeGroupStates(data []byte) (*GroupStates, error) {
	g := &GroupStates{}
	return g, decode("group-states", data, func(r *record) {
		g.Group, g.Decision, g.Round = column[uint32](r, colGroup), column[uint8](r, colDecision),
			column[uint64](r, colRound)
		g.Counts, g.Candidates = lists[uint32](r, colCounts)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (f *FusedNodes) Encode() ([]byte, error) {
	return encodeFused("fused-nodes", colMean, f.Node, f.Count, f.Mean, f.Width)
}

// DecodeFusedNodes reads a batch, as DecodeAgentObservations does.
func DecodeFusedNodes(data []byte) (*FusedNodes, error) {
	f := &FusedNodes{}
	return f, decode("fused-nodes", data, func(r *record) {
		f.Node, f.Count = column[uint32](r, colNode), column[uint64](r, colCount)
		f.Mean, f.Width = lists[float32](r, colMean)
	})
}

// Encode writes the batch as an Arrow IPC stream.
func (f *FusedSums) Encode() ([]byte, error) {
	return encodeFused("fused-sums", colSum, f.Node, f.Count, f.Sum, f.Width)
}

// DecodeFusedSums reads a batch, as DecodeAgentObservations does.
func DecodeFusedSums(data []byte) (*FusedSums, error) {
	f := &FusedSums{}
	return f, decode("fused-sums", data, func(r *record) {
		f.Node, f.Count = column[uint32](r, colNode), column[uint64](r, colCount)
		f.Sum, f.Width = lists[float32](r, colSum)
	})
}

// encodeFused writes nodes with a column of width values each.
func encodeFused(kind, name string, node []uint32, count []uint64, values []float32, width int) ([]byte, error) {
	n := len(node)
	if width < 1 || len(values) != n*width {
		return nil, fmt.Errorf("encode %s: %d values for %d rows of width %d", kind, len(values), n, width)
	}
	s, t := rows(arrow.PrimitiveTypes.Float32, width, kind, name,
		arrow.Field{Name: colNode, Type: arrow.PrimitiveTypes.Uint32},
		arrow.Field{Name: colCount, Type: arrow.PrimitiveTypes.Uint64})
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, node), fixed(arrow.PrimitiveTypes.Uint64, count),
		list(t, arrow.PrimitiveTypes.Float32, n, values),
	})
}

// rows is a schema of fields and, behind them, a column of lists of width elements, whose type it
// returns too.
func rows(elem arrow.DataType, width int, kind, name string, fields ...arrow.Field) (*arrow.Schema, arrow.DataType) {
	t := arrow.FixedSizeListOfNonNullable(int32(width), elem)
	return schema(kind, append(fields, arrow.Field{Name: name, Type: t})), t
}
