package cpuagents

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/jobs"
)

// Others may ask the swarm of a stream while it runs: their entries in its log, and the answers to them, are none of the stream's business, and change nothing that is.

// append puts an entry of the stream behind all that is in the log. Questions that somebody has put there meanwhile stay before it. Anything else there is
// another attempt at the job: an ErrFenced.
func (f *feeder) append(e jobs.Entry) error {
	for {
		err := f.s.in.Append(f.work, f.after, e)
		if err == nil {
			f.after++
			return nil
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
		end, own, rerr := lastOwn(f.work, f.s.in, f.after)
		switch {
		case rerr != nil:
			return rerr
		case own.Seq > 0 || end <= f.after: // or the server has lost what it had acknowledged
			return err
		}
		f.after = end
	}
}

// lastOwn is the last entry of a stream's log that is no question, behind number after; one with Seq 0 when there is none. end is the last entry of all. The numbers that
// askers give their entries are not looked at.
func lastOwn(ctx context.Context, log jobs.Log, after uint64) (end uint64, own jobs.Entry, err error) {
	last, err := log.Last(ctx)
	if err != nil || last.Seq <= after || !jobs.Asks(last.Kind) {
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
			if seq = e.Seq; !jobs.Asks(e.Kind) {
				own = e
			}
		}
		r.Close()
		if own.Seq > 0 || from == after+1 {
			return last.Seq, own, nil
		}
	}
}

// asked says whether an entry of the log is a question. The first is the stream's in any case: when it is refused the swarm cannot be served.
func (s *stream) asked(ctx context.Context, seq uint64) (bool, error) {
	last, err := s.in.Last(ctx)
	if err != nil || seq <= 1 || seq > last.Seq {
		return false, err
	}
	r, err := s.in.Read(ctx, seq)
	if err != nil {
		return false, err
	}
	defer r.Close()
	e, err := r.Next(ctx)
	return jobs.Asks(e.Kind), err
}
