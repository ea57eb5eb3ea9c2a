package auth_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// BenchmarkRoundTrip measures a job from its submission to its result: for an operator, which
// reaches the queue, and for a submitter, which asks a gateway.
func BenchmarkRoundTrip(b *testing.B) {
	c := start(b)
	c.agent(b)
	c.client(b, "acme-submitter").Close()
	operator, err := natsq.Connect(b.Context(), c.options(auth.Operator))
	if err != nil {
		b.Fatal(err)
	}
	defer operator.Close()
	client, err := gateway.Connect(b.Context(), c.options("acme-submitter"))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for name, trip := range map[string]func(ctx context.Context, j jobs.Job) error{
		"queue": func(ctx context.Context, j jobs.Job) error {
			err := operator.Queue.Submit(ctx, j)
			if err == nil {
				_, err = operator.Results.Result(ctx, j.ID)
			}
			return err
		},
		"gateway": func(ctx context.Context, j jobs.Job) error {
			id, err := client.Submit(ctx, j)
			if err == nil {
				_, err = client.Result(ctx, id)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				j := jobs.Job{
					Version: jobs.Version, ID: natsconn.NewID(), Pool: jobs.PoolCPU, Kind: "echo",
					Spec: json.RawMessage("1"), Submitted: time.Now().UTC(),
				}
				if err := trip(b.Context(), j); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
