// Package swarmclient is the client of swarms: it creates, lists, finds and deletes them, and asks
// and changes their agents through the logs of their shards. A Computer evaluates expressions over
// all of them.
//
// A program connects to the queue with jobs/natsq, makes a Client of that connection, and gets a
// Swarm with Create or Open. A Swarm hides its shards: each call appends one entry to the log of
// every shard that it concerns, waits for the answers of the GPU agents, and merges them into one
// value, as if the swarm had one shard. A call is complete when all of these shards have answered.
//
// # Two ways to address a swarm
//
// The specification of a swarm says whether observations are for agents (addressed: agent) or for
// groups. Observe, AgentStates, GroupStates, Tick and Vote are for the first kind, ObserveGroups,
// AgentVariables and GroupVariables for the second. Compute, Fuse, Snapshot, Reset and Trim are for
// both. A GPU agent refuses an entry that the swarm does not take, with an error that says why.
//
// Agents have ids from 0 to N-1, and groups from 0 to N/agents_per_group-1. Agent i of group g has
// the id g*agents_per_group+i. Votes and decisions are indices of the candidates in the
// specification; Candidate returns their names.
//
// # Time, errors and concurrency
//
// Each call ends when its context ends, or after Options.Timeout. An entry that has no answer by
// then stays in its log, and takes effect as soon as a GPU agent serves the shard. Errors of the
// cluster are *jobs.Error values: errors.As finds the code, such as jobs.CodeDeadline for an answer
// that is late, jobs.CodeInvalid for an entry that the swarm does not take, and jobs.CodeRound for
// a vote in a round that is over. A name without a swarm is jobs.ErrNotFound. When a swarm of
// several shards fails, the error names the shards that failed and the shards that answered, whose
// entries have taken effect.
//
// Methods of Client and Swarm may be called from several goroutines. Slices that are passed in
// belong to the caller again when the call returns; results belong to the caller.
package swarmclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Store holds the records and the logs of swarms. The field Swarms of a connection of jobs/natsq is
// one. Its methods may be called from several goroutines.
type Store interface {
	// Swarm returns a record by id; jobs.ErrNotFound: there is none. A record that cannot be read
	// is an error together with a record that has the id.
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
	// Swarms returns all records, including unreadable ones.
	Swarms(ctx context.Context) ([]swarms.Change, error)
	// CreateSwarm claims the id of a record; jobs.ErrExists when another swarm has it.
	CreateSwarm(ctx context.Context, s swarms.Swarm) error
	// ChangeSwarm changes the stored record of a swarm, and calls change again when another writer
	// was first.
	ChangeSwarm(ctx context.Context, s swarms.Swarm, change func(*swarms.Swarm)) (swarms.Swarm, error)
	// RemoveSwarm removes the record of a swarm and its logs; it succeeds when they are gone.
	RemoveSwarm(ctx context.Context, s swarms.Swarm) error
	// Log returns the log of a shard. key is the key of the record.
	Log(key string, shard int, d swarms.Direction) swarms.Log
}

// Agents lists the agents that are alive. The field Registry of a connection is one.
type Agents interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
}

// Jobs reports whether a job has ended, or never existed. The field Queue of a connection is one.
type Jobs interface {
	Over(ctx context.Context, id string) (bool, error)
}

// DefaultTimeout is the Timeout of Options without one.
const DefaultTimeout = time.Minute

// Options configure a Client.
type Options struct {
	// Swarms holds records and logs. Required.
	Swarms Store
	// Agents lets Create refuse a swarm that no GPU agent can hold. nil: it does not look.
	Agents Agents
	// Beside returns the bytes that ticks of agents with neighbours need on the device beside the
	// pages: gpuagents/state.BesideBytes. nil: Create counts the pages only.
	Beside func(*swarm.Spec) int64
	// Jobs lets Delete remove the swarm of a run whose job is over. nil: it refuses such swarms.
	Jobs Jobs
	// Timeout bounds each wait for the answers of a swarm. 0: DefaultTimeout.
	Timeout time.Duration
}

// Client creates, lists, finds and deletes swarms.
type Client struct {
	store   Store
	agents  Agents
	beside  func(*swarm.Spec) int64
	jobs    Jobs
	timeout time.Duration
}

// New returns a client. The caller keeps what the options hold, and closes the connection after the
// last call. New fails when Options.Swarms is missing or Timeout is negative.
func New(o Options) (*Client, error) {
	switch {
	case o.Swarms == nil:
		return nil, errors.New("swarmclient: Options.Swarms is missing: pass the Swarms of a connection")
	case o.Timeout < 0:
		return nil, fmt.Errorf("swarmclient: Options.Timeout %v: use more than 0, or 0 for %v", o.Timeout,
			DefaultTimeout)
	case o.Timeout == 0:
		o.Timeout = DefaultTimeout
	}
	return &Client{store: o.Swarms, agents: o.Agents, beside: o.Beside, jobs: o.Jobs, timeout: o.Timeout}, nil
}

// List returns the records of all swarms, including swarms of runs, in no order. A record that
// cannot be read has an Err.
func (c *Client) List(ctx context.Context) ([]swarms.Change, error) { return c.store.Swarms(ctx) }

// Open finds a swarm by its id or, if no swarm has it, by the name of a run's specification. It
// fails with jobs.ErrNotFound when there is none, and with jobs.CodeInvalid when several runs have
// the name.
func (c *Client) Open(ctx context.Context, name string) (*Swarm, error) {
	record, err := c.store.Swarm(ctx, name)
	if errors.Is(err, jobs.ErrNotFound) {
		var all []swarms.Change
		if all, err = c.store.Swarms(ctx); err != nil {
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
	return &Swarm{store: c.store, timeout: c.timeout, spec: spec, record: record}, nil
}

// named returns the swarm with an id or, if there is none, the only run whose specification has the
// name.
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
		return found, notFound(name)
	case 1:
		return found, nil
	}
	return found, jobs.Errorf(jobs.CodeInvalid, "swarm %s: %d runs have that name: use the id of one: %s", name,
		len(runs), strings.Join(runs, ", "))
}

func notFound(name string) error {
	return fmt.Errorf("swarm %s: %w: exoswarm swarm list shows those there are", name, jobs.ErrNotFound)
}

// Create makes a swarm that lasts, and returns when GPU agents serve all its shards. The name of
// the specification becomes the id of the swarm. from names the snapshot that its agents start
// from; nil: all start in their initial state. The swarm keeps spec, which the caller must not
// change afterwards.
//
// It fails with jobs.ErrExists when a swarm has the name, and before anything is made when no GPU
// agent has room. A swarm that GPU agents refuse is removed again. With jobs.CodeDeadline the swarm
// stays, and waits for its agents; the caller may continue with Open and Wait.
func (c *Client) Create(ctx context.Context, spec *swarm.Spec, from *swarms.SnapshotRef) (*Swarm, error) {
	if of := spec.Model(); of != nil {
		if err := of.Validate(); err != nil {
			return nil, err
		}
	}
	if err := c.admit(ctx, spec); err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the spec: %w", err)
	}
	s := &Swarm{store: c.store, timeout: c.timeout, spec: spec, record: swarms.Swarm{
		Version: jobs.Version, ID: spec.Name, Nonce: swarms.NewNonce(), Name: spec.Name, Spec: data,
		Groups: spec.Groups(), Shards: spec.Shards, Created: time.Now().UTC(), From: from,
	}}
	if s.record.Shards == 1 {
		s.record.Shards = 0 // as in the records of versions without shards
	}
	// The record is first: it claims the name, so only one of several callers continues, and no log
	// is without a record.
	if err := c.store.CreateSwarm(ctx, s.record); err != nil {
		return nil, err
	}
	for k := range s.record.ShardCount() {
		if err := (shard{s, k}).begin(ctx); err != nil {
			return nil, errors.Join(err, c.store.RemoveSwarm(context.WithoutCancel(ctx), s.record))
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
	if errors.As(err, &refused) && refused.Code != jobs.CodeDeadline {
		err = errors.Join(err, c.store.RemoveSwarm(ctx, s.record))
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Delete removes a swarm, its logs and the state of its agents. It calls confirm, unless that is
// nil, when it knows that the swarm can be removed; an error of confirm ends it, and nothing is
// removed. The swarm of a run is refused with jobs.CodeInvalid while its job is not over. A swarm
// whose record cannot be read is removed too.
func (c *Client) Delete(ctx context.Context, id string, confirm func() error) error {
	if err := jobs.CheckID("swarm", id); err != nil {
		return err
	}
	s, err := c.store.Swarm(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound): // logs of an interrupted removal may be left
		return errors.Join(c.store.RemoveSwarm(ctx, swarms.Swarm{ID: id}), notFound(id))
	case err != nil && s.ID == "":
		return err
	}
	if job := s.OwnerJob(); err == nil && job != "" {
		over := false
		if c.jobs != nil {
			if over, err = c.jobs.Over(ctx, job); err != nil {
				return err
			}
		}
		if !over {
			return jobs.Errorf(jobs.CodeInvalid, "swarm %s is the swarm of a run: cancel its job with exoswarm job "+
				"cancel %s", s.ID, job)
		}
	}
	if confirm != nil {
		if err := confirm(); err != nil {
			return err
		}
	}
	return c.store.RemoveSwarm(ctx, s)
}
