package shard

import (
	"context"
)

// An agent keeps a number of shards open, and parks those above it that are idle the longest. A
// parked shard keeps its lease. It has no goroutine, consumer, pager or store and nothing on the
// device: its state is its last checkpoint or, without a data folder, a Rest in memory. State is a
// function of the log, and a Rest names the last entry that it has. A shard that is opened again
// reads its log from there, so no entry is lost or reordered.

// park parks the shard if nothing is in flight; nil: it is not parked.
func (t *loop) park(ctx context.Context) (*Rest, error) {
	m := t.state.Memory()
	if m.Claimed() {
		return nil, nil
	}
	made := 0
	for _, is := range m.Made() {
		if is {
			made++
		}
	}
	if made*m.PageBytes() > parkMost {
		t.open.fixed.Store(true)
		return nil, nil
	}
	if t.inFlight.any() {
		return nil, nil
	}
	if err := t.answers.flush(ctx); err != nil {
		return nil, err
	}
	if t.checkpoint != nil && t.checkpoint.store != nil {
		if err := t.checkpoint.save(ctx, t.state); err != nil {
			return nil, err
		}
		if t.checkpoint.last.Seq != t.checkpoint.stored {
			return nil, nil
		}
		return &Rest{Entry: t.at, Stored: true}, nil
	}
	all, err := m.Pack(ctx)
	if err != nil {
		return nil, err
	}
	r := &Rest{Entry: t.at, Round: t.rounds.Last(), Outcome: t.rounds.Outcome(), Pages: all}
	small := r.Bytes() <= parkMost
	if !small || !t.server.o.Keeps(r.Bytes()) {
		t.open.fixed.Store(!small)
		return nil, nil
	}
	return r, nil
}
