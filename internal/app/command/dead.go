package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// DeadLetters reads dead letters and queues their jobs again. The Letters of a connection are
// one.
type DeadLetters interface {
	// List calls fn with the letters that match, oldest first, until fn returns false.
	List(ctx context.Context, f jobs.DeadFilter, fn func(jobs.DeadLetter) bool) error
	// Redrive queues the job of a letter again under its id, and removes the letter.
	Redrive(ctx context.Context, d jobs.DeadLetter) error
}

// Redrive queues the jobs of the dead letters that match again, and returns their number. A letter
// whose job cannot be queued is part of the error, and the others are queued all the same.
func Redrive(ctx context.Context, q DeadLetters, f jobs.DeadFilter) (n int, err error) {
	var errs []error
	const most = 20 // errors in full
	refused := 0
	// A job that fails at once becomes a new letter at the end. The last letter of this moment ends
	// the walk, so that the job is not queued for ever.
	var last uint64
	if err := q.List(ctx, f, func(d jobs.DeadLetter) bool { last = d.Seq; return true }); err != nil {
		return 0, err
	}
	err = q.List(ctx, f, func(d jobs.DeadLetter) bool {
		if d.Seq > last {
			return false
		}
		if rerr := q.Redrive(ctx, d); rerr != nil {
			if refused++; refused <= most {
				errs = append(errs, rerr)
			}
			return ctx.Err() == nil
		}
		n++
		return true
	})
	if refused > most {
		errs = append(errs, fmt.Errorf("and %d more", refused-most))
	}
	return n, errors.Join(append(errs, err)...)
}
