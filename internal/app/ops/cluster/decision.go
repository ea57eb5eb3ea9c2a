package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Decision is an answer in the log of a shard. The log may be trimmed, and every client with rights
// to the log may write to it, so readers check every field.
type Decision struct {
	Seq  uint64    `json:"seq"`
	Ref  uint64    `json:"ref"` // the entry that it answers
	At   time.Time `json:"at"`  // by the server's clock
	Kind string    `json:"kind"`
	// Body is the answer where it is JSON. Rows are the first ones of a table of decisions, Count is
	// how many it has.
	Body  json.RawMessage `json:"body,omitempty"`
	Rows  []DecisionRow   `json:"rows,omitempty"`
	Count int             `json:"count,omitempty"`
	Bytes int             `json:"bytes"`
}

// DecisionRow is the decision about one observation. A row of a swarm whose agents are addressed
// has Agent, Decision and, if it asks for one, Score only.
type DecisionRow struct {
	Group uint32  `json:"group"`
	Agent *uint32 `json:"agent,omitempty"` // of swarms whose agents are addressed
	Row   uint64  `json:"row,omitempty"`
	// Timestamp and Values belong to the observation; agents have none. A value that is no finite
	// number is null, and so is the score of a row that asks for none.
	Timestamp string     `json:"timestamp,omitempty"`
	Values    []*float64 `json:"values,omitempty"`
	Score     *float32   `json:"score"`
	// Decision is the number of the winning candidate, -1 where none won, and Counts the votes for
	// each.
	Decision int64    `json:"decision"`
	Counts   []uint32 `json:"counts,omitempty"`
	Leader   uint64   `json:"leader,omitempty"`
	Round    uint64   `json:"round,omitempty"`
}

const (
	// mostDecisions bounds the entries that Decisions reads, and mostRows the rows that it returns of
	// each.
	mostDecisions = 200
	mostRows      = 100
)

// Decisions returns answers of a shard of a swarm, by its name or id, newest first: at most limit
// and 200 answers before number before, or with 0 the newest. It fails with jobs.ErrNotFound if the
// newest State has no such swarm or shard, so a swarm that was created after the last poll is not
// found.
func (w *Watcher) Decisions(
	ctx context.Context, swarm string, shard int, before uint64, limit int,
) ([]Decision, error) {
	all := []Decision{}
	if limit <= 0 {
		return all, nil
	}
	err := w.answers(ctx, swarm, shard, before, func(sw Swarm, e swarms.Entry, at time.Time) bool {
		all = append(all, decision(sw, e, at))
		return len(all) < min(limit, mostDecisions)
	})
	return all, err
}

// GroupDecisions are the decisions of a group, newest first.
type GroupDecisions struct {
	// Decisions have the rows of the group alone.
	Decisions []Decision `json:"decisions"`
	// Next asks for earlier ones as the number before which they are; 0: there are none.
	Next uint64 `json:"next,omitempty"`
}

// Bounds of the answers that GroupDecisions reads at a time.
const (
	mostSearched      = 300
	mostSearchedBytes = 16 << 20
)

// GroupDecisions returns the answers of a shard that decide for a group, as Decisions does. It
// reads at most 300 answers, so it may return fewer than there are. The next call starts at Next.
func (w *Watcher) GroupDecisions(
	ctx context.Context, swarm string, shard, group int, before uint64, limit int,
) (GroupDecisions, error) {
	out := GroupDecisions{Decisions: []Decision{}}
	read, bytes := 0, 0
	err := w.answers(ctx, swarm, shard, before, func(sw Swarm, e swarms.Entry, at time.Time) bool {
		if d := decision(sw, e, at, uint32(group)); len(d.Rows) > 0 {
			out.Decisions = append(out.Decisions, d)
		}
		read++
		bytes += len(e.Data)
		if len(out.Decisions) >= min(limit, mostDecisions) || read >= mostSearched || bytes >= mostSearchedBytes {
			out.Next = e.Seq
			return false
		}
		return true
	})
	if out.Next == 1 {
		out.Next = 0
	}
	return out, err
}

// answers calls fn with the answers of a shard before a number, newest first, until it returns
// false.
func (w *Watcher) answers(
	ctx context.Context, swarm string, shard int, before uint64, fn func(sw Swarm, e swarms.Entry, at time.Time) bool,
) error {
	all := w.State().Swarms
	i := slices.IndexFunc(all, func(s Swarm) bool { return s.ID == swarm || s.Name == swarm })
	if i < 0 {
		return fmt.Errorf("swarm %s: %w", swarm, jobs.ErrNotFound)
	}
	sw := all[i]
	if shard < 0 || shard >= len(sw.Shards) {
		return fmt.Errorf("swarm %s has the shards 0 to %d, not %d: %w", swarm, len(sw.Shards)-1, shard,
			jobs.ErrNotFound)
	}
	last, err := w.conn.Swarms.Log(sw.Key, shard, swarms.Out).Last(ctx)
	if err != nil {
		return err
	}
	seq := last.Seq
	if before > 0 {
		seq = min(seq, before-1)
	}
	for ; seq > 0; seq-- {
		e, at, err := w.conn.Swarms.Entry(ctx, sw.Key, shard, swarms.Out, seq)
		if errors.Is(err, jobs.ErrNotFound) { // the log was trimmed there
			return nil
		}
		if err != nil || !fn(sw, e, at) {
			return err
		}
	}
	return nil
}

// decision decodes an answer, with its first rows or with the rows of some groups. An answer that
// cannot be decoded has neither rows nor body: anybody may write to a log.
func decision(sw Swarm, e swarms.Entry, at time.Time, groups ...uint32) Decision {
	d := Decision{Seq: e.Seq, Ref: e.Ref, At: at, Kind: e.Kind, Bytes: len(e.Data)}
	switch {
	case e.Kind == swarms.EntryDecide && sw.Addressed == "agent":
		if a, err := batch.DecodeAgentDecisions(e.Data); err == nil {
			d.Count, d.Rows = len(a.Agent), agentRows(a, uint32(sw.perGroup()), groups)
		}
	case e.Kind == swarms.EntryDecide:
		if g, err := batch.DecodeDecisions(e.Data); err == nil {
			d.Count, d.Rows = g.Len(), groupRows(g, groups)
		}
	case json.Valid(e.Data):
		d.Body = e.Data
	}
	return d
}

// perGroup returns the number of agents of a group, at least 1.
func (s Swarm) perGroup() int64 { return max(1, s.Agents/int64(max(1, s.Groups))) }

func groupRows(g *batch.Decisions, groups []uint32) (rows []DecisionRow) {
	for i := 0; i < g.Len() && len(rows) < mostRows; i++ {
		if len(groups) > 0 && !slices.Contains(groups, g.Group[i]) {
			continue
		}
		r := DecisionRow{
			Group: g.Group[i], Row: g.Row[i], Timestamp: g.Timestamp[i], Score: &g.Score[i], Leader: g.Leader[i],
			Round: g.Round[i], Decision: -1, Counts: g.Counts[i*g.Candidates : (i+1)*g.Candidates],
		}
		// The number of features differs by observation; Feature has the end of a row. JSON has no
		// NaN and no infinity.
		for f := 0; ; f++ {
			v, ok := g.Feature(i, f)
			if !ok {
				break
			}
			if math.IsNaN(v) || math.IsInf(v, 0) {
				r.Values = append(r.Values, nil)
			} else {
				r.Values = append(r.Values, &v)
			}
		}
		if g.Decision[i] != batch.NoDecision {
			r.Decision = int64(g.Decision[i])
		}
		rows = append(rows, r)
	}
	return rows
}

func agentRows(a *batch.AgentDecisions, size uint32, groups []uint32) (rows []DecisionRow) {
	for i := 0; i < len(a.Agent) && len(rows) < mostRows; i++ {
		r := DecisionRow{Group: a.Agent[i] / size, Agent: &a.Agent[i], Decision: -1}
		if len(groups) > 0 && !slices.Contains(groups, r.Group) {
			continue
		}
		if a.Decision[i] != batch.NoVote {
			r.Decision = int64(a.Decision[i])
		}
		if a.Score != nil && a.Score[i] == a.Score[i] {
			r.Score = &a.Score[i]
		}
		rows = append(rows, r)
	}
	return rows
}

// Rejection returns the message of a rejected entry. It fails for data that is no JSON; the caller
// then does without a message.
func Rejection(data []byte) (string, error) {
	var e jobs.Error
	if err := json.Unmarshal(data, &e); err != nil {
		return "", fmt.Errorf("rejected entry: %w", err)
	}
	return e.Message, nil
}
