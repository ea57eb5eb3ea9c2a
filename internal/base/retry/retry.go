// Package retry repeats calls that fail, with a growing pause, and waits with a context.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// MaxPause bounds the pause between two tries, also the pause that a server asks for.
const MaxPause = time.Minute

// Policy is how a call is repeated. The zero value calls once.
type Policy struct {
	// Tries is the number of calls in all.
	Tries int
	// Base is the pause before the second call. The pause doubles with each call, up to MaxPause,
	// and varies at random between half and one and a half of its length, so that clients that
	// failed together do not return together.
	Base time.Duration
	// Exhausted marks the error of the last call after all tries were used; nil returns the error
	// as it is.
	Exhausted func(error) error
}

// Do calls once until it succeeds, fails with a Permanent error, or has been called p.Tries times.
// once returns the minimum pause before the next call, and an error. Do returns the cause of the
// context if that ends first, and the inner error of a Permanent one.
func (p Policy) Do(ctx context.Context, once func() (least time.Duration, err error)) error {
	pause := p.Base
	for n := 1; ; n++ {
		least, err := once()
		var final permanent
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &final):
			return final.error
		case n >= p.Tries && p.Exhausted != nil:
			return p.Exhausted(err)
		case n >= p.Tries:
			return err
		}
		if err := Sleep(ctx, min(max(least, pause/2+rand.N(pause+1)), MaxPause)); err != nil {
			return err
		}
		pause = min(2*pause, MaxPause)
	}
}

// permanent marks an error that no further call repairs.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks err as one that no further call repairs. Policy.Do returns it at once.
func Permanent(err error) error { return permanent{err} }

// IsPermanent reports whether Permanent marked an error of the chain of err.
func IsPermanent(err error) bool {
	var final permanent
	return errors.As(err, &final)
}

// Sleep waits for d, or until ctx ends; then it returns the cause. A pause that is not positive
// returns nil at once.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
