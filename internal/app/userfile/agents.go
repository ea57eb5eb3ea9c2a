package userfile

import (
	"fmt"
	"math"
	"strconv"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// ReadAgents reads a file of observations of agents: the column agent, with the id, the features of
// the specification and, for a swarm with items, the column item if the file has one. It is empty
// in rows that ask for no score. ReadAgents reads and checks the whole file. Ids may repeat, and
// are in the order of the rows. Errors of the rows are of the input.
func ReadAgents(path string, spec *swarm.Spec) (*batch.AgentObservations, error) {
	o, asks := &batch.AgentObservations{Width: len(spec.Features)}, false
	// Features are float32 on the device: a number beyond its range is refused here.
	want, good := "a number", func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	if rows := spec.Cell.Embed.Rows; rows > 0 {
		want = fmt.Sprintf("the number of a row of cell.embed, 0 to %d", rows-1)
		good = func(v float64) bool { return v >= 0 && v < float64(rows) && v == math.Trunc(v) }
	}
	err := eachRow(path, spec, observationColumns(spec), func(r row) error {
		id, err := r.id(swarm.AgentColumn, spec.Agents, "an agent")
		if err != nil {
			return err
		}
		o.Agent = append(o.Agent, id)
		for _, name := range spec.Features {
			v, err := r.number(name, 32, want, good)
			if err != nil {
				return err
			}
			o.Features = append(o.Features, float32(v))
		}
		if spec.Cell.Items == 0 {
			return nil
		}
		item, has, err := r.item(spec.Cell.Items)
		o.Item, asks = append(o.Item, item), asks || has
		return err
	})
	if !asks {
		o.Item = nil
	}
	return o, err
}

// item returns the number in the column item, from 0 to n-1, or kernels.AgentNoItem of an empty
// one. has is false for a row without the column.
func (r row) item(n int) (item int32, has bool, err error) {
	text, ok := r.get(swarm.ItemColumn)
	if !ok || text == "" || text == "null" {
		return kernels.AgentNoItem, ok, nil
	}
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || v < 0 || v >= int64(n) {
		want := fmt.Sprintf("an item, 0 to %d, or empty to ask for no score", n-1)
		return 0, true, r.bad(swarm.ItemColumn, text, want)
	}
	return int32(v), true, nil
}
