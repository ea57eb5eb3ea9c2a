package programs

import (
	"context"
	"net/http"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Lessons is the body of a request that teaches knowledge nodes.
type Lessons struct {
	Nodes []uint32 `json:"nodes"` // numbers, each once
	// Values are those of all nodes in their order, as many for each as it has units, from -1 to 1.
	Values []float32 `json:"values"`
	// Replace has the values replace the nodes, in place of a merge.
	Replace bool `json:"replace,omitempty"`
}

// LearnedAll is the answer to Lessons.
type LearnedAll struct {
	Nodes int `json:"nodes"` // that have learned
}

// learn merges values into knowledge nodes.
func (s *Server) learn(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	var in Lessons
	if err := decode(r, &in); err != nil {
		return err
	}
	sw, err := s.client.Open(ctx, r.PathValue("name"))
	if err != nil {
		return err
	}
	l := swarms.Learn{Version: jobs.Version, Nodes: in.Nodes, Values: in.Values, Replace: in.Replace}
	if _, err := sw.Learn(ctx, l); err != nil {
		return err
	}
	return answer(w, LearnedAll{Nodes: len(in.Nodes)})
}

// knowledge returns what fills the answer to a question for knowledge nodes: node, updates, age and units.
func knowledge(ctx context.Context, sw *swarmclient.Swarm, nodes []uint32) (func(*numpy.ArchiveWriter), error) {
	k, err := sw.Knowledge(ctx, nodes)
	return func(z *numpy.ArchiveWriter) {
		z.Array("node", k.Node, 0)
		z.Array("updates", k.Updates, 0)
		z.Array("age", k.Age, 0)
		z.Array("units", k.Units, k.Width)
	}, err
}
