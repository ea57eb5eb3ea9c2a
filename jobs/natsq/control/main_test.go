package control

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// submitter stores jobs that Admit admits.
type submitter struct{ *Control }

func (s submitter) Submit(ctx context.Context, j jobs.Job) error {
	return s.SubmitBatch(ctx, []jobs.Job{j})
}

func (s submitter) SubmitBatch(ctx context.Context, batch []jobs.Job) error {
	if err := s.Admit(ctx, batch...); err != nil {
		return err
	}
	for _, j := range batch {
		m := &nats.Msg{Subject: wire.SourceOf(j).Job(j.ID), Data: j.Spec}
		if err := s.conn.PublishMsg(ctx, s.conn.RetryIdempotent, "submit", m); err != nil {
			return err
		}
	}
	return nil
}

func plain(id string, after ...string) jobs.Job { return jobstest.Job(id, "k", after...) }
