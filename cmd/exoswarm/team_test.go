package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestTeamIsShown: swarm get shows the devices of a GPU agent that make the ticks of a shard
// together.
func TestTeamIsShown(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: "test"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer conn.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	record := swarms.Swarm{
		Version: jobs.Version, ID: "life", Nonce: swarms.NewNonce(), Name: "life", Groups: 8,
		Created: time.Now().UTC(), Spec: specJSON(t, "name: life\naddressed: agent\ndevices: 2\ncell: {kind: life}\n"+
			"neighbours: {width: 8, height: 8}\n"),
	}
	must(conn.Swarms.CreateSwarm(t.Context(), record))
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		must(conn.Swarms.Log(record.Key(), 0, d).Create(t.Context()))
	}
	key, quiet := swarms.LeaseKey(record.Key(), 0), slog.New(slog.DiscardHandler)
	session, err := conn.Swarms.OpenSession(t.Context(), "gpu1", time.Minute, quiet)
	must(err)
	defer func() { must(session.Close(t.Context())) }()
	_, err = session.Acquire(t.Context(), key)
	must(err)
	entry, err := conn.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Name: "gpu1", Pool: jobs.PoolGPU, State: "serving",
			Teams: []jobs.Team{{Shard: key, Devices: []string{"cuda:0", "cuda:1"}}},
		}
	}, quiet)
	must(err)
	defer func() { must(entry.Close(t.Context())) }()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"gpu1 on cuda:0, cuda:1", nil},
		{`"holder":"gpu1","state":"served","devices":["cuda:0","cuda:1"]`, []string{"-o", "jsonl"}},
	} {
		args := append([]string{"swarm", "get", "life", "--nats", s.URL()}, c.args...)
		if code, out, errs := exec(t.Context(), t, args...); code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("exoswarm %s: exit %d, want %q in\n%s%s", strings.Join(args, " "), code, c.want, out, errs)
		}
	}
}
