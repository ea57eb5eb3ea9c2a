package cpuagents

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// shardLog has the two logs of a shard of a run. It appends batches, and recognises entries of
// earlier attempts, and questions of other clients between them. The goroutine that feeds uses it,
// except for In and Out. One goroutine at a time calls its methods.
type shardLog struct {
	In, Out swarms.Log // of entries and of answers

	Stored uint64 // last batch in In before this attempt; greater than all with an end
	Ended  bool   // an earlier attempt has stored the end of the input
	Rows   uint64 // read so far; the caller counts them
	after  uint64 // last known entry of In
}

// After returns the number of the last known entry of In.
func (k *shardLog) After() uint64 { return k.after }

// Find finds the end of the log of entries. It is called once, before the first append.
func (k *shardLog) Find(ctx context.Context) error {
	end, last, err := lastOwn(ctx, k.In)
	k.after, k.Stored, k.Ended = end, last.Ref, last.Kind == swarms.EntryEnd
	return err
}

// Send appends a batch, or a part of one.
func (k *shardLog) Send(ctx context.Context, number uint64, o *batch.Observations) error {
	data, err := o.Pack()
	if err != nil {
		return err
	}
	if err := k.Append(ctx, swarms.Entry{Kind: swarms.EntryObserve, Ref: number, Data: data}); err != nil {
		return fmt.Errorf("send batch %d: %w", number, err)
	}
	return nil
}

// Append appends an entry of the stream. Questions that other clients have appended meanwhile stay
// before it. Any other foreign entry is another attempt of the job: Append fails with
// jobs.ErrFenced. One goroutine at a time calls it.
func (k *shardLog) Append(ctx context.Context, e swarms.Entry) error {
	return statelog.Append(ctx, k.In, &k.after, e, func(other swarms.Entry) error {
		if !swarms.Asks(other.Kind) {
			return fmt.Errorf("entry %d is of another attempt: %w", other.Seq, jobs.ErrFenced)
		}
		return nil
	})
}

// lastOwn returns the last entry of a stream's log that is not a question, and the number of the
// last entry of all. Other clients may append questions to the log of a stream while it runs; they
// do not affect the stream. If there is no entry of the stream, own.Seq is 0. The numbers in the
// entries of questions are not used.
func lastOwn(ctx context.Context, log swarms.Log) (end uint64, own swarms.Entry, err error) {
	last, err := log.Last(ctx)
	if err != nil || last.Seq == 0 || !swarms.Asks(last.Kind) {
		return last.Seq, last, err
	}
	for n := uint64(64); ; n *= 8 { // back from the end, further each time: questions are few
		from := last.Seq - min(n, last.Seq) + 1
		err := statelog.Each(ctx, log, from, last.Seq, func(e swarms.Entry) error {
			if !swarms.Asks(e.Kind) {
				own = e
			}
			return nil
		})
		if err != nil || own.Seq > 0 || from == 1 {
			return last.Seq, own, err
		}
	}
}

// refusal returns the error of an answer that refuses an entry, and whether the entry is a question
// of another client. name is the name of the swarm.
func refusal(ctx context.Context, name string, in swarms.Log, e swarms.Entry) (failure error, asks bool, err error) {
	refused := &jobs.Error{Code: jobs.CodeInternal, Message: "the swarm refused a batch"}
	if err := json.Unmarshal(e.Data, refused); err != nil {
		return nil, false, fmt.Errorf("refusal of swarm %s: %w", name, err)
	}
	asks, err = asked(ctx, in, e.Ref)
	return refused, asks, err
}

// asked reports whether an entry of a log of entries is a question. The first entry is never one:
// if it is refused, the swarm cannot be served. An entry that is not in the log is no question.
func asked(ctx context.Context, in swarms.Log, seq uint64) (bool, error) {
	last, err := in.Last(ctx)
	if err != nil || seq <= 1 || seq > last.Seq {
		return false, err
	}
	asks := false
	err = statelog.Each(ctx, in, seq, seq, func(e swarms.Entry) error {
		asks = swarms.Asks(e.Kind)
		return nil
	})
	return asks, err
}
