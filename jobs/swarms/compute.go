package swarms

// MaxExpression is the largest text of a Compute in bytes.
const MaxExpression = 64 << 10

// Compute asks for folds of expressions over the agents of a swarm, such as
// "mean(abs(hidden)) by group where vote == 1". It is read-only.
type Compute struct {
	Version int    `json:"v"`
	Text    string `json:"text"`
	// First and Groups choose the groups of the swarm whose agents are folded, for texts by group
	// alone: Groups of them from number First on. 0 Groups are all from First on.
	First  int `json:"first,omitempty"`
	Groups int `json:"groups,omitempty"`
}

// Computed is the answer of a shard to a Compute. Merging the results of all shards in their order
// gives the result of the swarm.
type Computed struct {
	Version int `json:"v"`
	// By is group, vote, or empty for one node of all agents.
	By string `json:"by,omitempty"`
	// First is the group of the first node for ByGroup, and 0 else.
	First int `json:"first"`
	Nodes int `json:"nodes"`
	// Outputs has one element for each output of the text.
	Outputs []ComputedOutput `json:"outputs"`
}

// ComputedOutput is the results of one output of a text, for each node.
type ComputedOutput struct {
	Name string `json:"name"`
	Fold string `json:"fold"` // sum, mean, min, max, count, any or all
	Type string `json:"type"` // of the elements: f32, bf16, i32, u32, u8 or bool
	// N and Bits have a little-endian uint64 for each node: how many elements were folded, and
	// their fold. The fold is the bits of a float64 for sum, mean, min and max of f32 and bf16, an
	// int64 for i32, and else a uint64. It is the sum for a mean, and the number of true elements
	// for count, any and all.
	N    []byte `json:"n"`
	Bits []byte `json:"bits"`
}

// MaxResults is the largest number of results of a Computed: nodes times outputs. JSON has 22 bytes
// for each.
const MaxResults = 40_000

// DecodeCompute reads the data of an EntryCompute, as DecodeTick does.
func DecodeCompute(data []byte) (c Compute, err error) {
	if err := decodeEntry("compute", data, &c, &c.Version); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// Validate checks the fields of a compute without regard to its swarm or the meaning of its text.
// The error names the field, its value and the cure.
func (c Compute) Validate() error {
	switch {
	case c.Text == "":
		return invalid("compute: the text is empty: use one such as mean(potential)")
	case len(c.Text) > MaxExpression:
		return invalid("compute: the text has %d bytes: use at most %d", len(c.Text), MaxExpression)
	case c.First < 0 || c.Groups < 0:
		return invalid("compute: first %d, groups %d: use 0 or more", c.First, c.Groups)
	}
	return nil
}

// DecodeComputed reads the data of an EntryComputed. All columns have as many elements as there are
// nodes.
func DecodeComputed(data []byte) (c Computed, err error) {
	if err := decodeEntry("computed", data, &c, &c.Version); err != nil {
		return c, err
	}
	if c.Nodes < 0 || c.Nodes > MaxResults || c.First < 0 {
		return c, invalid("computed: %d nodes from number %d on", c.Nodes, c.First)
	}
	for _, o := range c.Outputs {
		if len(o.N) != 8*c.Nodes || len(o.Bits) != 8*c.Nodes {
			return c, invalid("computed: output %.60q: %d and %d bytes for %d nodes", o.Name, len(o.N), len(o.Bits),
				c.Nodes)
		}
	}
	return c, nil
}
