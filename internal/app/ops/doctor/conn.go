package doctor

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// BundleOver returns the cluster that a connection reaches, which must be that of an operator.
func BundleOver(c *natsq.Conn) BundleCluster { return conn{c} }

type conn struct{ c *natsq.Conn }

// BundleFacts implements Cluster.
func (c conn) Facts(ctx context.Context) *Facts { return Collect(ctx, c.c) }

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
