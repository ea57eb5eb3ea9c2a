package programs

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Lessons is the body of a request that teaches knowledge nodes.
type Lessons struct {
	Nodes []uint32 `json:"nodes"` // numbers, each once
	// Values are the values of all nodes in their order, one for each unit, from -1 to 1.
	Values []float32 `json:"values"`
	// Replace has the values replace the nodes, in place of a merge.
	Replace bool `json:"replace,omitempty"`
}

// LearnedAll is the answer to Lessons.
type LearnedAll struct {
	Nodes int `json:"nodes"` // that have learned
}

func learn(ctx context.Context, sw *swarmclient.Swarm, in Lessons) (any, error) {
	l := swarms.Learn{Version: jobs.Version, Nodes: in.Nodes, Values: in.Values, Replace: in.Replace}
	if _, err := sw.Learn(ctx, l); err != nil {
		return nil, err
	}
	return LearnedAll{Nodes: len(in.Nodes)}, nil
}

// knowledge returns what fills the answer to a question for knowledge nodes: node, updates, age and
// units.
func knowledge(ctx context.Context, sw *swarmclient.Swarm, nodes []uint32) (any, error) {
	k, err := sw.Knowledge(ctx, nodes)
	return archive(func(z *numpy.ArchiveWriter) {
		z.Array("node", k.Node, 0)
		z.Array("updates", k.Updates, 0)
		z.Array("age", k.Age, 0)
		z.Array("units", k.Units, k.Width)
	}), err
}
