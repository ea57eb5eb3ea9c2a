package shard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type writer struct {
	out      swarms.Log
	last     uint64 // the last entry of out
	answered uint64 // the last entry of in that is answered in out

	following bool // another agent answers
}

// refresh reads the end of the answers. Nothing may have been appended yet.
func (w *writer) refresh(ctx context.Context) error {
	last, err := w.out.Last(ctx)
	if err == nil {
		w.last, w.answered = last.Seq, last.Ref
	}
	return err
}

// append appends answers to the entries after answered, in their order.
func (w *writer) append(ctx context.Context, all ...swarms.Entry) error {
	if len(all) == 0 {
		return nil
	}
	if w.following {
		return errFollowing
	}
	if err := w.out.Append(context.WithoutCancel(ctx), w.last, all...); err != nil {
		return err
	}
	w.last += uint64(len(all))
	w.answered = all[len(all)-1].Ref
	return nil
}

// answer returns the answer to entry ref of in, which is answered and not trimmed. Nothing may be
// appended meanwhile.
func (w *writer) answer(ctx context.Context, ref uint64) (swarms.Entry, error) {
	return swarms.FindAnswer(ref, 1, w.last, func(seq uint64) (swarms.Entry, error) {
		r, err := w.out.Read(ctx, seq)
		if err != nil {
			return swarms.Entry{}, err
		}
		defer r.Close()
		e, err := r.Next(ctx)
		if errors.As(err, new(*swarms.TrimmedError)) {
			return swarms.Entry{}, nil // it is of an earlier entry
		}
		return e, err
	})
}

// reject answers an entry with the reason why it is not applied, unless it is answered.
func (w *writer) reject(ctx context.Context, ref uint64, err error) error {
	if ref <= w.answered {
		return nil
	}
	data, err := rejection(err)
	if err != nil {
		return err
	}
	return w.append(ctx, swarms.Entry{Kind: swarms.EntryRejected, Ref: ref, Data: data})
}

// refuse rejects the next entry of in, which may not exist yet, with the reason why this agent
// cannot serve the shard. It does nothing after an answer that is ahead of the log; otherwise every
// agent that tries the shard would add one.
func (w *writer) refuse(ctx context.Context, in swarms.Log, log *slog.Logger, why error) error {
	last, err := in.Last(ctx)
	if err == nil && w.answered <= last.Seq {
		err = w.reject(ctx, w.answered+1, why)
	}
	if err == nil {
		log.Warn("shard refused: this agent cannot serve it", "error", why)
	}
	return err
}

func rejection(why error) ([]byte, error) {
	data, err := json.Marshal(jobs.AsError(why))
	if err != nil {
		return nil, errors.Join(why, err)
	}
	return data, nil
}
