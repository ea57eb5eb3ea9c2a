package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Bounds of a batch, which are those of a stream job, and the number of batches without an answer.
const (
	batchRows  = 4096
	batchBytes = 480 << 10
	window     = 4
)

// feed gives rows of entities to a swarm whose groups are addressed, and reads its decisions in their
// order. The dictionary of the entities is in a log beside that of the swarm, so it lasts as long as
// the swarm. One request at a time uses a feed, between lock and unlock.
type feed struct {
	swarm   *swarmclient.Swarm
	spec    *swarm.Spec
	columns rows.ColumnSpec
	most    int // entities
	in, out swarms.Log
	keys    *statelog.Keys

	turn chan struct{} // has an element while a request uses the feed

	entities []string       // keys by group
	groups   map[string]int // by key
	last     uint64         // entry of the log of the swarm
	answers  swarms.Reader  // nil: opened by the next batch
	// summaries explain the decisions; nil for a specification without explain. They have seen every
	// answer before the next one of answers.
	summaries *explainlog.Log
	broken    bool // another request opens the feed again

	mu sync.Mutex // guards entities, for the encoder
}

// Key implements encode.Entities.
func (f *feed) Key(group int) (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if group < 0 || group >= len(f.entities) {
		return "", false
	}
	return f.entities[group], true
}

// columnsOf returns the columns of the rows of a swarm.
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

// feedable changes the specification of a swarm that lasts to one that takes rows: it has as many
// groups as entities, and late rows are dropped where they would end a run.
func feedable(spec *swarm.Spec) {
	if spec.ByAgent() || spec.GroupCount != 0 {
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
func (s *Server) feed(ctx context.Context, name string) (*feed, func(), error) {
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
func (s *Server) forget(f *feed) {
	f.broken = true
	s.mu.Lock()
	if id := f.swarm.ID(); s.feeds[id] == f {
		delete(s.feeds, id)
	}
	s.mu.Unlock()
	f.close()
}

// openFeed returns the feed of a swarm that may be in use. A swarm that was deleted and created again
// gets a new one.
func (s *Server) openFeed(ctx context.Context, name string) (*feed, error) {
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

// newFeed opens the feed of a swarm.
func newFeed(ctx context.Context, sw *swarmclient.Swarm, log func(key string, shard int, d swarms.Direction) swarms.Log,
) (*feed, error) {
	spec, record := sw.Spec(), sw.Record()
	switch {
	case spec.ByAgent():
		return nil, jobs.Errorf(
			jobs.CodeInvalid,
			"swarm %s: its agents are addressed, and rows are for groups: use observe",
			record.ID,
		)
	case record.ShardCount() > 1:
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s: it has %d shards, and one that takes rows has one: leave "+
			"shards out of its specification", record.ID, record.ShardCount())
	case spec.EvictAfter != 0:
		return nil, jobs.Errorf(
			jobs.CodeInvalid,
			"swarm %s: evict_after is for detectors of the cluster: leave it out of "+
				"its specification",
			record.ID,
		)
	}
	if err := sw.CanObserveGroups(); err != nil {
		return nil, err
	}
	f := &feed{
		swarm: sw, spec: spec, columns: columnsOf(spec), most: record.Groups, groups: map[string]int{},
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

// loadKeys reads the entities of the feed.
func (f *feed) loadKeys(ctx context.Context) error {
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
		f.entities = append(f.entities, a.Key)
		f.groups[a.Key] = g
	}
	return nil
}

// close ends the reader of answers.
func (f *feed) close() {
	if f.answers != nil {
		f.answers.Close()
		f.answers = nil
	}
}

// group returns the group of an entity, and false if there are as many entities as may be.
func (f *feed) group(key string) (int, bool) {
	if len(f.columns.Key) == 0 {
		return 0, true
	}
	g, ok := f.groups[key]
	if !ok {
		if g = len(f.entities); g == f.most {
			return 0, false
		}
		f.mu.Lock()
		f.entities = append(f.entities, key)
		f.mu.Unlock()
		f.groups[key] = g
	}
	return g, true
}

// source returns rows of a request as observations.
type source interface {
	// next appends rows to o until it has enough of them, and returns io.EOF after the last one.
	// enough is called after each row.
	next(o *batch.Observations, enough func() bool) error
}

// run feeds all rows of a source, and calls take with their decisions in the order of the rows. After
// an error the rows of earlier batches have taken effect; sent is their number.
func (f *feed) run(ctx context.Context, from source, take func(*batch.Decisions) error) (sent int, err error) {
	defer func() {
		if err != nil {
			f.broken = true
		}
	}()
	var open []uint64 // entries without an answer
	o := &batch.Observations{Width: len(f.columns.Features)}
	size := 12*o.Width + 56
	bytes, seen := 0, 0
	enough := func() bool {
		for ; seen < o.Len(); seen++ {
			bytes += len(o.Timestamp[seen]) + size
		}
		return seen >= batchRows || bytes >= batchBytes
	}
	for end := false; !end || len(open) > 0; {
		if !end && len(open) < window {
			more := from.next(o, enough)
			if more != nil && !errors.Is(more, errEnd) {
				return sent, more
			}
			end = more != nil
			if o.Len() == 0 {
				continue
			}
			entry, err := f.send(ctx, o)
			if err != nil {
				return sent, err
			}
			open, sent = append(open, entry), sent+o.Len()
			o.Reset()
			bytes, seen = 0, 0
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

// errEnd is that of a source after its last row.
var errEnd = errors.New("no more rows")

// send appends a batch, after the keys that are new in it, and returns the number of its entry.
func (f *feed) send(ctx context.Context, o *batch.Observations) (uint64, error) {
	data, err := o.Pack()
	if err != nil {
		return 0, err
	}
	if err := f.keys.Store(ctx, f.entities[f.keys.Stored():], nil); err != nil {
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
	for {
		err := f.in.Append(ctx, f.last, swarms.Entry{Kind: swarms.EntryObserve, Ref: f.last + 1, Data: data})
		if err == nil {
			f.last++
			return f.last, nil
		}
		if !errors.Is(err, jobs.ErrFenced) || ctx.Err() != nil {
			return 0, fmt.Errorf("send a batch: %w", err)
		}
		now, err := f.in.Last(ctx) // another writer asked something meanwhile
		if err != nil {
			return 0, err
		}
		if now.Kind == swarms.EntryEnd {
			return 0, jobs.Errorf(jobs.CodeInvalid, "swarm %s: its log has ended", f.swarm.ID())
		}
		f.last = now.Seq
	}
}

// answer waits for the answer to an entry.
func (f *feed) answer(ctx context.Context, entry uint64) (*batch.Decisions, error) {
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
