package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// react submits the job that an emission asks for. The record of the swarm has the job, so a
// request chooses neither its kind nor its tenant.
func (g *Gateway) react(ctx context.Context, data []byte) error {
	e, err := swarms.DecodeEmission(data)
	if err != nil {
		return err
	}
	return g.rules.Submit(ctx, e)
}

// Rules asks gateways to submit the jobs of rules of swarms, for GPU agents, which submit none
// themselves. Its methods may be called from several goroutines.
type Rules struct{ client Client }

// NewRules returns the rules that a connection reaches. The connection stays the caller's.
func NewRules(c *natsconn.Conn) *Rules { return &Rules{Client{c}} }

// fullPause is the pause between two requests while a job has no room, if the answer names none.
const fullPause = time.Second

// Submit has a gateway submit the job that an emission asks for, unless it was submitted, and
// returns when it is stored. It repeats the request for the patience of the connection while no
// gateway answers, or the job has no room.
func (r *Rules) Submit(ctx context.Context, e swarms.Emission) error {
	deadline := time.Now().Add(r.client.c.Patience)
	for {
		_, _, err := r.client.ask(ctx, apiReact, e, 0)
		if !errors.Is(err, jobs.ErrFull) {
			return err
		}
		pause := jobs.RetryAfter(err)
		if pause <= 0 {
			pause = fullPause
		}
		if time.Now().Add(pause).After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
