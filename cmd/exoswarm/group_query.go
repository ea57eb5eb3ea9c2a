package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// showVariables prints what agents, or groups, of a swarm are whose groups are addressed.
func showVariables(cmd *cobra.Command, s *swarmclient.Swarm, p *listing.Printer, ids []uint32, groups bool) error {
	if groups {
		all, err := s.GroupVariables(cmd.Context(), ids)
		if err != nil {
			return err
		}
		for i, id := range all.Group {
			state, text := rowOf(all.Vars, i)
			if err := p.Item(map[string]any{"group": id, "state": state}, id, state["round"], text); err != nil {
				return err
			}
		}
		return nil
	}
	all, err := s.AgentVariables(cmd.Context(), ids)
	if err != nil {
		return err
	}
	size := uint32(s.Spec().AgentsPerGroup)
	for i, id := range all.Agent {
		state, text := rowOf(all.Vars, i)
		embedding := all.Embedding[i*all.Width:][:all.Width]
		item := map[string]any{"agent": id, "group": id / size, "embedding": embedding, "state": state}
		if err := p.Item(item, id, id/size, strings.Trim(fmt.Sprint(embedding), "[]"), text); err != nil {
			return err
		}
	}
	return nil
}

// longVariable is how many numbers of a variable stand in a table, which has a line a row.
const longVariable = 16

// rowOf is row i of variables: by name, a variable of one number as that, and as a text.
func rowOf(vars []batch.Variable, i int) (state map[string]any, text string) {
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
		if v.Width == 1 {
			all = one
		}
		state[v.Name] = all
		shown := strings.Trim(fmt.Sprint(all), "[]")
		if v.Width > longVariable {
			shown = fmt.Sprintf("(%d)", v.Width)
		}
		parts = append(parts, v.Name+" "+shown)
	}
	return state, strings.Join(parts, ", ")
}
