package batch

import "math"

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
	// Item is the row of the readout whose score a row asks for, or -1; nil: no row asks.
	Item []int32
}

// AgentDecisions answer AgentObservations, one a row, in their order.
type AgentDecisions struct {
	Agent    []uint32
	Vote     []uint8 // the candidate that the agent votes for after its step
	Decision []uint8 // what its group decides then, or NoVote
	// Score is the probability that the agent gives the item of a row, from 0 to 1, or NaN of a row
	// that asks for none; nil where no row has asked.
	Score []float32
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
	Count []uint64 // agents in the mean: the members that have stepped
	// Mean is the mean of their embeddings, Width values a row; 0 without agents. An embedding is
	// the units of gru, the potential of leaky.
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

// NeverUpdated is the age of a knowledge node that was never updated.
const NeverUpdated = math.MaxUint64

// KnownNodes are the knowledge nodes that agents of a swarm hear, in the order in which they were
// asked for.
type KnownNodes struct {
	Node    []uint32
	Updates []uint64
	// Age is the largest number of steps that a group of the node has made since the last update,
	// or NeverUpdated.
	Age []uint64
	// Units are the values of the nodes, Width a row.
	Units []float32
	Width int
}

const (
	colAgent   = "agent"
	colVote    = "vote"
	colState   = "state"
	colNode    = "node"
	colCount   = "count"
	colMean    = "mean"
	colSum     = "sum"
	colUpdates = "updates"
	colAge     = "age"
	colUnits   = "units"
	colItem    = "item"
)

func (o *AgentObservations) layout() layout {
	return layout{"agent-observations", len(o.Agent), []column{
		scalars(colAgent, &o.Agent), vectors(colFeatures, &o.Features, &o.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (o *AgentObservations) Encode() ([]byte, error) {
	l := o.layout()
	if o.Item != nil {
		l.columns = append(l.columns, scalars(colItem, &o.Item))
	}
	return l.encode()
}

// DecodeAgentObservations reads a batch that Pack or Encode wrote. A message that is not one,
// whatever is in it, gives a jobs.Error of class jobs.CodeInvalid or jobs.CodeVersion.
func DecodeAgentObservations(data []byte) (*AgentObservations, error) {
	o := &AgentObservations{}
	if isPacked(data) {
		return o, o.unpack(data)
	}
	return o, o.layout().decode(data, func(r *record) {
		if r.get(colItem) != nil {
			o.Item = numbers[int32](r, colItem)
		}
	})
}

func (d *AgentDecisions) layout() layout {
	return layout{"agent-decisions", len(d.Agent), []column{
		scalars(colAgent, &d.Agent), scalars(colVote, &d.Vote), scalars(colDecision, &d.Decision),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (d *AgentDecisions) Encode() ([]byte, error) {
	l := d.layout()
	if d.Score != nil {
		l.columns = append(l.columns, scalars(colScore, &d.Score))
	}
	return l.encode()
}

// DecodeAgentDecisions reads a batch, as DecodeAgentObservations does.
func DecodeAgentDecisions(data []byte) (*AgentDecisions, error) {
	d := &AgentDecisions{}
	return d, d.layout().decode(data, func(r *record) {
		if r.get(colScore) != nil {
			d.Score = numbers[float32](r, colScore)
		}
	})
}

func (a *AgentStates) layout() layout {
	return layout{"agent-states", len(a.Agent), []column{
		scalars(colAgent, &a.Agent), scalars(colVote, &a.Vote), vectors(colState, &a.State, &a.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (a *AgentStates) Encode() ([]byte, error) { return a.layout().encode() }

// DecodeAgentStates reads a batch, as DecodeAgentObservations does.
func DecodeAgentStates(data []byte) (*AgentStates, error) {
	a := &AgentStates{}
	return a, a.layout().decode(data)
}

func (g *GroupStates) layout() layout {
	return layout{"group-states", len(g.Group), []column{
		scalars(colGroup, &g.Group), scalars(colDecision, &g.Decision), scalars(colRound, &g.Round),
		vectors(colCounts, &g.Counts, &g.Candidates),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (g *GroupStates) Encode() ([]byte, error) { return g.layout().encode() }

// DecodeGroupStates reads a batch, as DecodeAgentObservations does.
func DecodeGroupStates(data []byte) (*GroupStates, error) {
	g := &GroupStates{}
	return g, g.layout().decode(data)
}

func (f *FusedNodes) layout() layout {
	return layout{"fused-nodes", len(f.Node), []column{
		scalars(colNode, &f.Node), scalars(colCount, &f.Count), vectors(colMean, &f.Mean, &f.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (f *FusedNodes) Encode() ([]byte, error) { return f.layout().encode() }

// DecodeFusedNodes reads a batch, as DecodeAgentObservations does.
func DecodeFusedNodes(data []byte) (*FusedNodes, error) {
	f := &FusedNodes{}
	return f, f.layout().decode(data)
}

func (f *FusedSums) layout() layout {
	return layout{"fused-sums", len(f.Node), []column{
		scalars(colNode, &f.Node), scalars(colCount, &f.Count), vectors(colSum, &f.Sum, &f.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (f *FusedSums) Encode() ([]byte, error) { return f.layout().encode() }

// DecodeFusedSums reads a batch, as DecodeAgentObservations does.
func DecodeFusedSums(data []byte) (*FusedSums, error) {
	f := &FusedSums{}
	return f, f.layout().decode(data)
}

func (k *KnownNodes) layout() layout {
	return layout{"known-nodes", len(k.Node), []column{
		scalars(colNode, &k.Node), scalars(colUpdates, &k.Updates), scalars(colAge, &k.Age),
		vectors(colUnits, &k.Units, &k.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (k *KnownNodes) Encode() ([]byte, error) { return k.layout().encode() }

// DecodeKnownNodes reads a batch, as DecodeAgentObservations does.
func DecodeKnownNodes(data []byte) (*KnownNodes, error) {
	k := &KnownNodes{}
	return k, k.layout().decode(data)
}
