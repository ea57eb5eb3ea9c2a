package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestTakeoverIsShown: the commands show a shard that nobody holds, an agent that is lost, and a
// replay.
func TestTakeoverIsShown(t *testing.T) {
	testkit.OnlyLong(t)
	s := jobstest.Start(t, server.Options{})
	connect := func() *natsq.Conn {
		c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: "test"})
		if err != nil {
			t.Fatalf("natsq.Connect: %v", err)
		}
		return c
	}
	conn := connect()
	defer conn.Close()
	record := swarms.Swarm{
		Version: jobs.Version, ID: "job", Nonce: swarms.NewNonce(), Name: "x", Groups: 4, Created: time.Now().UTC(),
		Spec: specJSON(t, "name: x\nagents_per_group: 8\n"),
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(conn.Swarms.CreateSwarm(t.Context(), record))
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		must(conn.Swarms.Log(record.Key(), 0, d).Create(t.Context()))
	}
	must(conn.Swarms.Log(record.Key(), 0, swarms.In).Append(t.Context(), 0,
		swarms.Entry{Kind: swarms.EntryObserve, Ref: 1, Data: []byte("x")}))
	shown := func(want string, args ...string) {
		t.Helper()
		code, out, errs := exec(t.Context(), t, append(args, "--nats", s.URL())...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exoswarm %s: exit %d, want %q in\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
	}
	shown("waiting for a GPU agent", "swarm", "list")
	// An agent takes the shard and ends without a word.
	key, gone := swarms.LeaseKey(record.Key(), 0), connect()
	session, err := gone.Swarms.OpenSession(t.Context(), "gpu1", time.Second, slog.New(slog.DiscardHandler))
	must(err)
	_, err = session.Acquire(t.Context(), key)
	must(err)
	entry, err := gone.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{Name: "gpu1", Pool: jobs.PoolGPU, State: "serving", Started: time.Now()}
	}, slog.New(slog.DiscardHandler))
	must(err)
	shown(`"state":"served"`, "swarm", "list", "-o", "jsonl")
	must(entry.Close(t.Context()))
	gone.Close()
	var since time.Time
	testkit.Until(t, "the loss of gpu1", func() bool {
		c, err := conn.Swarms.Census(t.Context())
		must(err)
		a := c.LostHolder(key)
		if a != nil {
			since = a.Lost.Since
		}
		return a != nil
	})
	lost := "waiting for a GPU agent: gpu1 was lost at " + since.Local().Format(time.TimeOnly)
	shown(lost, "swarm", "list")
	shown(lost, "swarm", "get", "job")
	shown(fmt.Sprintf("lost since %s, held %s", since.UTC().Format(time.RFC3339), key), "agent", "list")
	shown(`"lost":{"since":"`, "agent", "list", "-o", "jsonl")
	// Another one takes it over and says how far it is.
	session, err = conn.Swarms.OpenSession(t.Context(), "gpu2", time.Second, slog.New(slog.DiscardHandler))
	must(err)
	defer func() { must(session.Close(t.Context())) }()
	testkit.Until(t, "the end of the session of gpu1", func() bool { return len(session.Peers()) <= 1 })
	if c, err := conn.Swarms.Census(t.Context()); err != nil || c.LostHolder(key) == nil ||
		!c.LostHolder(key).Lost.Since.Equal(since) {
		t.Errorf("gpu1, whose session was ended for it, is not lost since %v: %+v: %v", since, c, err)
	}
	testkit.Until(t, "the lease of gpu1's shard", func() bool {
		_, err = session.Acquire(t.Context(), key)
		return err == nil
	})
	entry, err = conn.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Name: "gpu2", Pool: jobs.PoolGPU, State: "serving",
			Recovering: []jobs.Recovery{{Shard: key, Entry: 57, Of: 120, Rate: 12}},
		}
	}, slog.New(slog.DiscardHandler))
	must(err)
	defer func() { must(entry.Close(t.Context())) }()
	const replay = "replaying entry 57 of 120 (48 %, 12 entries/s)"
	shown(replay, "swarm", "list")
	shown(replay, "swarm", "get", "job")
	shown(`"recovering":{"shard":"`+key+`","entry":57,"of":120,"entries_per_second":12}`, "swarm", "get", "job", "-o",
		"jsonl")
	shown(replay, "agent", "list")
	if c, err := conn.Swarms.Census(t.Context()); err != nil || len(c.Agents) != 1 {
		t.Errorf("gpu1 is listed although its shard is held again: %+v: %v", c, err)
	}
}
