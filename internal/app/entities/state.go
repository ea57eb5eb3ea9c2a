package entities

import (
	"context"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// State is the state of the group of an entity.
type State struct {
	Entity
	// State has the variables of the group by name: a number, or a list of numbers.
	State map[string]any `json:"state"`
	// Text is the same for a table.
	Text string `json:"-"`
}

// StatesOf asks the GPU agents for the states of the groups of entities, in their order. The swarm
// addresses groups.
func StatesOf(ctx context.Context, s *swarmclient.Swarm, of []Entity) ([]State, error) {
	ids := make([]uint32, len(of))
	for i, e := range of {
		ids[i] = uint32(e.Group)
	}
	all, err := s.GroupVariables(ctx, ids)
	if err != nil {
		return nil, err
	}
	states := make([]State, len(of))
	for i, e := range of {
		states[i].Entity = e
		states[i].State, states[i].Text = Row(all.Vars, i)
	}
	return states, nil
}

// LongVariable bounds the numbers of a variable that a table shows; of longer ones it shows the
// length.
const LongVariable = 16

// Row returns row i of variables by name: a single number as a number, several as a list. text has
// the same for a table, with the variables in the order of the layout. state shares the memory of
// vars.
func Row(vars []batch.Variable, i int) (state map[string]any, text string) {
	state = map[string]any{}
	var parts []string
	for _, v := range vars {
		var one, all any
		switch values := v.Values.(type) {
		case []float32:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint32:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint64:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []int64:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint8:
			numbers := make([]uint16, v.Width) // bytes would be written as base64
			for k, b := range values[i*v.Width:][:v.Width] {
				numbers[k] = uint16(b)
			}
			one, all = numbers[0], numbers
		}
		// A single number is not a list, in JSON as in the table.
		if v.Width == 1 {
			all = one
		}
		state[v.Name] = all
		shown := strings.Trim(fmt.Sprint(all), "[]")
		if v.Width > LongVariable {
			shown = fmt.Sprintf("(%d)", v.Width)
		}
		parts = append(parts, v.Name+" "+shown)
	}
	return state, strings.Join(parts, ", ")
}
