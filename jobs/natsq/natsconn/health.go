package natsconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// onDisconnect is the client's handler of a connection that broke. The client calls it again for
// each attempt to reconnect that got as far as a connection; the log has one line.
func (r *violations) onDisconnect(nc *nats.Conn, err error) {
	if nc.IsClosed() {
		return // Close was called, or the client gave up, which Refused says
	}
	if err == nil {
		err = nats.ErrDisconnected
	}
	r.mu.Lock()
	first := r.lost.IsZero()
	if first {
		r.lost, r.why = time.Now(), err
		r.giveUpLater(nc)
	}
	r.mu.Unlock()
	if first {
		r.losses.Add(1)
		r.log.Warn("the connection to NATS is lost; trying to reconnect until it is back", "error", err)
	}
}

func (r *violations) onReconnect(nc *nats.Conn) {
	r.mu.Lock()
	since := r.lost
	r.shut, r.lost, r.why = false, time.Time{}, nil
	if r.gave != nil && r.gave.Stop() {
		r.gave = nil
	}
	r.mu.Unlock()
	if !since.IsZero() {
		r.log.Info("the connection to NATS is restored", "server", nc.ConnectedUrlRedacted(), "after",
			time.Since(since).Round(time.Millisecond))
	}
}

// Health returns nil when a NATS server answers a ping before ctx ends. Otherwise the error says
// since when there is no connection and why, and wraps jobs.ErrUnavailable or, for a login that the
// server does not accept any more, jobs.ErrDenied.
func (c *Conn) Health(ctx context.Context) error {
	select {
	case <-c.Refused():
		return fmt.Errorf("the NATS server does not let %s in any more: %w", c.refused.who, jobs.ErrDenied)
	default:
	}
	c.refused.mu.Lock()
	since, why := c.refused.lost, c.refused.why
	c.refused.mu.Unlock()
	if !since.IsZero() {
		return fmt.Errorf("NATS has been unreachable for %v: %w: %w", time.Since(since).Round(time.Second), why,
			jobs.ErrUnavailable)
	}
	if err := c.NC.FlushWithContext(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("the server does not answer a ping")
		}
		return fmt.Errorf("NATS is unreachable: %w: %w", err, jobs.ErrUnavailable)
	}
	return nil
}
