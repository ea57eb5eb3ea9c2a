package state

import (
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Observations are the decoded and checked observations of an entry: of groups, or of agents. One
// of the two is set. Their slices share the memory of the entry and are not changed.
type Observations struct {
	Groups *batch.Observations
	Agents *batch.AgentObservations
}

// Len returns the number of observations. It must not be called on the zero value.
func (o Observations) Len() int {
	if o.Agents != nil {
		return len(o.Agents.Agent)
	}
	return o.Groups.Len()
}

// Batch is the observations of consecutive entries that are applied together. One goroutine fills
// it, and then the goroutine of its State applies it, once. A Batch without an entry is not
// applied.
type Batch interface {
	// Add appends the observations of an entry.
	Add(o Observations)
	// Observe applies the observations and returns an answer to each entry, with the bits that the
	// answers have one entry at a time. After an error the pages are undefined.
	Observe(ctx context.Context) ([]Answer, error)
}

// groupBatch is a Batch of observations of groups.
type groupBatch struct {
	s       *groupState
	entries []*batch.Observations // in the order of the log
	all     batch.Observations    // the columns that the device needs
}

// NewBatch implements State.
func (s *groupState) NewBatch() Batch { return &groupBatch{s: s} }

// Add implements Batch. The first entry is not copied, since most batches have one. A later one is
// appended to copies.
func (m *groupBatch) Add(o Observations) {
	e, all := o.Groups, &m.all
	if m.entries = append(m.entries, e); len(
		m.entries,
	) == 1 { // clipped: appends copy the columns, and do not write behind those of a message
		all.Group, all.Time, all.Features, all.Width = slices.Clip(
			e.Group,
		), slices.Clip(
			e.Time,
		), slices.Clip(
			e.Features,
		), e.Width
		return
	}
	all.Group, all.Time, all.Features = append(
		all.Group,
		e.Group...), append(
		all.Time,
		e.Time...), append(
		all.Features,
		e.Features...)
}

// Observe implements Batch. An entry is a part of a longer batch: cuts change no bit.
func (m *groupBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	all, halved, err := m.s.observe(ctx, &m.all)
	if err != nil {
		return nil, err
	}
	from := 0
	for _, o := range m.entries {
		to, c := from+o.Len(), all.Candidates
		d := &batch.Decisions{
			Group: o.Group, Row: o.Row, Read: o.Read, Timestamp: o.Timestamp, Value: o.Value,
			Score: all.Score[from:to], Decision: all.Decision[from:to], Candidates: c,
			Counts: all.Counts[from*c : to*c], Leader: all.Leader[from:to], Round: all.Round[from:to],
		}
		a := Answer{Kind: swarms.EntryDecide, Observations: o.Len(), Body: d}
		if all.Dropped != nil {
			d.Dropped = all.Dropped[from:to]
			for _, why := range d.Dropped {
				a.Dropped[why]++
			}
			a.Observations = a.Dropped[batch.Applied]
		}
		answers = append(answers, a)
		from = to
	}
	answers[0].Halved = halved
	return answers, nil
}

// agentBatch is a Batch of observations of agents.
type agentBatch struct {
	s        *agentState
	entries  []*batch.AgentObservations // in the order of the log
	ids      []uint32                   // of all entries, as ids of the shard
	inputs   []float32                  // of all entries, by observation and feature
	launches []uint32                   // by observation: its launch; see agents.Ranking
	several  bool                       // a launch is not the first
	unranked bool                       // the device looks at the one entry
}

// NewBatch implements State. All batches of a state share its ranking, so one batch is filled at a
// time.
func (s *agentState) NewBatch() Batch {
	if s.ranking == nil {
		s.ranking = agents.NewRanking(s.agents.Len(), s.agents.Cell().Agents)
	}
	s.ranking.Forget()
	return &agentBatch{s: s}
}

// Add implements Batch.
func (m *agentBatch) Add(o Observations) {
	e := o.Agents
	from, has := len(m.ids), m.s.groups
	if m.entries = append(m.entries, e); len(m.entries) == 1 {
		m.inputs = slices.Clip(e.Features)
		if has.First == 0 {
			m.ids = slices.Clip(e.Agent)
		} else {
			m.ids = has.local(nil, e.Agent, m.s.agents.Cell().Agents)
		}
	} else {
		m.ids, m.inputs = has.local(m.ids, e.Agent, m.s.agents.Cell().Agents), append(m.inputs, e.Features...)
	}
	if m.unranked = len(m.entries) == 1 && m.s.agents.RanksOnDevice(len(m.ids)); m.unranked {
		return
	}
	if len(m.entries) == 2 && len(m.launches) < from { // the first entry is not alone
		m.rank(m.ids[:from])
	}
	m.rank(m.ids[from:])
}

// rank ranks the observations of the next entry.
func (m *agentBatch) rank(ids []uint32) {
	launches, several := m.s.ranking.Rank(ids, m.launches)
	m.launches, m.several = launches, m.several || several
}

// Observe implements Batch.
func (m *agentBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	launches := m.launches
	if !m.several {
		launches = nil
	}
	var votes, decisions []byte
	halved := 0
	if len(m.ids) > 0 {
		if err := m.s.listen(ctx); err != nil {
			return nil, err
		}
		if votes, decisions, halved, err = m.s.agents.ObserveParts(ctx, &m.s.splitter, m.ids, m.inputs,
			agents.Launches{Numbers: launches, Unknown: m.unranked}); err != nil {
			return nil, err
		}
	}
	for _, o := range m.entries {
		n := len(o.Agent)
		answers = append(
			answers,
			Answer{
				Kind:         swarms.EntryDecide,
				Observations: n,
				Body:         &batch.AgentDecisions{Agent: o.Agent, Vote: votes[:n], Decision: decisions[:n]},
			},
		)
		votes, decisions = votes[n:], decisions[n:]
	}
	answers[0].Halved = halved
	return answers, nil
}

// applyObservations applies an entry of observations as a batch of its own, and returns its encoded
// answer. The bits are those of the entry in any longer batch.
func applyObservations(ctx context.Context, p State, e swarms.Entry) (Answer, error) {
	o, err := p.Decode(e.Data)
	if err != nil {
		return Answer{}, err
	}
	m := p.NewBatch()
	m.Add(o)
	answers, err := m.Observe(ctx)
	if err != nil {
		return Answer{}, err
	}
	return answers[0].Encoded()
}
