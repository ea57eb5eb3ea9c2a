package swarmclient

// This file folds expressions over the agents of swarms for HTTP requests.
//
// A request becomes an entry of the log of each shard, as exoswarm swarm compute makes it. It
// changes no agent. The NATS login of the connection must be allowed to append to the logs of
// swarms: the login of an operator or an agent, and not of a viewer.

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// MaxComputations is the number of requests that a Computer answers at the same time. A first text
// has its kernel compiled, and results by group take memory.
const MaxComputations = 4

// ComputeRequest is the body of a request.
type ComputeRequest struct {
	// Text has one statement or several, as in "mean(abs(hidden)) by group where vote == 1".
	Text string `json:"text"`
	// First and Groups choose groups for texts by group: Groups of them from number First on. 0
	// Groups are all from First on.
	First  int `json:"first,omitempty"`
	Groups int `json:"groups,omitempty"`
}

// ComputeAnswer is the results of a text.
type ComputeAnswer struct {
	// By is group or vote; empty: one node of all agents.
	By string `json:"by,omitempty"`
	// Nodes are in the order of their numbers.
	Nodes []ComputedNode `json:"nodes"`
}

// ComputedNode is the results of a group, of a candidate, or of all agents.
type ComputedNode struct {
	Group     *int   `json:"group,omitempty"`     // its number, by group
	Candidate string `json:"candidate,omitempty"` // its name, by vote
	// Values has the value of each output by its name: a number, a bool, or null for a mean, min or
	// max of no element and for numbers that are not finite.
	Values map[string]any `json:"values"`
}

// Computer answers requests. Its methods may be called from several goroutines.
type Computer struct {
	client *Client
	slots  chan struct{}
}

// NewComputer returns a Computer over the swarms of a connection, which stays the caller's and is
// closed after the last call.
func NewComputer(swarms Store) (*Computer, error) {
	client, err := New(Options{Swarms: swarms})
	if err != nil {
		return nil, err
	}
	return &Computer{client, make(chan struct{}, MaxComputations)}, nil
}

// Compute answers a request about a swarm. Errors of the text and of the range are
// jobs.CodeInvalid, with place and cure. jobs.ErrUnavailable: too many requests run.
func (c *Computer) Compute(ctx context.Context, swarm string, r ComputeRequest) (*ComputeAnswer, error) {
	want := swarms.Compute{Version: jobs.Version, Text: r.Text, First: r.First, Groups: r.Groups}
	if err := want.Validate(); err != nil {
		return nil, err
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return nil, fmt.Errorf("%d computations run already: try again: %w", MaxComputations, jobs.ErrUnavailable)
	}
	s, err := c.client.Open(ctx, swarm)
	if err != nil {
		return nil, err
	}
	if n := s.Results(want); n > swarms.MaxResults {
		return nil, jobs.Errorf(jobs.CodeInvalid, "compute: up to %d results, groups times outputs: at most %d; "+
			"choose groups with first and groups", n, swarms.MaxResults)
	}
	got, err := s.Compute(ctx, want)
	if err != nil {
		return nil, err
	}
	a := &ComputeAnswer{By: got.By, Nodes: make([]ComputedNode, got.Nodes)}
	for i := range a.Nodes {
		n := &a.Nodes[i]
		switch got.By {
		case swarms.ByGroup:
			group := got.First + i
			n.Group = &group
		case swarms.ByVote:
			n.Candidate = s.Candidate(i)
		}
		n.Values = make(map[string]any, len(got.Outputs))
		for _, o := range got.Outputs {
			n.Values[o.Name] = OutputValue(o, i)
		}
	}
	return a, nil
}

// OutputValue returns a result as a value of JSON: a number with all its digits, a bool, or nil for
// none and for numbers that are not finite.
func OutputValue(o Output, i int) any {
	v, exists := o.Number(i)
	if !exists || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	switch o.Kind {
	case "bool":
		return v != 0
	case "i64":
		return int64(o.Bits(i))
	case "u64":
		return o.Bits(i)
	}
	return v
}
