package natsconn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// Error codes of a server without space. A single server whose disk is nearly full answers with the
// limit of the account (package server). A cluster without a leader answers with neither.
const (
	errCodeAccountFull = 10002
	errCodeStoreFull   = 10047
)

// noSpaceRetry is the pause that a caller is told when the server has no space until an operator
// frees some.
const noSpaceRetry = 10 * time.Second

// IsNoSpace reports whether the server has no space for any message.
func IsNoSpace(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == errCodeAccountFull || api.ErrorCode == errCodeStoreFull)
}

// RetryFunc repeats a call: Conn.RetryIdempotent, Conn.RetryUnlessFull, or a function with their
// contract. what begins the error, and size is the number of bytes that one try sends.
type RetryFunc func(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error

// RetryUnlessFull is RetryIdempotent, but if the server has no space it fails with jobs.ErrFull at
// once.
func (c *Conn) RetryUnlessFull(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	err := c.RetryIdempotent(ctx, what, size, func(ctx context.Context) error {
		err := fn(ctx)
		if IsNoSpace(err) {
			return errNoSpace
		}
		return err
	})
	if errors.Is(err, errNoSpace) {
		return NoSpaceError(what)
	}
	return err
}

// NoSpaceError returns the error of a call for which the server has no space. It wraps jobs.ErrFull
// and tells when to try again.
func NoSpaceError(what string) error {
	return jobs.Later(fmt.Errorf("%s: %w: the disk of the NATS server, or what its account may store, is used up: "+
		"free some of it, and try again", what, jobs.ErrFull), noSpaceRetry)
}

// spaceNotice is how long a call waits for space before the owner of the connection is told.
const spaceNotice = time.Second

// space tells the owner of a connection that its calls wait because the server stores nothing more.
// Its methods may be called from several goroutines.
type space struct {
	tell func()
	told atomic.Bool
}

// wait tells the owner, unless it was told already. waits becomes true for the call that waits.
func (s *space) wait(waits *bool) {
	*waits = true
	if !s.told.Swap(true) && s.tell != nil {
		s.tell()
	}
}

// answered ends the wait after a call that waited and has succeeded: the next wait is told again.
func (s *space) answered(waits *bool) {
	if *waits {
		s.told.Store(false)
	}
}
