package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Decision is an answer in the log of a shard. The log may be trimmed and anybody with rights to
// the log may write to it, so readers check every field.
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
// has Agent and Decision only.
type DecisionRow struct {
	Group uint32  `json:"group"`
	Agent *uint32 `json:"agent,omitempty"` // of swarms whose agents are addressed
	Row   uint64  `json:"row,omitempty"`
	// Timestamp, Values and Score are those of the observation; of agents there are none. A value that
	// is no finite number is null.
	Timestamp string     `json:"timestamp,omitempty"`
	Values    []*float64 `json:"values,omitempty"`
	Score     float32    `json:"score"`
	// Decision is the number of the winning candidate, -1 where none won, and Counts the votes for each.
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

// Decisions returns the newest answers of a shard of a swarm, by its name or id, newest first, at
// most limit and 200. jobs.ErrNotFound where there is no such swarm or shard. The shard is looked
// up in the newest State, so a swarm that was created after the last look is not found. Each entry
// is one request to the server. On any other error the entries that were read so far come with it.
func (w *Watcher) Decisions(ctx context.Context, swarm string, shard, limit int) ([]Decision, error) {
	for _, sw := range w.State().Swarms {
		if sw.ID != swarm && sw.Name != swarm {
			continue
		}
		if shard < 0 || shard >= len(sw.Shards) {
			return nil, fmt.Errorf("swarm %s has the shards 0 to %d, not %d: %w", swarm, len(sw.Shards)-1, shard,
				jobs.ErrNotFound)
		}
		return w.decisions(ctx, sw, shard, min(limit, mostDecisions))
	}
	return nil, fmt.Errorf("swarm %s: %w", swarm, jobs.ErrNotFound)
}

// decisions reads the log of answers of a shard from its end backwards. A gap ends the list without
// an error: entries are only ever removed from the front of a log.
func (w *Watcher) decisions(ctx context.Context, sw Swarm, shard, limit int) ([]Decision, error) {
	all := []Decision{}
	last, err := w.conn.Swarms.Log(sw.Key, shard, swarms.Out).Last(ctx)
	if err != nil || limit <= 0 {
		return all, err
	}
	for seq := last.Seq; seq > 0 && len(all) < limit; seq-- {
		e, at, err := w.conn.Swarms.Entry(ctx, sw.Key, shard, swarms.Out, seq)
		if errors.Is(err, jobs.ErrNotFound) { // the log was trimmed there
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, decision(sw, e, at))
	}
	return all, nil
}

// decision decodes an answer. One that cannot be decoded has neither rows nor body: anybody may write
// to a log.
func decision(sw Swarm, e swarms.Entry, at time.Time) Decision {
	d := Decision{Seq: e.Seq, Ref: e.Ref, At: at, Kind: e.Kind, Bytes: len(e.Data)}
	switch {
	case e.Kind == swarms.EntryDecide && sw.Addressed == "agent":
		if a, err := batch.DecodeAgentDecisions(e.Data); err == nil {
			d.Count, d.Rows = len(a.Agent), agentRows(a)
		}
	case e.Kind == swarms.EntryDecide:
		if g, err := batch.DecodeDecisions(e.Data); err == nil {
			d.Count, d.Rows = g.Len(), groupRows(g)
		}
	case json.Valid(e.Data):
		d.Body = e.Data
	}
	return d
}

// groupRows returns at most mostRows rows of a table of groups. Counts of a row is a part of g.
func groupRows(g *batch.Decisions) (rows []DecisionRow) {
	for i := range min(g.Len(), mostRows) {
		r := DecisionRow{
			Group: g.Group[i], Row: g.Row[i], Timestamp: g.Timestamp[i], Score: g.Score[i], Leader: g.Leader[i],
			Round: g.Round[i], Decision: -1, Counts: g.Counts[i*g.Candidates : (i+1)*g.Candidates],
		}
		// The number of features differs by observation; Feature tells where a row ends. JSON has
		// no NaN and no infinity.
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

// agentRows returns at most mostRows rows of a table of single agents. Pointers of a row point into
// a.
func agentRows(a *batch.AgentDecisions) (rows []DecisionRow) {
	for i := range min(len(a.Agent), mostRows) {
		r := DecisionRow{Agent: &a.Agent[i], Decision: -1}
		if a.Decision[i] != batch.NoVote {
			r.Decision = int64(a.Decision[i])
		}
		rows = append(rows, r)
	}
	return rows
}

// rejection returns the message of a rejected entry. The error is that of data which are no JSON;
// the caller then does without a message.
func rejection(data []byte) (string, error) {
	var e jobs.Error
	if err := json.Unmarshal(data, &e); err != nil {
		return "", fmt.Errorf("rejected entry: %w", err)
	}
	return e.Message, nil
}
