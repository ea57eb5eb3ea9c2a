package swarmclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Spool keeps the bytes of observations on the disk of this machine until no replay needs them, and
// another process serves them to GPU agents. Spool of jobs/bulk is one. Its methods may be called
// from several goroutines.
type Spool interface {
	// Put stores the data of a shard durably and returns their description. swarm is the key of a
	// record. It does not keep data.
	Put(ctx context.Context, swarm string, shard int, data []byte) (swarms.Bulk, error)
	// Appended notes the number of the entry that has the description.
	Appended(b swarms.Bulk, entry uint64) error
	// Remove removes the data of a description that is in no log.
	Remove(b swarms.Bulk) error
}

// maxAppend bounds the time from Put to the end of the append. A Spool keeps data whose entry it does
// not know for longer.
const maxAppend = 30 * time.Minute

// mostParts bounds the parts of ObserveBulk that are not answered: a part has 16 MiB, and as much
// again while it is encoded.
const mostParts = 16

// ObserveBulk is Observe with the bytes of the observations in a spool, beside the log. Entries have
// up to 65,536 observations of any width. Several are on their way at a time, in their order: after
// an error, the entries that are not counted may take effect too.
func (s *Swarm) ObserveBulk(ctx context.Context, spool Spool, o *batch.AgentObservations,
	fn func(*batch.AgentDecisions) error,
) (entries int, err error) {
	// The frames of the columns need less than 64 KiB.
	rows := min(swarms.MaxAddressed, (swarms.MaxBulk-64<<10)/(4+4*len(s.spec.Features)))
	return observeBulk(ctx, s, spool, bulkRows[*batch.AgentDecisions]{
		n: len(o.Agent), rows: rows,
		split: func(first, end int) (bulkSplit[*batch.AgentDecisions], error) {
			part := &batch.AgentObservations{
				Agent: o.Agent[first:end], Features: o.Features[first*o.Width : end*o.Width], Width: o.Width,
			}
			split, err := partition.Agents(s.record, s.spec.AgentsPerGroup, part.Agent)
			if err != nil {
				return bulkSplit[*batch.AgentDecisions]{}, err
			}
			return bulkSplit[*batch.AgentDecisions]{
				has:    split.Has,
				encode: func(k int) ([]byte, error) { return split.Observations(part, k).Encode() },
				decode: batch.DecodeAgentDecisions, merge: split.Decisions,
			}, nil
		},
	}, fn)
}

// ObserveGroupsBulk is ObserveGroups with the bytes of the observations in a spool, as ObserveBulk is
// for agents.
func (s *Swarm) ObserveGroupsBulk(ctx context.Context, spool Spool, o *batch.Observations,
	fn func(*batch.Decisions) error,
) (entries int, err error) {
	return observeBulk(ctx, s, spool, bulkRows[*batch.Decisions]{
		n: o.Len(), rows: s.maxBulkGroupRows(),
		split: func(first, end int) (bulkSplit[*batch.Decisions], error) {
			part := &batch.Observations{
				Group: o.Group[first:end], Row: o.Row[first:end], Time: o.Time[first:end], Read: o.Read[first:end],
				Features: o.Features[first*o.Width : end*o.Width],
				Width:    o.Width, Timestamp: o.Timestamp[first:end], Value: o.Value[first*o.Width : end*o.Width],
			}
			split, err := partition.Groups(s.record, part.Group)
			if err != nil {
				return bulkSplit[*batch.Decisions]{}, err
			}
			return bulkSplit[*batch.Decisions]{
				has:    split.Has,
				encode: func(k int) ([]byte, error) { return split.GroupObservations(part, k).Encode() },
				decode: batch.DecodeDecisions, merge: split.GroupDecisions,
			}, nil
		},
	}, fn)
}

// maxBulkGroupRows returns how many observations of groups one entry beside the log takes. Its answer
// has at most 120 bytes a row, the timestamp and 4 bytes for every candidate, and must fit a message.
func (s *Swarm) maxBulkGroupRows() int {
	answer := 120 + MaxTimestamp + 4*len(s.spec.Vote.Candidates)
	return max(1, min(4096, (720<<10)/answer, (swarms.MaxBulk-64<<10)/(56+MaxTimestamp+12*len(s.spec.Features))))
}

// bulkRows are observations that are sent in parts; T is what answers them.
type bulkRows[T any] struct {
	n, rows int // all, and the most of a part
	split   func(first, end int) (bulkSplit[T], error)
}

// bulkSplit is a part of the observations over the shards of a swarm.
type bulkSplit[T any] struct {
	has    func(k int) bool
	encode func(k int) ([]byte, error)
	decode func([]byte) (T, error)
	merge  func([]T) (T, error)
}

// bulkPart is a part on its way. One goroutine at a time uses it: the channels hand it on.
type bulkPart[T any] struct {
	bulkSplit[T]
	first  int           // its first observation
	put    time.Time     // before its data were put into the spool
	all    []swarms.Bulk // by shard; without an ID: the shard has nothing of it
	from   []uint64      // by shard: where the answer is looked for
	seq    []uint64      // by shard: the number of the entry; 0: it is not appended
	value  T
	err    error
	ready  chan struct{} // closed when all is set, or err
	done   chan struct{} // closed when value is set, or err
	failed error         // the error of an earlier part, for which this one was not appended
}

// observeBulk sends all parts. Parts are encoded and put into the spool at the same time, appended in
// their order, and answered at the same time; fn is called in their order.
func observeBulk[T any](ctx context.Context, s *Swarm, spool Spool, o bulkRows[T], fn func(T) error) (int, error) {
	window := min(4*s.record.ShardCount(), mostParts)
	feed, stop := context.WithCancel(ctx)
	defer stop()
	ready, sent := make(chan *bulkPart[T], window), make(chan *bulkPart[T], window)
	slots := make(chan struct{}, window)
	go func() { // encodes
		defer close(ready)
		for first := 0; first < o.n; first += o.rows {
			select {
			case slots <- struct{}{}:
			case <-feed.Done():
				return
			}
			p := &bulkPart[T]{first: first, ready: make(chan struct{}), done: make(chan struct{})}
			go func() {
				defer close(p.ready)
				p.err = p.prepare(feed, s, spool, o.split, min(first+o.rows, o.n))
			}()
			ready <- p
		}
	}()
	go func() { // appends
		defer close(sent)
		var failed error
		for p := range ready {
			<-p.ready
			if p.failed = failed; p.err == nil && failed == nil {
				p.err = p.append(ctx, s, spool)
			}
			if failed == nil {
				failed = p.err
			}
			if p.err != nil || p.failed != nil {
				stop()
				p.discard(spool)
				close(p.done)
			} else {
				go func() {
					defer close(p.done)
					p.value, p.err = p.answers(ctx, s)
				}()
			}
			sent <- p
		}
	}()
	entries := 0
	var err error
	for p := range sent {
		<-p.done
		<-slots
		switch {
		case p.failed != nil:
		case p.err != nil && err == nil:
			err = lateObservations(p.first, p.err)
		case p.err == nil:
			entries++
			if err == nil {
				err = fn(p.value)
			}
		}
		if err != nil {
			stop()
		}
	}
	if err == nil && ctx.Err() != nil && entries*o.rows < o.n { // the end of ctx has stopped the first goroutine
		err = lateObservations(entries*o.rows, context.Cause(ctx))
	}
	return entries, err
}

// prepare encodes the part and puts its data into the spool.
func (p *bulkPart[T]) prepare(ctx context.Context, s *Swarm, spool Spool,
	split func(first, end int) (bulkSplit[T], error), end int,
) (err error) {
	n := s.record.ShardCount()
	p.put, p.all, p.from, p.seq = time.Now(), make([]swarms.Bulk, n), make([]uint64, n), make([]uint64, n)
	if p.bulkSplit, err = split(p.first, end); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observe: %v", err)
	}
	return s.each(p.has, func(k shard) error {
		data, err := p.encode(k.number)
		if err != nil {
			return fmt.Errorf("encode observations: %w", err)
		}
		b, err := spool.Put(ctx, s.record.Key(), k.number, data)
		if err != nil {
			return ended(ctx, err)
		}
		b.Memory = max(b.Bytes, batch.MemoryOf(data))
		p.all[k.number] = b
		return nil
	})
}

// append appends the descriptions to the logs of the shards.
func (p *bulkPart[T]) append(ctx context.Context, s *Swarm, spool Spool) error {
	deadline := time.Now().Add(s.timeout)
	if last := p.put.Add(maxAppend); last.Before(deadline) {
		deadline = last
	}
	return s.each(p.has, func(k shard) error {
		data, err := json.Marshal(p.all[k.number])
		if err != nil {
			return fmt.Errorf("encode a description: %w", err)
		}
		from, seq, err := k.append(ctx, deadline, swarms.EntryBulk, data)
		if err != nil {
			var refused *jobs.Error
			if !errors.As(err, &refused) || refused.Code == jobs.CodeDeadline {
				p.all[k.number].ID = "" // it may be in the log: the spool finds that out
			}
			return s.explainEnd(err)
		}
		p.from[k.number], p.seq[k.number] = from, seq
		_ = spool.Appended(p.all[k.number], seq) // otherwise the data are kept longer
		return nil
	})
}

// discard removes the data whose descriptions are in no log.
func (p *bulkPart[T]) discard(spool Spool) {
	for k, b := range p.all {
		if b.ID != "" && p.seq[k] == 0 {
			_ = spool.Remove(b) // otherwise they are kept longer
		}
	}
}

// answers waits for the answers of all shards and merges them.
func (p *bulkPart[T]) answers(ctx context.Context, s *Swarm) (v T, err error) {
	deadline := time.Now().Add(s.timeout)
	all := make([]T, s.record.ShardCount())
	err = s.each(p.has, func(k shard) (err error) {
		data, err := k.decided(ctx, deadline, p.from[k.number], p.seq[k.number], swarms.EntryBulk, swarms.EntryDecide)
		if err == nil {
			all[k.number], err = p.decode(data)
		}
		return err
	})
	if err != nil {
		return v, err
	}
	v, err = p.merge(all)
	return v, s.badAnswer(err)
}
