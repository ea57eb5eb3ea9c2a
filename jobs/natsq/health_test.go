package natsq_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestHealth: a lost connection shows in Health, in the metric and as one line of the log, and so
// does its return. The registry, from which the agent is missing meanwhile, adds no line.
func TestHealth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := server.Start(t.Context(), server.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	log := &testkit.Log{}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c.Collector()); err != nil {
		t.Fatal(err)
	}
	value := func(name string) float64 {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			if f.GetName() == name {
				m := f.GetMetric()[0]
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		t.Fatalf("there is no metric %s", name)
		return 0
	}
	connected := func() float64 { return value("exoswarm_nats_connected") }
	health := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return c.Health(ctx)
	}
	var announced atomic.Int64
	entry, err := c.Registry.Announce(t.Context(),
		func() jobs.Agent { announced.Add(1); return jobs.Agent{Name: "a", Pool: jobs.PoolCPU} }, logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := health(); err != nil || connected() != 1 {
		t.Fatalf("connected: %v, metric %v", err, connected())
	}
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	testkit.Until(t, "Health says that the connection is lost", func() bool { return health() != nil })
	if err := health(); !errors.Is(err, jobs.ErrUnavailable) || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("Health without a server: %v", err)
	}
	testkit.Until(t, "the metric is 0", func() bool { return connected() == 0 })
	before := announced.Load()
	testkit.Until(t, "two announcements fail", func() bool { return announced.Load() >= before+3 })
	if s, err = server.Start(t.Context(), server.Options{Dir: dir, Port: port}); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the connection is back", func() bool { return health() == nil && connected() == 1 })
	testkit.Until(t, "the log says so", func() bool { return strings.Count(log.String(), "restored") > 0 })
	if err := entry.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Count(log.String(), "is lost") != 1 || strings.Count(log.String(), "restored") != 1 ||
		strings.Contains(log.String(), "missing from the registry") {
		t.Errorf("the log has not one line at the loss and one at the return:\n%s", log)
	}
	for _, name := range []string{"exoswarm_nats_disconnects_total", "exoswarm_nats_reconnects_total"} {
		if n := value(name); n != 1 {
			t.Errorf("%s is %v after one loss, want 1", name, n)
		}
	}
	if value("exoswarm_nats_messages_total") == 0 || value("exoswarm_nats_bytes_total") == 0 {
		t.Error("the messages of the connection are not counted")
	}
	c.Close()
	if strings.Count(log.String(), "is lost") != 1 {
		t.Errorf("Close is no loss:\n%s", log)
	}
}
