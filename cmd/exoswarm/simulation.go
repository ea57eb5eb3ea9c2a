package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// simulation is a swarm as those see it who write into its logs. Its id is its name, but that of a
// run, whose id is its job's.
type simulation struct {
	conn    *natsq.Conn
	name    string
	spec    *swarm.Spec
	timeout time.Duration       // of each entry and its answers
	from    *swarms.SnapshotRef // what it begins as; for create
	record  swarms.Swarm        // of one that there is, or is made
}

// findSimulation reads the record of a swarm.
func findSimulation(ctx context.Context, c *natsq.Conn, name string, timeout time.Duration) (*simulation, error) {
	record, err := c.Swarms.Swarm(ctx, name)
	if errors.Is(err, jobs.ErrNotFound) {
		var all []swarms.Change
		if all, err = c.Swarms.Swarms(ctx); err != nil {
			return nil, err
		}
		var s swarms.Change
		if s, err = named(all, name); err == nil {
			record, err = s.Swarm, s.Err
		}
	}
	if err != nil {
		return nil, err
	}
	spec, err := swarm.FromJSON(record.Spec)
	if err != nil {
		return nil, err
	}
	return &simulation{conn: c, name: record.ID, spec: spec, timeout: timeout, record: record}, nil
}

// named is the swarm of an id or, where none has it, that of the one run whose spec has the name.
func named(all []swarms.Change, name string) (found swarms.Change, err error) {
	var runs []string
	for _, s := range all {
		if s.ID == name {
			return s, nil
		}
		if s.Err == nil && s.Swarm.Name == name {
			found, runs = s, append(runs, s.ID)
		}
	}
	switch len(runs) {
	case 0:
		return found, fmt.Errorf("swarm %s: %w: exoswarm swarm list shows those there are", name, jobs.ErrNotFound)
	case 1:
		return found, nil
	}
	return found, jobs.Errorf(jobs.CodeInvalid, "swarm %s: %d runs have that name: use the id of one: %s", name,
		len(runs), strings.Join(runs, ", "))
}

// admitted refuses a swarm that no GPU agent has room for. Agents that cannot be listed, or are not
// there yet, are no reason.
func (s *simulation) admitted(ctx context.Context) error {
	agents, err := s.conn.Registry.Agents(ctx)
	if err != nil {
		return nil //nolint:nilerr // The list is for hints.
	}
	var full []string
	for _, a := range agents {
		switch {
		case a.Pool != jobs.PoolGPU:
		case a.State != "full":
			return nil
		default:
			full = append(full, fmt.Sprintf("%s has %d of %d", a.Name, a.Running, a.MaxShards))
		}
	}
	if len(full) == 0 {
		return nil
	}
	return jobs.Errorf(jobs.CodeInvalid, "swarm %s: every GPU agent has as many shards as it takes (%s): start "+
		"another one, raise --max-shards or --parked-memory, or delete swarms",
		s.name, strings.Join(full, ", "))
}

// create makes the swarm, asks it for one agent, and waits for that. A swarm that no process can
// serve is removed again.
func (s *simulation) create(ctx context.Context) error {
	if err := s.admitted(ctx); err != nil {
		return err
	}
	if err := s.fits(ctx); err != nil {
		return err
	}
	spec, err := json.Marshal(s.spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	s.record = swarms.Swarm{
		Version: jobs.Version, ID: s.name, Nonce: swarms.NewNonce(), Name: s.name, Spec: spec, Groups: s.spec.Groups(),
		Shards: s.spec.Shards, Created: time.Now().UTC(), From: s.from,
	}
	if s.record.Shards == 1 {
		s.record.Shards = 0 // as records were before there were several
	}
	begin := func(k shard) error {
		first, _ := k.agents()
		data, err := json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{uint32(first)}})
		if err != nil {
			return fmt.Errorf("encode a query: %w", err)
		}
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := k.log(d).Create(ctx, s.spec.Consistency()); err != nil {
				return err
			}
		}
		return k.log(swarms.In).Append(ctx, 0, swarms.Entry{Kind: swarms.EntryQuery, Ref: 1, Data: data})
	}
	// The record is first: it claims the name, so that of several who make the swarm at once one
	// goes on, and no log is without a record.
	if err := s.conn.Swarms.CreateSwarm(ctx, s.record); err != nil {
		return err
	}
	for k := range s.record.ShardCount() {
		if err := begin(shard{s, k}); err != nil {
			return errors.Join(err, s.conn.Swarms.RemoveSwarm(context.WithoutCancel(ctx), s.record))
		}
	}
	deadline := time.Now().Add(s.timeout)
	err = s.each(nil, func(k shard) error {
		wait, cancel := context.WithDeadlineCause(ctx, deadline, k.late(1))
		defer cancel()
		_, err := k.answer(wait, 1, 1)
		return err
	})
	var refused *jobs.Error
	// it cannot be served: as if it had not been made
	if errors.As(err, &refused) && refused.Code != jobs.CodeDeadline {
		return errors.Join(err, s.conn.Swarms.RemoveSwarm(ctx, s.record))
	}
	return err
}

// tick steps all agents, in as many entries as that takes, and says what the swarm is then.
func (s *simulation) tick(ctx context.Context, count int) (sum swarms.Ticked, err error) {
	for stepped := uint64(0); count > 0; count -= swarms.MaxTicks {
		n := min(count, swarms.MaxTicks)
		all, err := askAll(ctx, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: n}, swarms.EntryTicked,
			swarms.DecodeTicked)
		if err == nil {
			sum, err = partition.Ticked(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), n, all)
			err = s.wrong(err)
		}
		if err != nil {
			return sum, err
		}
		stepped += sum.Stepped
		sum.Stepped = stepped
	}
	return sum, nil
}

// observe hands over observations, at most maxRows of them.
func (s *simulation) observe(ctx context.Context, o *batch.AgentObservations) (*batch.AgentDecisions, error) {
	split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, o.Agent)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "observe: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryObserve, split.Has,
		func(k int) ([]byte, error) { return split.Observations(o, k).Encode() }, swarms.EntryDecide,
		batch.DecodeAgentDecisions)
	if err != nil {
		return nil, err
	}
	d, err := split.Decisions(all)
	return d, s.wrong(err)
}

// maxRows is how many observations go into an entry: as many as fit into three quarters of a
// message.
func (s *simulation) maxRows() int {
	return min(swarms.MaxAddressed, jobs.MaxMessage*3/4/(4+4*len(s.spec.Features)))
}

// agentStates asks what agents are, groupStates what groups are.
func (s *simulation) agentStates(ctx context.Context, ids []uint32) (*batch.AgentStates, error) {
	split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Agents: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeAgentStates)
	if err != nil {
		return nil, err
	}
	states, err := split.AgentStates(all)
	return states, s.wrong(err)
}

func (s *simulation) groupStates(ctx context.Context, ids []uint32) (*batch.GroupStates, error) {
	split, err := partition.Groups(s.record, ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: split.IDs(k)})
	}, swarms.EntryState, batch.DecodeGroupStates)
	if err != nil {
		return nil, err
	}
	states, err := split.GroupStates(all)
	return states, s.wrong(err)
}

// wrong is an answer that is none, as an error of the other side.
func (s *simulation) wrong(err error) error {
	if err == nil {
		return nil
	}
	return jobs.Errorf(jobs.CodeInternal, "swarm %s: %v: see that all GPU agents are of this version", s.name, err)
}

// candidate is the name of a vote or a decision.
func (s *simulation) candidate(c uint8) string {
	if int(c) < len(s.spec.Vote.Candidates) {
		return s.spec.Vote.Candidates[c]
	}
	return "none"
}
