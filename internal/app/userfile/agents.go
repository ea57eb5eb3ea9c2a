package userfile

import (
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/number"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// ReadAgents reads a file of observations of agents: the column agent, with the id, and the
// features of the specification. It reads and checks the whole file. Ids may repeat, and are in the
// order of the rows. Errors of the rows are of the input.
func ReadAgents(path string, spec *swarm.Spec) (*batch.AgentObservations, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, command.Usage("--input: %v", err)
	}
	defer f.Close()
	o, d := &batch.AgentObservations{Width: len(spec.Features)}, dialectOf(path, spec)
	add := func(line int, get func(column string) (string, bool)) error {
		bad := func(column, text, want string) error {
			return jobs.Errorf(jobs.CodeInput, "%s:%d: column %s: %q is not %s", path, line, column, text, want)
		}
		text, ok := get(swarm.AgentColumn)
		id, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil || int64(id) >= spec.Agents {
			return bad(swarm.AgentColumn, text, fmt.Sprintf("an agent, 0 to %d", spec.Agents-1))
		}
		o.Agent = append(o.Agent, uint32(id))
		for _, name := range spec.Features {
			text, ok := get(name)
			written, problem := d.Number(text)
			if problem != "" {
				return bad(name, text, "a number: it "+problem)
			}
			// Features are float32 on the device: a number beyond its range is refused here.
			v, err := number.Float(written, 32)
			if !ok || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return bad(name, text, "a number")
			}
			o.Features = append(o.Features, float32(v))
		}
		return nil
	}
	if d == nil {
		err = eachObject(path, f, add)
	} else {
		err = eachRecord(path, f, d, ObservationColumns(spec), add)
	}
	return o, err
}
