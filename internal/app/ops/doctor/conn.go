package doctor

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// BundleOver returns the cluster that a connection with the login of an operator reaches.
func BundleOver(c *natsq.Conn) BundleCluster { return conn{c} }

type conn struct{ c *natsq.Conn }

func (c conn) Facts(ctx context.Context) *Facts { return Collect(ctx, c.c) }

func (c conn) Document(ctx context.Context, agent, what string, seconds int) ([]byte, error) {
	return c.c.Telemetry.Document(ctx, agent, what, seconds)
}

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
