package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// simulation is a swarm as those see it who write into its log. Its id is its name, but that of a run, whose id is its job's.
type simulation struct {
	conn    *natsq.Conn
	name    string
	spec    *swarm.Spec
	timeout time.Duration     // of each answer
	from    *jobs.SnapshotRef // what it begins as; for create
	record  jobs.Swarm        // of one that there is
}

// findSimulation reads the record of a swarm.
func findSimulation(ctx context.Context, c *natsq.Conn, name string, timeout time.Duration) (*simulation, error) {
	all, err := c.Swarms(ctx)
	if err != nil {
		return nil, err
	}
	s, err := named(all, name)
	if err != nil {
		return nil, err
	}
	if s.Err != nil {
		return nil, s.Err
	}
	spec, err := swarm.FromJSON(s.Swarm.Spec)
	if err != nil {
		return nil, err
	}
	return &simulation{conn: c, name: s.ID, spec: spec, timeout: timeout, record: s.Swarm}, nil
}

// named is the swarm of an id or, where none has it, that of the one run whose spec has the name.
func named(all []jobs.SwarmChange, name string) (found jobs.SwarmChange, err error) {
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
	return found, jobs.Errorf(jobs.CodeInvalid, "swarm %s: %d runs have that name: use the id of one: %s", name, len(runs), strings.Join(runs, ", "))
}

// create makes the swarm, asks it for one agent, and waits for that. A swarm that no process can serve is removed again.
func (s *simulation) create(ctx context.Context) error {
	all, err := s.conn.Swarms(ctx)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID == s.name {
			return fmt.Errorf("swarm %s: %w: remove it with exoswarm swarm delete %s, or choose another name", s.name, jobs.ErrExists, s.name)
		}
	}
	spec, err := json.Marshal(s.spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	first, err := json.Marshal(jobs.Query{Version: jobs.Version, Agents: []uint32{0}})
	if err != nil {
		return fmt.Errorf("encode a query: %w", err)
	}
	for _, d := range []jobs.Direction{jobs.In, jobs.Out} {
		if err := s.conn.Log(s.name, 0, d).Create(ctx); err != nil {
			return err
		}
	}
	// Of several who make it at once one writes the first entry.
	err = s.conn.Log(s.name, 0, jobs.In).Append(ctx, 0, jobs.Entry{Kind: jobs.EntryQuery, Ref: 1, Data: first})
	if errors.Is(err, jobs.ErrFenced) {
		return fmt.Errorf("swarm %s: somebody else makes it, or its log was left behind: remove it with exoswarm swarm delete %s: %w", s.name, s.name, err)
	}
	if err != nil {
		return err
	}
	record := jobs.Swarm{Version: jobs.Version, ID: s.name, Name: s.name, Spec: spec, Groups: s.spec.Groups(), Created: time.Now().UTC(), From: s.from}
	if err := s.conn.PutSwarm(ctx, record); err != nil {
		return err
	}
	wait, cancel := context.WithTimeoutCause(ctx, s.timeout, s.late(1))
	defer cancel()
	_, err = s.answer(wait, 1, 1)
	var refused *jobs.Error
	if errors.As(err, &refused) && refused.Code != jobs.CodeDeadline { // it cannot be served: as if it had not been made
		return errors.Join(err, removeSwarm(ctx, s.conn, s.name))
	}
	return err
}

// late says that an entry has no answer yet.
func (s *simulation) late(seq uint64) error {
	return jobs.Errorf(jobs.CodeDeadline, "swarm %s: entry %d of its log has no answer after %v, and stays there until it has one: see that a GPU agent runs (exoswarm agent list), or wait longer with --timeout", s.name, seq, s.timeout)
}

// removeSwarm removes the record of a swarm and its logs, as far as they are there.
func removeSwarm(ctx context.Context, c *natsq.Conn, id string) error {
	if err := c.DeleteSwarm(ctx, id); err != nil {
		return err
	}
	return errors.Join(c.Log(id, 0, jobs.In).Delete(ctx), c.Log(id, 0, jobs.Out).Delete(ctx))
}

// ask appends an entry and returns the data of its answer, which is of the kind want. An entry that is refused is a *jobs.Error.
func (s *simulation) ask(ctx context.Context, kind string, data []byte, want string) ([]byte, error) {
	from, seq, err := s.append(ctx, kind, data)
	if err != nil {
		return nil, s.over(err)
	}
	wait, cancel := context.WithTimeoutCause(ctx, s.timeout, s.late(seq))
	defer cancel()
	e, err := s.answer(wait, from, seq)
	if err != nil {
		return nil, s.over(err)
	}
	if e.Kind != want {
		return nil, jobs.Errorf(jobs.CodeInternal, "swarm %s: entry %d, a %s, was answered with a %.100q", s.name, seq, kind, e.Kind)
	}
	return e.Data, nil
}

// append puts an entry into the log. It is number seq there, and its answer is not before number from of the log of answers.
func (s *simulation) append(ctx context.Context, kind string, data []byte) (from, seq uint64, err error) {
	in, out := s.conn.Log(s.name, 0, jobs.In), s.conn.Log(s.name, 0, jobs.Out)
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, jobs.Errorf(jobs.CodeDeadline, "swarm %s: its log could not be written within %v", s.name, s.timeout))
	defer cancel()
	for {
		answered, err := out.Last(ctx) // what is before it is not for the entry
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		last, err := in.Last(ctx)
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		if err := s.mayTake(kind, last); err != nil {
			return 0, 0, err
		}
		err = in.Append(ctx, last.Seq, jobs.Entry{Kind: kind, Ref: last.Ref + 1, Data: data})
		if errors.Is(err, jobs.ErrFenced) && ctx.Err() == nil { // somebody else has written meanwhile
			continue
		}
		if err != nil {
			return 0, 0, ended(ctx, err)
		}
		return answered.Seq + 1, last.Seq + 1, nil
	}
}

// ended says why a call ended that its context may have ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// answer waits for the answer to an entry, which is not before number from of the log of answers.
func (s *simulation) answer(ctx context.Context, from, seq uint64) (jobs.Entry, error) {
	r, err := s.conn.Log(s.name, 0, jobs.Out).Read(ctx, from)
	if err != nil {
		return jobs.Entry{}, ended(ctx, err)
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return e, err
		}
		if e.Ref < seq {
			continue
		}
		if e.Kind == jobs.EntryRejected {
			refused := &jobs.Error{}
			if err := json.Unmarshal(e.Data, refused); err != nil {
				return e, jobs.Errorf(jobs.CodeInternal, "swarm %s: entry %d was refused without a reason: %v", s.name, seq, err)
			}
			return e, refused
		}
		return e, nil
	}
}

// tick steps all agents, in as many entries as that takes, and says what the swarm is then.
func (s *simulation) tick(ctx context.Context, count int) (sum jobs.Ticked, err error) {
	for stepped := uint64(0); count > 0; count -= jobs.MaxTicks {
		data, err := json.Marshal(jobs.Tick{Version: jobs.Version, Count: min(count, jobs.MaxTicks)})
		if err != nil {
			return sum, fmt.Errorf("encode a tick: %w", err)
		}
		if data, err = s.ask(ctx, jobs.EntryTick, data, jobs.EntryTicked); err != nil {
			return sum, err
		}
		if sum, err = jobs.DecodeTicked(data); err != nil {
			return sum, err
		}
		if n := len(s.spec.Vote.Candidates); len(sum.Tally) != n || len(sum.Decided) != n {
			return sum, jobs.Errorf(jobs.CodeInternal, "swarm %s: an answer for %d and %d candidates of %d", s.name, len(sum.Tally), len(sum.Decided), n)
		}
		stepped += sum.Stepped
		sum.Stepped = stepped
	}
	return sum, nil
}

// observe hands over observations, at most maxRows of them.
func (s *simulation) observe(ctx context.Context, o *batch.AgentObservations) (*batch.AgentDecisions, error) {
	data, err := o.Encode()
	if err != nil {
		return nil, err
	}
	if data, err = s.ask(ctx, jobs.EntryObserve, data, jobs.EntryDecide); err != nil {
		return nil, err
	}
	return batch.DecodeAgentDecisions(data)
}

// maxRows is how many observations go into an entry: as many as fit into three quarters of a message.
func (s *simulation) maxRows() int {
	return min(jobs.MaxAddressed, jobs.MaxMessage*3/4/(4+4*len(s.spec.Features)))
}

// query asks for agents or groups; the answer is read by batch.DecodeAgentStates or DecodeGroupStates.
func (s *simulation) query(ctx context.Context, q jobs.Query) ([]byte, error) {
	q.Version = jobs.Version
	data, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode a query: %w", err)
	}
	return s.ask(ctx, jobs.EntryQuery, data, jobs.EntryState)
}

// candidate is the name of a vote or a decision.
func (s *simulation) candidate(c uint8) string {
	if int(c) < len(s.spec.Vote.Candidates) {
		return s.spec.Vote.Candidates[c]
	}
	return "none"
}
