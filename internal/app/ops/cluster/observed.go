package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// ObservedAgent is what an agent of a swarm has observed last, with its answers. Agents of the
// swarm are addressed one by one.
type ObservedAgent struct {
	Swarm      string   `json:"swarm"` // id
	Name       string   `json:"name"`  // of the swarm
	Title      string   `json:"title"` // of the swarm
	Agent      uint32   `json:"agent"`
	Group      int      `json:"group"`
	Shard      int      `json:"shard"`
	Features   []string `json:"features"`
	Candidates []string `json:"candidates"`
	// Observations are the last ones that were answered, newest first.
	Observations []Observation `json:"observations"`
	// First is the oldest answer that was read; 0: the shard has none. An observation before it is
	// not here.
	First uint64 `json:"first"`
}

// Observation is an observation of an agent with its answer.
type Observation struct {
	Entry  uint64    `json:"entry"`  // its number in the log of entries
	Answer uint64    `json:"answer"` // its number in the log of answers
	At     time.Time `json:"at"`     // of the answer, by the server's clock
	// Values are by Features; a value that is no finite number is null. They are empty where the log
	// of entries was trimmed.
	Values []*float64 `json:"values"`
	// Item is what the observation asks for, and Score the probability that the agent gives it: null
	// of an observation that asks for none.
	Item  *int32   `json:"item"`
	Score *float32 `json:"score"`
	// Vote and Decision are candidates of the agent and of its group, -1 for none.
	Vote     int64 `json:"vote"`
	Decision int64 `json:"decision"`
}

// mostObservations bounds the observations of an ObservedAgent.
const mostObservations = 300

// Observed returns at most limit and 300 observations of an agent of a swarm, by its name or id. It
// reads at most 300 answers. It fails with jobs.ErrNotFound if the newest State has no such swarm
// or agent, or if groups of the swarm are addressed.
func (w *Watcher) Observed(ctx context.Context, name string, agent uint32, limit int) (v ObservedAgent, err error) {
	s := w.State()
	sw, err := s.Swarm(name)
	if err != nil {
		return v, err
	}
	switch {
	case sw.Addressed != "agent":
		return v, fmt.Errorf("agent %d of swarm %s: its observations are for groups: %w", agent, name, jobs.ErrNotFound)
	case int64(agent) >= sw.Agents:
		return v, fmt.Errorf("swarm %s has the agents 0 to %d, not %d: %w", name, sw.Agents-1, agent, jobs.ErrNotFound)
	}
	group := uint32(int64(agent) / sw.perGroup())
	features := sw.features()
	v = ObservedAgent{
		Swarm: sw.ID, Name: sw.Name, Title: sw.Title, Agent: agent, Group: int(group), Shard: shardOf(s, sw.ID, group),
		Features:   append([]string{}, features[:min(len(features), mostEntityFeatures)]...),
		Candidates: sw.Candidates, Observations: []Observation{},
	}
	limit, read, size := min(limit, mostObservations), 0, 0
	ctx, cancel := context.WithTimeout(ctx, entityPatience)
	defer cancel()
	var failed error
	err = w.answers(ctx, sw.ID, v.Shard, 0, func(_ Swarm, e swarms.Entry, at time.Time) bool {
		read, size = read+1, size+len(e.Data)
		var own []Observation
		if d, err := batch.DecodeAgentDecisions(e.Data); e.Kind == swarms.EntryDecide && err == nil &&
			slices.Contains(d.Agent, agent) {
			in, _, err := w.conn.Swarms.Entry(ctx, sw.Key, v.Shard, swarms.In, e.Ref)
			if err != nil && !errors.Is(err, jobs.ErrNotFound) { // else the log was trimmed there
				failed = err
				return false
			}
			size += len(in.Data)
			own = observed(d, in, agent, len(v.Features))
		}
		v.First = e.Seq
		for _, o := range slices.Backward(own) {
			o.Entry, o.Answer, o.At = e.Ref, e.Seq, at
			if len(v.Observations) < limit {
				v.Observations = append(v.Observations, o)
			}
		}
		return len(v.Observations) < limit && read < mostSearched && size < mostSearchedBytes
	})
	err = errors.Join(err, failed)
	if ctx.Err() != nil && len(v.Observations) > 0 { // what was read in time is shown
		err = nil
	}
	return v, err
}

// observed returns the rows of an agent in an answer and in its entry, oldest first. An entry whose
// rows are not for the agents of the answer has no part in them: anybody may write to a log.
func observed(d *batch.AgentDecisions, in swarms.Entry, agent uint32, features int) (all []Observation) {
	o, err := batch.DecodeAgentObservations(in.Data)
	matches := err == nil && in.Kind == swarms.EntryObserve && slices.Equal(o.Agent, d.Agent)
	for i, id := range d.Agent {
		if id != agent {
			continue
		}
		row := Observation{Values: []*float64{}, Vote: candidate(d.Vote[i]), Decision: candidate(d.Decision[i])}
		if matches {
			for _, x := range o.Features[i*o.Width:][:min(o.Width, features)] {
				row.Values = append(row.Values, known(float64(x)))
			}
			if o.Item != nil && o.Item[i] >= 0 {
				row.Item = &o.Item[i]
			}
		}
		if d.Score != nil && known(float64(d.Score[i])) != nil {
			row.Score = &d.Score[i]
		}
		all = append(all, row)
	}
	return all
}

// candidate returns the number of a candidate; -1 for none.
func candidate(vote uint8) int64 {
	if vote == batch.NoVote {
		return -1
	}
	return int64(vote)
}
