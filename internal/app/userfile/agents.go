package userfile

import (
	"math"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// ReadAgents reads a file of observations of agents: the column agent, with the id, and the
// features of the specification. It reads and checks the whole file. Ids may repeat, and are in the
// order of the rows. Errors of the rows are of the input.
func ReadAgents(path string, spec *swarm.Spec) (*batch.AgentObservations, error) {
	o := &batch.AgentObservations{Width: len(spec.Features)}
	return o, eachRow(path, spec, observationColumns(spec), func(r row) error {
		id, err := r.id(swarm.AgentColumn, spec.Agents, "an agent")
		if err != nil {
			return err
		}
		o.Agent = append(o.Agent, id)
		for _, name := range spec.Features {
			// Features are float32 on the device: a number beyond its range is refused here.
			v, err := r.number(
				name,
				32,
				"a number",
				func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) },
			)
			if err != nil {
				return err
			}
			o.Features = append(o.Features, float32(v))
		}
		return nil
	})
}
