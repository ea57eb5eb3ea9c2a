package state

import (
	"context"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
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

type groupBatch struct {
	s       *groupState
	entries []*batch.Observations // in the order of the log
	all     batch.Observations    // the columns that the device needs
}

func (s *groupState) NewBatch() Batch { return &groupBatch{s: s} }

// Add implements Batch. The first entry is not copied, since most batches have one. A later one is
// appended to copies.
func (m *groupBatch) Add(o Observations) {
	e, all := o.Groups, &m.all
	values := e.Value
	if len(values) != len(e.Features) { // of an earlier version
		values = e.Doubles(0, e.Len())
	}
	if m.entries = append(m.entries, e); len(m.entries) == 1 {
		// Clipped: appends copy the columns, and do not write behind the columns of a message.
		all.Group, all.Time, all.Value = slices.Clip(e.Group), slices.Clip(e.Time), slices.Clip(values)
		all.Features, all.Width = slices.Clip(e.Features), e.Width
		return
	}
	all.Group, all.Time = append(all.Group, e.Group...), append(all.Time, e.Time...)
	all.Value, all.Features = append(all.Value, values...), append(all.Features, e.Features...)
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

type agentBatch struct {
	s       *agentState
	entries []*batch.AgentObservations // in the order of the log
	parts   []agentPart                // of consecutive entries
}

// agentPart is observations that are stepped together: a long entry, after a Survey, or a run of
// shorter ones, after a Ranking.
type agentPart struct {
	entries  int
	ids      []uint32       // of all entries, as ids of the shard
	values   []float32      // of all entries, by observation
	items    []int32        // of all entries, if the cell has items; else nil
	launches []uint32       // by observation: its launch; see agents.Ranking
	several  bool           // a launch is not the first
	unranked bool           // the device deduplicates the one entry
	survey   *agents.Survey // of a long entry
}

// NewBatch implements State. All batches of a state share its ranking and its surveyor, so one
// batch is filled at a time.
func (s *agentState) NewBatch() Batch { return &agentBatch{s: s} }

func (m *agentBatch) Add(o Observations) {
	s, e := m.s, o.Agents
	m.entries = append(m.entries, e)
	long := agents.Surveys(s.agents, len(e.Agent))
	if n := len(m.parts); n > 0 && !long && m.parts[n-1].survey == nil {
		m.parts[n-1].append(s, e)
		return
	}
	p := agentPart{entries: 1, ids: s.localIDs(e), values: slices.Clip(e.Features), items: s.items(nil, e)}
	if long {
		if s.surveyor == nil {
			s.surveyor = agents.NewSurveyor(s.agents)
		}
		p.survey = s.surveyor.Survey(p.ids)
	} else {
		if s.ranking == nil {
			s.ranking = agents.NewRanking(s.agents.Len(), s.agents.Cell().Agents)
		}
		s.ranking.Forget()
		if p.unranked = s.agents.RanksOnDevice(len(p.ids)); !p.unranked {
			p.rank(s.ranking, p.ids)
		}
	}
	m.parts = append(m.parts, p)
}

// localIDs returns the agents of an entry as ids of the shard: its own slice, clipped, if they are
// the same.
func (s *agentState) localIDs(e *batch.AgentObservations) []uint32 {
	if s.groups.First == 0 {
		return slices.Clip(e.Agent)
	}
	return s.groups.local(nil, e.Agent, s.agents.Cell().Agents)
}

// items appends the items that an entry asks for, if the cell has items.
func (s *agentState) items(to []int32, e *batch.AgentObservations) []int32 {
	switch {
	case s.agents.Cell().Items == 0:
		return nil
	case e.Item != nil:
		return append(to, e.Item...)
	}
	for range e.Agent {
		to = append(to, kernels.AgentNoItem)
	}
	return to
}

func (p *agentPart) append(s *agentState, e *batch.AgentObservations) {
	from := len(p.ids)
	p.ids, p.values = s.groups.local(p.ids, e.Agent, s.agents.Cell().Agents), append(p.values, e.Features...)
	p.items = s.items(p.items, e)
	if p.unranked { // the first entry is not alone
		p.rank(s.ranking, p.ids[:from])
		p.unranked = false
	}
	p.rank(s.ranking, p.ids[from:])
	p.entries++
}

func (p *agentPart) rank(by *agents.Ranking, ids []uint32) {
	launches, several := by.Rank(ids, p.launches)
	p.launches, p.several = launches, p.several || several
}

func (m *agentBatch) Observe(ctx context.Context) (answers []Answer, err error) {
	if err := m.s.listen(ctx); err != nil {
		return nil, err
	}
	halved, next := 0, m.entries
	for i := range m.parts {
		p := &m.parts[i]
		launches := agents.Launches{Unknown: p.unranked, Survey: p.survey}
		if p.several {
			launches.Numbers = p.launches
		}
		var out agents.Outcome
		if len(p.ids) > 0 {
			var n int
			out, n, err = m.s.agents.ObserveParts(ctx, &m.s.splitter, p.ids, p.values, p.items, launches)
			if halved += n; err != nil {
				return nil, err
			}
		}
		from := 0
		for _, o := range next[:p.entries] {
			to := from + len(o.Agent)
			d := &batch.AgentDecisions{Agent: o.Agent, Vote: out.Votes[from:to], Decision: out.Decisions[from:to]}
			if o.Item != nil {
				d.Score = out.Scores[from:to]
			}
			answers = append(answers, Answer{Kind: swarms.EntryDecide, Observations: to - from, Body: d})
			from = to
		}
		next = next[p.entries:]
	}
	answers[0].Halved = halved
	return answers, nil
}

// applyObservations applies an entry of observations as a batch of its own, and returns its encoded
// answer. The bits are the same as in any longer batch.
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
