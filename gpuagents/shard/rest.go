package shard

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// rest is what a parked shard has left. It is an error because work ends with it.
type Rest struct {
	Entry  uint64 // the last entry of the log that was applied
	Round  uint64 // the last round of votes up to entry
	Stored bool   // the checkpoint has it, or the log has all that is needed
	Pages  pages.Packed
}

// parkMost is how many bytes the pages of a shard have at most that is parked. To bring more back takes longer than whoever asks should wait: 16 MiB
// are 20 ms of a disk.
const parkMost = 16 << 20

// errParked marks the end of work on a shard that was parked.
var errParked = errors.New("the shard is parked")

// Error implements error.
func (r *Rest) Error() string { return errParked.Error() }

// Is implements errors.Is.
func (r *Rest) Is(err error) bool { return err == errParked }

// Bytes is how many bytes the rest takes in memory, about.
func (r *Rest) Bytes() int64 { return r.Pages.Bytes() + 64 }

// unpark makes agents that have seen nothing those of a rest, and returns a reader of the entries behind it.
func (r *Rest) unpark(ctx context.Context, st state.State, in jobs.Log) (jobs.Reader, error) {
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
