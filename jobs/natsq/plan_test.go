package natsq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestPlan: an empty server gets everything, a prepared one nothing; what widens is applied and
// what may lose data refused, with nothing else changed.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	bare, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	plan := func() []natsconn.Change {
		t.Helper()
		p, err := bare.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if n := len(plan()); n != 18 {
		t.Fatalf("%d changes on an empty server", n)
	}
	if _, err := bare.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := plan(); len(p) != 0 {
		t.Fatalf("changes right after they were applied: %+v", p)
	}
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	change := func(name string, fn func(*jetstream.StreamConfig)) {
		t.Helper()
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := st.CachedInfo().Config
		fn(&cfg)
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	change("EXO_JOBS_CPU", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10; c.Description = "the operator's" })
	if p := plan(); len(p) != 1 || p[0].Field != "max_msgs" || p[0].Have != "10" || p[0].Drops {
		t.Fatalf("%+v", p)
	}
	change("EXO_RESULTS", func(c *jetstream.StreamConfig) { c.MaxAge = 30 * 24 * time.Hour })
	if _, err := bare.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "changing max_age from") {
		t.Fatalf("a shorter age was applied: %v", err)
	}
	if p := plan(); len(p) != 2 {
		t.Fatalf("something was changed: %+v", p)
	}
	change("EXO_RESULTS", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	if done, err := bare.Apply(t.Context()); err != nil || len(done) != 2 || len(plan()) != 0 {
		t.Fatalf("%+v, %v, left %+v", done, err, plan())
	}
	st, err := js.Stream(t.Context(), "EXO_JOBS_CPU")
	if err != nil || st.CachedInfo().Config.Description != "the operator's" {
		t.Errorf("what the operator set is gone: %+v, %v", st.CachedInfo().Config, err)
	}
}
