package gpuagents

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// An agent keeps a number of shards open; of more, those that have had nothing to do for the longest are parked. A parked shard keeps its lease. It
// has no goroutine, consumer, pager or store and nothing on the device: its state is its last checkpoint or, without a data folder, a rest in
// memory. State is a function of the log, and a rest says up to which entry it has it, so nothing can be lost or come in another order: a shard
// that is opened again reads its log from there.

// rest is what a parked shard has left. It is an error because work ends with it.
type rest struct {
	entry  uint64 // the last entry of the log that was applied
	round  uint64 // the last round of votes up to entry
	stored bool   // the checkpoint has it, or the log has all that is needed
	pages  pages.Packed
}

// parkMost is how many bytes the pages of a shard have at most that is parked. To bring more back takes longer than whoever asks should wait: 16 MiB
// are 20 ms of a disk.
const parkMost = 16 << 20

// errParked marks the end of work on a shard that was parked.
var errParked = errors.New("the shard is parked")

// Error implements error.
func (r *rest) Error() string { return errParked.Error() }

// Is implements errors.Is.
func (r *rest) Is(err error) bool { return err == errParked }

// bytes is how many bytes the rest takes in memory, about.
func (r *rest) bytes() int64 { return r.pages.Bytes() + 64 }

// unpark makes agents that have seen nothing those of a rest, and returns a reader of the entries behind it.
func (r *rest) unpark(ctx context.Context, st state.State, in jobs.Log) (jobs.Reader, error) {
	m := st.Memory()
	if err := m.Open(ctx, nil); err != nil {
		return nil, err
	}
	if err := st.Reset(ctx); err != nil {
		return nil, err
	}
	if err := m.Unpack(ctx, r.pages); err != nil {
		return nil, err
	}
	if err := st.Restored(ctx); err != nil {
		return nil, err
	}
	return in.Read(ctx, r.entry+1)
}

// park parks the shard if nothing of it is under way; nil says that it goes on.
func (t *turn) park(ctx context.Context) (*rest, error) {
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
		t.seat.fixed.Store(true)
		return nil, nil
	}
	if t.room.taken() {
		return nil, nil
	}
	if err := t.answers.flush(ctx); err != nil {
		return nil, err
	}
	if t.keep != nil && t.keep.store != nil {
		if err := t.keep.save(ctx, t.state); err != nil {
			return nil, err
		}
		if t.keep.last.Seq != t.keep.stored {
			return nil, nil
		}
		return &rest{entry: t.at, stored: true}, nil
	}
	all, err := m.Pack(ctx)
	if err != nil {
		return nil, err
	}
	r := &rest{entry: t.at, round: t.rounds.Last(), pages: all}
	small := r.bytes() <= parkMost
	if !small || !t.a.o.Keeps(r.bytes()) {
		t.seat.fixed.Store(!small)
		return nil, nil
	}
	return r, nil
}
