package swarms

import (
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// What a rule does when a round is decided. Ticks and resets are a part of the entry that has
// decided it. A decision is emitted, and a job submitted, before the answer is in the log.
const (
	ReactTick   = "tick"
	ReactReset  = "reset"
	ReactEmit   = "emit"
	ReactSubmit = "submit"
)

// Reaction is one thing that the rules of a swarm have done when a round was decided.
type Reaction struct {
	Rule   int    `json:"rule"` // of the specification, from 1
	Action string `json:"action"`
	Count  int    `json:"count,omitempty"` // of ticks
	Name   string `json:"name,omitempty"`  // under which the decision is emitted, or of the job in the specification
	Job    string `json:"job,omitempty"`   // id of the job that is submitted
}

// String implements fmt.Stringer.
func (r Reaction) String() string {
	switch {
	case r.Count > 0:
		return fmt.Sprintf("%s %d", r.Action, r.Count)
	case r.Job != "":
		return r.Action + " " + r.Job
	case r.Name != "":
		return r.Action + " " + r.Name
	}
	return r.Action
}

// Emission is a decision as it is emitted, or as it asks for a job: a function of the log of its
// shard, so all processes that apply an entry make the same.
type Emission struct {
	Version int `json:"v"`
	// Swarm is the id of the swarm, and Identity the text that no other swarm has.
	Swarm    string `json:"swarm"`
	Identity string `json:"identity"`
	Name     string `json:"name"`  // of the emission or the job, by the rule
	Rule     int    `json:"rule"`  // of the specification, from 1
	Entry    uint64 `json:"entry"` // that has decided the round
	Round    uint64 `json:"round"`
	Term     uint64 `json:"term"`
	Winner   string `json:"winner"` // the name of the candidate, or none
	// Votes are the ballots by candidate, in the order of Candidates.
	Candidates  []string `json:"candidates"`
	Votes       []uint64 `json:"votes"`
	Abstentions uint64   `json:"abstentions"`
	Leader      *uint32  `json:"leader,omitempty"` // nil: the round has none
}

// Before reports whether an emission of the same swarm and name comes before o in the order of the
// log.
func (e Emission) Before(o Emission) bool {
	return e.Entry < o.Entry || e.Entry == o.Entry && e.Rule < o.Rule
}

// Emissions returns what the decision of an entry emits, in order.
func (s Swarm) Emissions(entry uint64, v *Voted, candidates []string) []Emission {
	return s.told(ReactEmit, entry, v, candidates)
}

// Submissions returns the requests for the jobs that the decision of an entry submits, in order.
func (s Swarm) Submissions(entry uint64, v *Voted, candidates []string) []Emission {
	return s.told(ReactSubmit, entry, v, candidates)
}

// told returns an emission for each reaction with an action.
func (s Swarm) told(action string, entry uint64, v *Voted, candidates []string) (all []Emission) {
	if v == nil {
		return nil
	}
	for _, r := range v.Reactions {
		if r.Action != action {
			continue
		}
		e := Emission{
			Version: jobs.Version, Swarm: s.ID, Identity: s.Identity(), Name: r.Name, Rule: r.Rule, Entry: entry,
			Round: v.Round, Term: v.Term, Winner: "none", Candidates: candidates, Votes: v.Counts,
			Abstentions: v.Abstentions,
		}
		if v.Leader != nil {
			e.Leader = &v.Leader.Agent
		}
		if v.Winner != nil {
			e.Winner = candidates[*v.Winner]
		}
		all = append(all, e)
	}
	return all
}

// DecodeEmission reads an emission. Unknown fields are left out.
func DecodeEmission(data []byte) (e Emission, err error) {
	if err := jobs.CheckJSON(data); err != nil {
		return e, invalid("emission: %v", err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, invalid("emission: %v", err)
	}
	if e.Version != jobs.Version {
		return e, jobs.Errorf(jobs.CodeVersion, "emission: it speaks protocol version %d, this side %d: update the "+
			"older side", e.Version, jobs.Version)
	}
	return e, nil
}
