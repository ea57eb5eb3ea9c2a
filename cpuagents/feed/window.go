package feed

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Unanswered is the number of batches that may be without an answer: enough that agents and sources
// never wait for each other, few enough that a decision comes soon after its row was read.
const Unanswered = 4

// Window is the entries of the shards of a swarm that have no answer yet. One goroutine waits, and
// another one calls Reach.
type Window []*statelog.Answered

// NewWindow returns the window of shards whose entries up to at have their answers.
func NewWindow(at []uint64) Window {
	w := make(Window, len(at))
	for k, entry := range at {
		w[k] = statelog.NewAnswered(entry)
	}
	return w
}

// Reach notes that all entries of a shard up to one have their answers.
func (w Window) Reach(shard int, entry uint64) { w[shard].Reach(entry) }

// Answered returns the last entry of a shard that has its answer.
func (w Window) Answered(shard int) uint64 { return w[shard].Entry() }

// Await waits until an entry of a shard has its answer.
func (w Window) Await(ctx context.Context, shard int, entry uint64) error {
	return w[shard].Await(ctx, entry)
}

// Room waits until fewer than Unanswered entries of a shard up to the last one have no answer.
func (w Window) Room(ctx context.Context, shard int, last uint64) error {
	return w.Await(ctx, shard, last-min(last, Unanswered))
}

// All waits until the entries of all shards up to the ends have their answers.
func (w Window) All(ctx context.Context, ends []uint64) error {
	for k, entry := range ends {
		if err := w.Await(ctx, k, entry); err != nil {
			return err
		}
	}
	return nil
}
