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

// journalsOfShards is the number of the first journal among the logs of a job whose swarm has
// several shards. With one shard the journals follow that.
const journalsOfShards = 128

// batchPlan says which rows of a batch go to which shard. It does not change.
type batchPlan struct {
	groups []uint32 // of the rows, as in the output
	placed []uint32 // of the rows, in the swarm
	places [][]int  // by shard: indices of its rows
	swap   bool     // it is a swap, of the only shard with a place
}

// runLogs are the logs of the shards of a run, and the split of its batches between them.
type runLogs struct {
	groups feed.Groups // series or entities in outputs
	shards []*shardLog
	evicts bool // entities lose their groups
}

func (s *stream) openShards() *runLogs {
	l := &runLogs{groups: feed.Groups{Record: s.record, Keyed: s.entities != nil}, evicts: s.evict != nil}
	for k := range s.record.ShardCount() {
		l.shards = append(l.shards, &shardLog{In: s.log(k, swarms.In), Out: s.log(k, swarms.Out)})
	}
	return l
}

// plan returns how the rows of a batch are split. placed has the groups of the rows in the swarm if
// entities lose their groups. The plan is nil if the batch has the groups of the swarm, which has
// one shard.
func (l *runLogs) plan(o *feed.Batch, placed []uint32) *batchPlan {
	if len(l.shards) == 1 && !l.evicts {
		return nil
	}
	p := &batchPlan{groups: slices.Clone(o.Group), placed: slices.Clone(placed)}
	if !l.evicts {
		for _, g := range p.groups {
			p.placed = append(p.placed, uint32(l.groups.Group(int(g))))
		}
	}
	p.places = feed.Places(l.groups.Record, p.placed)
	return p
}

// planSwap returns the plan of a swap of one of several shards; nil for the only shard.
func (l *runLogs) planSwap(shard int) *batchPlan {
	if len(l.shards) == 1 {
		return nil
	}
	p := &batchPlan{swap: true, places: make([][]int, len(l.shards))}
	p.places[shard] = []int{0}
	return p
}

// missing reports whether a batch, or the part of a shard, is not in its log.
func (l *runLogs) missing(number uint64, p *batchPlan) bool {
	for i, k := range l.shards {
		if number > k.Stored && (p == nil || len(p.places[i]) > 0) {
			return true
		}
	}
	return false
}

// send appends a batch to the logs that do not have their part of it, concurrently. A log that an
// earlier attempt has written further than another one gets nothing twice: the rows of a part
// depend on the input alone, and its entry has the number of the batch.
func (l *runLogs) send(work context.Context, number uint64, o *feed.Batch, p *batchPlan) error {
	if p == nil {
		return l.shards[0].Send(work, number, &o.Observations)
	}
	var all sync.WaitGroup
	errs := make([]error, len(l.shards))
	for i, k := range l.shards {
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

func (l *runLogs) countRows(o *feed.Batch, p *batchPlan) {
	if p == nil {
		l.shards[0].Rows += uint64(o.Len())
		return
	}
	for i, k := range l.shards {
		k.Rows += uint64(len(p.places[i]))
	}
}

// merge puts the decisions of the shards together, batch after batch, in the order of the input.
// The bytes of outputs are as with one shard, and sinks see the same batches. The goroutine that
// collects uses it.
type merge struct {
	name   string // of the swarm
	shards int
	evicts bool // entities lose their groups
	x      *exchange
	agents int // of a group
	shard  int // that the next entry comes from
	plan   *batchPlan
	parts  []*batch.Decisions // by shard: the answers to the batch of plan so far
	ends   int                // shards whose end was read
	end    swarms.EndOfInput  // of all these shards
}

func newMerge(s *stream) (*merge, error) {
	of, err := s.sharding()
	if err != nil {
		return nil, err
	}
	n := len(s.logs.shards)
	return &merge{
		name: s.spec.Name, shards: n, evicts: s.evict != nil, x: s.x, agents: of.AgentsPerGroup,
		parts: make([]*batch.Decisions, n),
	}, nil
}

// next returns the channel of the shard whose answer comes next. While that depends on rows that
// are not read yet, it returns a nil channel, and wake as a signal to call next again.
func (m *merge) next(answers []chan swarms.Entry) (next <-chan swarms.Entry, wake <-chan struct{}) {
	if m.shards == 1 {
		return answers[0], nil
	}
	if m.plan == nil {
		over := m.x.allDecided()
		m.plan = m.x.takePlan()
		switch {
		case m.plan != nil:
		case over:
			m.shard = m.ends
			return answers[m.shard], nil
		default:
			return nil, m.x.ahead
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

// decided takes the decisions of a shard. It returns the decisions of the whole batch when all
// shards have answered, and nil before. Groups and leaders are numbered as in the output.
func (m *merge) decided(part *batch.Decisions) (*batch.Decisions, error) {
	if m.shards == 1 {
		if !m.evicts {
			return part, nil
		}
		m.plan = m.x.takePlan()
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
		return false, fmt.Errorf("end of swarm %s: %w", m.name, err)
	}
	m.end.Rows += end.Rows
	m.end.Interrupted = m.end.Interrupted || end.Interrupted
	m.ends++
	return m.ends == m.shards, nil
}

// wrong returns the error for an answer of a shard that does not fit the batch.
func (m *merge) wrong(what string) error {
	return jobs.Errorf(jobs.CodeInternal, "swarm %s, shard %d, batch %d: %s: the logs were changed by another program",
		m.name, m.shard, m.x.next(), what)
}
