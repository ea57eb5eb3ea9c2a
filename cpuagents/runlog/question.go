package runlog

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// lastOwn returns the last entry of a stream's log that is not a question, and the number of the last
// entry of all. Other clients may append questions to the log of a stream while it runs; they do not
// affect the stream. If there is no entry of the stream, own.Seq is 0. The numbers in the entries of
// questions are not used.
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

// Asked reports whether an entry of a log of entries is a question. The first entry is never one: if it is
// refused, the swarm cannot be served. An entry that is not in the log is no question.
func Asked(ctx context.Context, in swarms.Log, seq uint64) (bool, error) {
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
