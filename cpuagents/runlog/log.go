// Package runlog appends the batches of a run to the log of a shard. It recognises entries of earlier
// attempts, and questions of other clients between the batches.
package runlog

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Log is the two logs of a shard of a job's swarm. The goroutine that feeds uses it, except for In and
// Out. One goroutine at a time calls its methods.
type Log struct {
	In, Out swarms.Log // of entries and of answers

	Stored uint64 // last batch in In before this attempt; greater than all with an end
	Ended  bool   // an earlier attempt has stored the end of the input
	Rows   uint64 // read so far; the caller counts them
	after  uint64 // last known entry of In
}

// After returns the number of the last known entry of In.
func (k *Log) After() uint64 { return k.after }

// Find finds the end of the log of entries. It is called once, before the first append.
func (k *Log) Find(ctx context.Context) error {
	end, last, err := lastOwn(ctx, k.In)
	k.after, k.Stored, k.Ended = end, last.Ref, last.Kind == swarms.EntryEnd
	return err
}

// Send appends a batch, or a part of one.
func (k *Log) Send(ctx context.Context, number uint64, o *batch.Observations) error {
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
func (k *Log) Append(ctx context.Context, e swarms.Entry) error {
	return statelog.Append(ctx, k.In, &k.after, e, func(other swarms.Entry) error {
		if !swarms.Asks(other.Kind) {
			return fmt.Errorf("entry %d is of another attempt: %w", other.Seq, jobs.ErrFenced)
		}
		return nil
	})
}
