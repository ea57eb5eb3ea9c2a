package command

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
)

// Link is a connection that may lose its server for good, as those of jobs/natsq.
type Link interface {
	// Lost is closed when the server has not answered for the time that the connection allows.
	Lost() <-chan struct{}
	// LostError returns the reason of the loss in place of err, and err when the server is not
	// lost.
	LostError(err error) error
	Close()
}

// WithLink returns a context that ends with ctx and with the loss of the server of a connection.
// The caller calls the function when the work is done.
func WithLink(ctx context.Context, l Link) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-l.Lost():
			cancel(l.LostError(jobs.ErrUnavailable))
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(done); cancel(nil) })
}
