package runlog

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// lastOwn returns the last entry of a stream's log after number after that is not a question, and
// the number of the last entry of all. Other clients may append questions to the log of a stream
// while it runs; they do not affect the stream. If there is no entry of the stream, own.Seq is 0.
// The numbers in the entries of questions are not used.
func lastOwn(ctx context.Context, log swarms.Log, after uint64) (end uint64, own swarms.Entry, err error) {
	last, err := log.Last(ctx)
	if err != nil || last.Seq <= after || !swarms.Asks(last.Kind) {
		return last.Seq, last, err
	}
	for n := uint64(64); ; n *= 8 { // back from the end, further each time: questions are few
		from := max(after+1, last.Seq-min(n, last.Seq)+1)
		r, err := log.Read(ctx, from)
		if err != nil {
			return 0, own, err
		}
		for seq := from - 1; seq < last.Seq; {
			e, err := r.Next(ctx)
			if err != nil {
				r.Close()
				return 0, own, err
			}
			if seq = e.Seq; !swarms.Asks(e.Kind) {
				own = e
			}
		}
		r.Close()
		if own.Seq > 0 || from == after+1 {
			return last.Seq, own, nil
		}
	}
}

// Asked reports whether an entry of a log of entries is a question. The first entry is never one: if it is
// refused, the swarm cannot be served. An entry that is not in the log is no question.
func Asked(ctx context.Context, in swarms.Log, seq uint64) (bool, error) {
	last, err := in.Last(ctx)
	if err != nil || seq <= 1 || seq > last.Seq {
		return false, err
	}
	r, err := in.Read(ctx, seq)
	if err != nil {
		return false, err
	}
	defer r.Close()
	e, err := r.Next(ctx)
	return swarms.Asks(e.Kind), err
}
