package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// journalsOfShards is the number of the first journal among the logs of a job whose swarm has several
// shards. With one shard the journals follow that.
const journalsOfShards = 128

// batchPlan says which rows of a batch go to which shard. It does not change.
type batchPlan struct {
	groups []uint32 // of the rows, as in the output
	placed []uint32 // of the rows, in the swarm
	places [][]int  // by shard: indices of its rows
	swap   bool     // it is a swap, of the only shard with a place
}

// shardingOf is the part of the specification of a swarm that a job with several shards needs.
type shardingOf struct {
	Shards         int `json:"shards"`
	AgentsPerGroup int `json:"agents_per_group"`
}

// sharding reads the shards from the specification of the swarm.
func (s *stream) sharding() (of shardingOf, err error) {
	if len(s.spec.Spec) > 0 {
		if err := json.Unmarshal(s.spec.Spec, &of); err != nil {
			return of, jobs.Errorf(jobs.CodeInvalid, "job %s: stream spec: spec: %v", s.id, err)
		}
	}
	return of, nil
}

// shardCount returns the shards of a new swarm with some groups as its record has them. what names the
// job in the error.
func (s *stream) shardCount(what string, groups int) (int, error) {
	of, err := s.sharding()
	if err != nil || of.Shards <= 1 {
		return 0, err
	}
	if of.Shards > min(groups, swarms.MaxShards) {
		return 0, jobs.Errorf(
			jobs.CodeInvalid, "%s: shards: %d, and its swarm has %d groups, one for each series or entity: use at "+
				"most as many shards, and no more than %d", what, of.Shards, groups, swarms.MaxShards,
		)
	}
	return of.Shards, nil
}

// openShards makes the logs of the shards, without a request.
func (s *stream) openShards() {
	s.plans = map[uint64]*batchPlan{}
	for k := range s.record.ShardCount() {
		s.shards = append(s.shards, &shardLog{In: s.log(k, swarms.In), Out: s.log(k, swarms.Out)})
	}
	s.in, s.out = s.shards[0].In, s.shards[0].Out
}

// journalShard returns the number of the log with the journal of source i.
func (s *stream) journalShard(i int) int {
	if s.record.ShardCount() > 1 {
		return journalsOfShards + i
	}
	return 1 + i
}

// numbers returns the numbers of the groups, which are series or entities in outputs.
func (s *stream) numbers() feed.Groups {
	return feed.Groups{Record: s.record, Keyed: s.entities != nil}
}

// plan returns how the rows of a batch are split, and gives the plan to the goroutine that collects.
// placed has the groups of the rows in the swarm if entities lose their groups. It returns nil for a
// batch whose groups are those of the swarm, which has one shard.
func (s *stream) plan(number uint64, o *feed.Batch, placed []uint32) *batchPlan {
	if len(s.shards) == 1 && s.evict == nil {
		return nil
	}
	p := &batchPlan{
		groups: slices.Clone(o.Group), placed: slices.Clone(placed),
	}
	if s.evict == nil {
		for _, g := range p.groups {
			p.placed = append(p.placed, uint32(s.numbers().Group(int(g))))
		}
	}
	p.places = feed.Places(s.record, p.placed)
	s.mu.Lock()
	s.plans[number] = p
	s.mu.Unlock()
	return p
}

// missing reports whether a batch, or the part of a shard, is not in its log.
func (s *stream) missing(number uint64, p *batchPlan) bool {
	for i, k := range s.shards {
		if number > k.Stored && (p == nil || len(p.places[i]) > 0) {
			return true
		}
	}
	return false
}

// send appends a batch to the logs that do not have their part of it, concurrently. A log that an
// earlier attempt has written further than another one gets nothing twice: the rows of a part depend
// on the input alone, and its entry has the number of the batch.
func (s *stream) send(work context.Context, number uint64, o *feed.Batch, p *batchPlan) error {
	if p == nil {
		return s.shards[0].Send(work, number, &o.Observations)
	}
	var all sync.WaitGroup
	errs := make([]error, len(s.shards))
	for i, k := range s.shards {
		if number <= k.Stored || len(p.places[i]) == 0 {
			continue
		}
		part := feed.Pick(&o.Observations, p.places[i], p.placed)
		all.Go(func() {
			if err := k.Send(work, number, part); err != nil {
				errs[i] = fmt.Errorf("shard %d: %w", i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// noteSent notes that all batches up to a number are in the logs.
func (s *stream) noteSent(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = max(s.sent, number)
}

// countRows counts the rows of a batch for the ends of the logs.
func (s *stream) countRows(o *feed.Batch, p *batchPlan) {
	if p == nil {
		s.shards[0].Rows += uint64(o.Len())
		return
	}
	for i, k := range s.shards {
		k.Rows += uint64(len(p.places[i]))
	}
}

// inputEnded tells the goroutine that collects how many batches there are.
func (s *stream) inputEnded(batches uint64) {
	s.mu.Lock()
	s.over, s.total = true, batches
	s.mu.Unlock()
	s.signalAhead()
}

// merge puts the decisions of the shards together, batch after batch, in the order of the input. The
// bytes of outputs are those of one shard, and sinks see the same batches. The goroutine that
// collects uses it.
type merge struct {
	s      *stream
	agents int // of a group
	shard  int // that the next entry comes from
	plan   *batchPlan
	parts  []*batch.Decisions // by shard: those of the batch of plan so far
	ends   int                // shards whose end was read
	end    swarms.EndOfInput  // of all these shards
}

// newMerge returns a merge that begins with the first batch.
func newMerge(s *stream) (*merge, error) {
	of, err := s.sharding()
	if err != nil {
		return nil, err
	}
	return &merge{s: s, agents: of.AgentsPerGroup, parts: make([]*batch.Decisions, len(s.shards))}, nil
}

// next returns the channel of the shard whose answer comes next. While that depends on rows that are
// not read yet, it returns a nil channel, and wake as a signal to call next again.
func (m *merge) next(answers []chan swarms.Entry) (next <-chan swarms.Entry, wake <-chan struct{}) {
	s := m.s
	if len(s.shards) == 1 {
		return answers[0], nil
	}
	if m.plan == nil {
		s.mu.Lock()
		number := s.decided + 1
		over := s.over && s.decided == s.total
		s.mu.Unlock()
		m.take(number)
		switch {
		case m.plan != nil:
		case over:
			m.shard = m.ends
			return answers[m.shard], nil
		default:
			return nil, s.ahead
		}
	}
	for k, places := range m.plan.places {
		if len(places) > 0 && m.parts[k] == nil {
			m.shard = k
			break
		}
	}
	return answers[m.shard], nil
}

// take takes the plan of a batch, if its rows were read.
func (m *merge) take(number uint64) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.plan = m.s.plans[number]
	delete(m.s.plans, number)
}

// decided takes the decisions of a shard. It returns those of the whole batch when all shards have
// answered, and nil before. Groups and leaders are numbered as in the output.
func (m *merge) decided(part *batch.Decisions) (*batch.Decisions, error) {
	s := m.s
	if len(s.shards) == 1 {
		if s.evict == nil {
			return part, nil
		}
		m.take(s.decided + 1) // only this goroutine changes it
	}
	if m.plan == nil {
		return nil, m.wrong("decisions after the last batch")
	}
	if m.plan.swap {
		return nil, m.wrong("decisions in place of states")
	}
	m.parts[m.shard] = part
	for k, places := range m.plan.places {
		if len(places) > 0 && m.parts[k] == nil {
			return nil, nil
		}
	}
	d, err := batch.MergeDecisions(len(m.plan.groups), m.parts, m.plan.places)
	if err != nil {
		return nil, m.wrong(err.Error())
	}
	for i, of := range m.plan.groups {
		if group := m.plan.placed[i]; d.Group[i] != group {
			return nil, m.wrong(fmt.Sprintf("row %d is of group %d, want %d", i, d.Group[i], group))
		}
		feed.SetGroup(d, i, int(of), m.agents)
	}
	m.plan = nil
	clear(m.parts)
	return d, nil
}

// ended takes the end of the log of a shard, and reports whether all shards have ended.
func (m *merge) ended(e swarms.Entry) (all bool, err error) {
	if m.plan != nil {
		return false, m.wrong("the end of the log")
	}
	var end swarms.EndOfInput
	if err := json.Unmarshal(e.Data, &end); err != nil {
		return false, fmt.Errorf("end of swarm %s: %w", m.s.spec.Name, err)
	}
	m.end.Rows += end.Rows
	m.end.Interrupted = m.end.Interrupted || end.Interrupted
	m.ends++
	return m.ends == len(m.s.shards), nil
}

// wrong returns the error for an answer of a shard that does not fit the batch.
func (m *merge) wrong(what string) error {
	return jobs.Errorf(jobs.CodeInternal, "swarm %s, shard %d, batch %d: %s: the logs were changed by another program",
		m.s.spec.Name, m.shard, m.s.decided+1, what)
}
