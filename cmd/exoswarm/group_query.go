package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// showVariables prints what agents, or groups, of a swarm are whose groups are addressed.
func showVariables(cmd *cobra.Command, s *simulation, p *printer, ids []uint32, groups bool) error {
	q := swarms.Query{Agents: ids}
	if groups {
		q = swarms.Query{Groups: ids}
	}
	q.Version = jobs.Version
	data, err := json.Marshal(q)
	if err == nil {
		data, err = s.only(cmd.Context(), swarms.EntryQuery, data, swarms.EntryState)
	}
	if err != nil {
		return err
	}
	if groups {
		all, err := batch.DecodeGroupVariables(data)
		if err != nil {
			return err
		}
		for i, id := range all.Group {
			state, text := rowOf(all.Vars, i)
			if err := p.item(map[string]any{"group": id, "state": state}, id, state["round"], text); err != nil {
				return err
			}
		}
		return nil
	}
	all, err := batch.DecodeAgentVariables(data)
	if err != nil {
		return err
	}
	size := uint32(s.spec.AgentsPerGroup)
	for i, id := range all.Agent {
		state, text := rowOf(all.Vars, i)
		embedding := all.Embedding[i*all.Width:][:all.Width]
		item := map[string]any{"agent": id, "group": id / size, "embedding": embedding, "state": state}
		if err := p.item(item, id, id/size, strings.Trim(fmt.Sprint(embedding), "[]"), text); err != nil {
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

// mayTake says why an entry is not put into the log behind its last one: the log of a run is
// written by its job, and others only ask.
func (k shard) mayTake(kind string, last swarms.Entry) error {
	switch {
	case last.Kind == swarms.EntryEnd && k.of.spec.OfRun():
		return jobs.Errorf(jobs.CodeInvalid, "%v: its run has read all its input and ends: take a snapshot while it "+
			"reads, or run it again", k)
	case last.Kind == swarms.EntryEnd:
		return jobs.Errorf(jobs.CodeInvalid, "%v: its log has ended", k)
	case !k.of.spec.OfRun():
		return nil
	case !swarms.Asks(kind):
		return jobs.Errorf(jobs.CodeInvalid, "%v: it is that of a run, whose job alone may change it: it takes "+
			"query, fuse and snapshot; %s is for swarms that were made with exoswarm swarm create", k, kind)
	case last.Seq == 0: // a refusal of the first entry says that the swarm cannot be served
		return jobs.Errorf(jobs.CodeInvalid, "%v: its run has read nothing yet: ask again", k)
	}
	return nil
}

// over says of an error that the log is gone why it is: a run ends while it is asked.
func (s *simulation) over(err error) error {
	if errors.Is(err, jobs.ErrNotFound) && s.spec.OfRun() {
		return jobs.Errorf(jobs.CodeInvalid, "swarm %s: its run has ended, and its log is gone: run it again, or "+
			"ask while it reads", s.name)
	}
	return err
}

// only asks the one shard of a swarm whose groups are addressed.
func (s *simulation) only(ctx context.Context, kind string, data []byte, want string) ([]byte, error) {
	return shard{s, 0}.ask(ctx, time.Now().Add(s.timeout), kind, data, want)
}
