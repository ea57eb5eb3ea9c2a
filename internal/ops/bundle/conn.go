package bundle

import (
	"context"

	"github.com/exoswarm/exoswarm/internal/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Over returns the cluster that a connection reaches, which must be that of an operator.
func Over(c *natsq.Conn) Cluster { return conn{c} }

type conn struct{ c *natsq.Conn }

// Facts implements Cluster.
func (c conn) Facts(ctx context.Context) *doctor.Facts { return doctor.Collect(ctx, c.c) }

// Document implements Cluster.
func (c conn) Document(ctx context.Context, agent, what string, seconds int) ([]byte, error) {
	return c.c.Telemetry.Document(ctx, agent, what, seconds)
}

// Dead implements Cluster.
func (c conn) Dead(ctx context.Context, n int) (all []jobs.DeadLetter, err error) {
	err = c.c.Letters.List(ctx, jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
		d.Data = nil
		if all = append(all, d); len(all) > n { // the newest are kept
			all = all[1:]
		}
		return true
	})
	return all, err
}
