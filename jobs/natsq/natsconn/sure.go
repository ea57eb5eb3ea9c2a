package natsconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// Bounds of Sure. A follower that has heard of its leader waits 4 s before it asks for an election,
// so a leader that has heard of most followers within sureHeard is the only one. A leader sends
// heartbeats every second. One that was stopped gives up, or is told of the new leader, within some
// seconds.
const (
	sureHeard    = 2500 * time.Millisecond
	surePause    = 250 * time.Millisecond
	surePatience = 15 * time.Second
)

// Sure calls look, and repeats it before it believes that something is not stored, which look says
// with jobs.ErrNotFound. look asks the leader of a stream. A leader that was stopped or cut off
// answers with what it had then, until it hears of the new one. So Sure accepts the answer only
// when the leader has recently heard from a quorum of followers, both before and after the last
// read. It fails with jobs.ErrUnavailable if there is no such leader.
func (c *Conn) Sure(ctx context.Context, stream string, look func() error) error {
	err := look()
	if !errors.Is(err, jobs.ErrNotFound) || c.NC.ConnectedClusterName() == "" { // a server on its own is right
		return err
	}
	for began := time.Now(); ; {
		before := c.leaderOf(ctx, stream)
		if err = look(); !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		if before != "" && c.leaderOf(ctx, stream) == before {
			return err
		}
		if time.Since(began) > surePatience {
			return fmt.Errorf("%w: not believed, as stream %s has no leader with a quorum: %w", jobs.ErrUnavailable,
				stream, errors.New(err.Error()))
		}
		select {
		case <-time.After(surePause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaderOf returns the name of the leader of a stream if it has heard of most followers within
// sureHeard, and of a stream without replicas or that does not exist. Otherwise it is empty.
func (c *Conn) leaderOf(ctx context.Context, stream string) string {
	ctx, cancel := context.WithTimeout(ctx, LongTry)
	defer cancel()
	s, err := c.JS.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "none"
	case err != nil:
		return ""
	}
	of := s.CachedInfo().Cluster
	if of == nil {
		return "single"
	}
	heard := 0
	for _, r := range of.Replicas {
		if !r.Offline && r.Active < sureHeard {
			heard++
		}
	}
	if heard < (len(of.Replicas)+1)/2 {
		return ""
	}
	return of.Leader
}
