package natsq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// What a server says that has no room for what it would have to store: a limit of the account, which is how a server on its own refuses when its
// disk is nearly full (package server), or of the server itself. In a cluster without a leader nobody says so, so that is told from this.
const (
	errCodeAccountFull = 10002
	errCodeStoreFull   = 10047
)

// roomAfter is when a caller may try again whom the server has no room for: somebody must free some.
const roomAfter = 10 * time.Second

// noRoom says whether the server has refused to store anything, whatever it is.
func noRoom(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == errCodeAccountFull || api.ErrorCode == errCodeStoreFull)
}

// tries is how a call is repeated: Conn.repeat, Conn.offer or Worker.insist.
type tries func(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error

// offer is repeat that does not wait for room: it fails with jobs.ErrFull at once.
func (c *Conn) offer(ctx context.Context, what string, size int, fn func(ctx context.Context) error) error {
	err := c.repeat(ctx, what, size, func(ctx context.Context) error {
		err := fn(ctx)
		if noRoom(err) {
			return errFullDisk
		}
		return err
	})
	if errors.Is(err, errFullDisk) {
		return fullDisk(what)
	}
	return err
}

var errFullDisk = errors.New("the server has no room")

func fullDisk(what string) error {
	return jobs.Later(fmt.Errorf("%s: %w: the disk of the NATS server, or what its account may store, is used up: free some of it, and try again", what, jobs.ErrFull), roomAfter)
}
