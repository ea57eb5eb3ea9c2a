package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// feeder gives rows of entities to a swarm whose groups are addressed, and reads its decisions in
// their order. The dictionary of the entities is in a log of the swarm, so it lasts as long as the
// swarm. One request at a time uses a feeder, between lock and unlock.
type feeder struct {
	swarm   *swarmclient.Swarm
	spec    *swarm.Spec
	columns rows.ColumnSpec
	in, out swarms.Log
	keys    *statelog.Keys

	turn chan struct{} // has an element while a request uses the feed

	entities *feed.Entities
	last     uint64        // entry of the log of the swarm
	answers  swarms.Reader // nil: opened by the next batch
	// summaries explain the decisions; nil for a specification without explain. They have seen every
	// answer before the next one of answers.
	summaries *explain.SummaryLog
	broken    bool // another request opens the feed again
}

func columnsOf(spec *swarm.Spec) rows.ColumnSpec {
	c := rows.ColumnSpec{
		Timestamp: spec.Timestamp, Features: spec.Features, AnyOrder: true, Key: spec.Key,
		MaxEntities: spec.MaxEntities,
	}
	if !spec.CSV.IsZero() {
		c.CSV = &spec.CSV
	}
	return c
}

// feedable prepares the specification of a swarm that lasts for rows: it has as many groups as
// entities, and late rows are dropped where they would end a run.
func feedable(spec *swarm.Spec) {
	if spec.Topology().ByAgent || spec.GroupCount != 0 {
		return
	}
	c := columnsOf(spec)
	spec.GroupCount = max(c.Entities(), 1)
	if spec.Observations.Late == swarm.Reject {
		spec.Observations.Late = swarm.Drop
	}
}

// feed returns the feed of a swarm for one request, which calls the function that it returns at its
// end.
func (s *Server) feed(ctx context.Context, name string) (*feeder, func(), error) {
	for {
		f, err := s.openFeed(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		select {
		case f.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, ErrBusy
		}
		if f.broken {
			<-f.turn
			continue
		}
		return f, func() {
			if f.broken {
				s.forget(f)
			}
			<-f.turn
		}, nil
	}
}

// forget drops a feed that is broken or whose swarm is gone. The caller has its turn.
func (s *Server) forget(f *feeder) {
	f.broken = true
	s.mu.Lock()
	if id := f.swarm.ID(); s.feeds[id] == f {
		delete(s.feeds, id)
	}
	s.mu.Unlock()
	f.close()
}

// openFeed returns the feed of a swarm that may be in use. A swarm that was deleted and created
// again gets a new feed.
func (s *Server) openFeed(ctx context.Context, name string) (*feeder, error) {
	sw, err := s.client.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	f := s.feeds[sw.ID()]
	s.mu.Unlock()
	if f != nil && f.swarm.Record().Nonce == sw.Record().Nonce {
		return f, nil
	}
	if f, err = newFeed(ctx, sw, s.o.Conn.Swarms.Log); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.feeds[sw.ID()]; now != nil && now.swarm.Record().Nonce == sw.Record().Nonce {
		return now, nil // another request was first
	}
	s.feeds[sw.ID()] = f
	return f, nil
}

func newFeed(ctx context.Context, sw *swarmclient.Swarm, log func(key string, shard int, d swarms.Direction) swarms.Log,
) (*feeder, error) {
	spec, record := sw.Spec(), sw.Record()
	switch {
	case spec.Topology().ByAgent:
		return nil, jobs.Errorf(jobs.CodeInvalid,
			"swarm %s: its agents are addressed, and rows are for groups: use observe", record.ID)
	case record.ShardCount() > 1:
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s: it has %d shards, and one that takes rows has one: leave "+
			"shards out of its specification", record.ID, record.ShardCount())
	case spec.EvictAfter != 0:
		return nil, jobs.Errorf(jobs.CodeInvalid,
			"swarm %s: evict_after is for detectors of the cluster: leave it out of "+"its specification", record.ID)
	}
	if err := sw.CanObserveGroups(); err != nil {
		return nil, err
	}
	f := &feeder{
		swarm: sw, spec: spec, columns: columnsOf(spec), entities: feed.NewEntities(record.Groups, nil),
		in: log(record.Key(), 0, swarms.In), out: log(record.Key(), 0, swarms.Out),
		keys: statelog.NewKeys(log(record.Key(), statelog.KeyShard, swarms.In)), turn: make(chan struct{}, 1),
	}
	end, err := f.in.Last(ctx)
	if err != nil {
		return nil, err
	}
	f.last = end.Seq
	if len(spec.Key) > 0 {
		if err := f.loadKeys(ctx); err != nil {
			return nil, err
		}
	}
	return f, f.openSummaries(ctx, log(record.Key(), summaryShard, swarms.In))
}

func (f *feeder) loadKeys(ctx context.Context) error {
	if err := f.keys.Open(ctx); err != nil {
		return err
	}
	// Keys are stored before the rows of their entities. After a crash between the two the last
	// entities have no row yet, and keep their groups.
	all, err := f.keys.Load(ctx, -1)
	if errors.Is(err, statelog.ErrDamaged) {
		err = jobs.Errorf(jobs.CodeInternal, "swarm %s: %v", f.swarm.ID(), err)
	}
	if err != nil {
		return err
	}
	for g, a := range all {
		if a.Group != g {
			return jobs.Errorf(jobs.CodeInvalid, "swarm %s: a detector of the cluster feeds it", f.swarm.ID())
		}
	}
	return f.entities.Restore(all)
}

func (f *feeder) close() {
	if f.answers != nil {
		f.answers.Close()
		f.answers = nil
	}
}

// group returns the group of an entity, and false if there are as many entities as may be.
func (f *feeder) group(key string) (int, bool, error) {
	if len(f.columns.Key) == 0 {
		return 0, true, nil
	}
	g, _, full, err := f.entities.Add(key)
	return g, !full, err
}

// source returns rows of a request as observations.
type source interface {
	// next adds rows to a batch until it is full, and returns errEnd after the last one.
	next(b *feed.Batch) error
}

// run feeds all rows of a source, and calls take with their decisions in the order of the rows.
// After an error the rows of earlier batches have taken effect; sent is their number.
func (f *feeder) run(ctx context.Context, from source, take func(*batch.Decisions) error) (sent int, err error) {
	defer func() {
		if err != nil {
			f.broken = true
		}
	}()
	var open []uint64 // entries without an answer
	b := feed.NewBatch(len(f.columns.Features), batch.MaxRows)
	for end := false; !end || len(open) > 0; {
		if !end && len(open) < feed.Unanswered {
			more := from.next(b)
			if more != nil && !errors.Is(more, errEnd) {
				return sent, more
			}
			end = more != nil
			if b.Len() == 0 {
				continue
			}
			entry, err := f.send(ctx, b)
			if err != nil {
				return sent, err
			}
			open, sent = append(open, entry), sent+b.Len()
			b.Reset()
			continue
		}
		d, err := f.answer(ctx, open[0])
		if err == nil {
			err = take(d)
		}
		if err != nil {
			return sent, err
		}
		open = open[1:]
	}
	return sent, nil
}

var errEnd = errors.New("no more rows")

// send appends a batch, after the keys that are new in it, and returns the number of its entry.
func (f *feeder) send(ctx context.Context, b *feed.Batch) (uint64, error) {
	data, err := b.Pack()
	if err != nil {
		return 0, err
	}
	if err := f.keys.Store(ctx, f.entities.Fresh(f.keys.Stored()), nil); err != nil {
		return 0, err
	}
	if f.answers == nil {
		answered, err := f.out.Last(ctx)
		if err != nil {
			return 0, err
		}
		next := answered.Seq + 1
		if f.summaries != nil {
			next = max(f.summaries.Next(), 1)
		}
		if f.answers, err = f.out.Read(ctx, next); err != nil {
			return 0, err
		}
	}
	// Another writer may have appended a question meanwhile.
	e := swarms.Entry{Kind: swarms.EntryObserve, Ref: f.last + 1, Data: data}
	if err := statelog.Append(ctx, f.in, &f.last, e, func(other swarms.Entry) error {
		if other.Kind == swarms.EntryEnd {
			return jobs.Errorf(jobs.CodeInvalid, "swarm %s: its log has ended", f.swarm.ID())
		}
		return nil
	}); err != nil {
		return 0, fmt.Errorf("send a batch: %w", err)
	}
	return f.last, nil
}

// answer waits for the answer to an entry.
func (f *feeder) answer(ctx context.Context, entry uint64) (*batch.Decisions, error) {
	late, cancel := context.WithTimeoutCause(ctx, swarmclient.DefaultTimeout, jobs.Errorf(jobs.CodeDeadline,
		"swarm %s: entry %d of its log has no answer after %v, and stays there until it has one: see that a GPU agent "+
			"runs (exoswarm agent list)", f.swarm.ID(), entry, swarmclient.DefaultTimeout))
	defer cancel()
	for {
		e, err := f.answers.Next(late)
		if err != nil {
			return nil, err
		}
		var d *batch.Decisions
		if e.Kind == swarms.EntryDecide && (e.Ref >= entry || f.summaries != nil) {
			if d, err = f.decided(e); err != nil {
				return nil, err
			}
		}
		if e.Ref < entry {
			continue
		}
		switch e.Kind {
		case swarms.EntryDecide:
			return d, nil
		case swarms.EntryRejected:
			refused := &jobs.Error{Code: jobs.CodeInternal, Message: "the swarm refused an entry"}
			if err := json.Unmarshal(e.Data, refused); err != nil {
				return nil, fmt.Errorf("refusal of entry %d: %w", entry, err)
			}
			return nil, refused
		}
		return nil, jobs.Errorf(jobs.CodeInternal, "swarm %s: entry %d was answered with a %.100q", f.swarm.ID(), entry,
			e.Kind)
	}
}
