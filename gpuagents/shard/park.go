package shard

import (
	"context"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Rest is what a parked shard has left in memory. It is an error because Serve ends with it.
type Rest struct {
	Entry uint64 // the last applied entry
	Round uint64 // the last round of votes up to Entry
	// Outcome is the decision of the last round that was concluded; nil: there was none.
	Outcome *swarms.Voted
	// Model is the model that was adopted last up to Entry; nil: the agents have the weights of the
	// specification.
	Model  *swarms.ModelRef
	Stored bool // the checkpoint or the log has all that is needed
	Pages  pages.Packed
}

// parkMost is the maximum size of the pages of a parked shard, in bytes. Restoring 16 MiB takes 20
// ms of a disk; more would take longer than a user should wait.
const parkMost = 16 << 20

// Error implements error.
func (r *Rest) Error() string { return errParked.Error() }

// Is implements errors.Is.
func (r *Rest) Is(err error) bool { return err == errParked }

// Bytes returns how many bytes the rest takes in memory, approximately.
func (r *Rest) Bytes() int64 { return r.Pages.Bytes() + 64 }

func (r *Rest) unpark(ctx context.Context, st state.State, in swarms.Log) (swarms.Reader, error) {
	m := st.Memory()
	if err := m.Open(ctx, nil); err != nil {
		return nil, err
	}
	if err := st.Reset(ctx); err != nil {
		return nil, err
	}
	if err := m.Unpack(ctx, r.Pages); err != nil {
		return nil, err
	}
	if err := st.Restored(ctx); err != nil {
		return nil, err
	}
	return in.Read(ctx, r.Entry+1)
}

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
	r := &Rest{
		Entry: t.at, Round: t.rounds.Last(), Outcome: t.rounds.Outcome(), Model: t.rounds.Adopted(), Pages: all,
	}
	small := r.Bytes() <= parkMost
	if !small || !t.server.o.Keeps(r.Bytes()) {
		t.open.fixed.Store(!small)
		return nil, nil
	}
	return r, nil
}
