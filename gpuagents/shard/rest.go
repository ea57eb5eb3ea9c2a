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
	Stored  bool // the checkpoint or the log has all that is needed
	Pages   pages.Packed
}

// parkMost is the most bytes of pages of a shard that is parked. To restore more takes longer than
// a user should wait: 16 MiB take 20 ms of a disk.
const parkMost = 16 << 20

// Error implements error.
func (r *Rest) Error() string { return errParked.Error() }

// Is implements errors.Is.
func (r *Rest) Is(err error) bool { return err == errParked }

// Bytes returns how many bytes the rest takes in memory, approximately.
func (r *Rest) Bytes() int64 { return r.Pages.Bytes() + 64 }

// unpark restores the state from a rest, and returns a reader of the later entries.
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
