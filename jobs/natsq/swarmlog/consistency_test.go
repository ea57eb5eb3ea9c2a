package swarmlog_test

import (
	"context"
	"errors"
	"fmt"
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

// keptAs is how the stream of a log is kept.
func keptAs(t *testing.T, url, stream string) string {
	t.Helper()
	js := jobstest.Raw(t, natsconn.Options{URL: url}).JS
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	return fmt.Sprintf("%d %v", c.Replicas, c.PersistMode)
}

// TestConsistencyOfLogs: logs of one cluster have the replicas and the durability of their swarms,
// take and give entries with each, and what no server can give is refused with what to do.
func TestConsistencyOfLogs(t *testing.T) {
	t.Parallel()
	servers := jobstest.Cluster(t)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: servers[0].URL(), Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	alone, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(alone.Close)
	single, err := natsq.Connect(t.Context(), natsconn.Options{URL: alone.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(single.Close)
	for i, c := range []struct {
		conn *natsq.Conn
		url  string
		want swarms.Consistency
		kept string // or
		says string
	}{
		{conn, servers[0].URL(), swarms.Consistency{}, "3 Default", ""},
		{conn, servers[0].URL(), swarms.Consistency{Replicas: 1}, "1 Default", ""},
		{conn, servers[0].URL(), swarms.Consistency{Replicas: 3, Durability: swarms.Synced}, "3 Default", ""},
		{conn, servers[0].URL(), swarms.Consistency{Durability: swarms.Fast}, "1 Async", ""},
		{
			conn, "",
			swarms.Consistency{Replicas: 3, Durability: swarms.Fast},
			"",
			"cannot be told otherwise for one of " +
				"them: use 1 replica",
		},
		{conn, "", swarms.Consistency{Replicas: 5}, "", "5 replicas: the NATS server has not as many servers"},
		{conn, "", swarms.Consistency{Replicas: 2}, "", "replicas 2: use 1, 3 or 5"},
		{conn, "", swarms.Consistency{Durability: "slow"}, "", `durability "slow": use synced or fast`},
		{single, "", swarms.Consistency{Replicas: 3}, "", "3 replicas: the NATS server has not as many servers"},
		{single, alone.URL(), swarms.Consistency{Replicas: 1, Durability: swarms.Fast}, "1 Async", ""},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			if c.want.Replicas == 5 {
				testkit.OnlyLong(t) // a refusal by a cluster takes 10 s
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			l := c.conn.Swarms.Log(fmt.Sprintf("s%d", i), 0, swarms.In)
			began := time.Now()
			err := l.Create(ctx, c.want)
			if c.says != "" {
				var refused *jobs.Error
				if !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid ||
					!strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v, after %v: %v", c.want, time.Since(began), err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%+v: %v", c.want, err)
			}
			if got := keptAs(t, c.url, fmt.Sprintf("EXO_LOG_s%d_0_in", i)); got != c.kept {
				t.Errorf("%+v is kept as %q, want %q", c.want, got, c.kept)
			}
			entries := []swarms.Entry{{Kind: "a", Ref: 1}, {Kind: "b", Ref: 2}, {Kind: "c", Ref: 3}}
			if err := l.Append(ctx, 0, entries...); err != nil {
				t.Fatalf("%+v: %v", c.want, err)
			}
			if err := l.Append(ctx, 1, swarms.Entry{Kind: "d", Ref: 4}); !errors.Is(err, jobs.ErrFenced) {
				t.Errorf("%+v: a second writer: %v", c.want, err)
			}
			if last, err := l.Last(ctx); err != nil || last.Seq != 3 || last.Kind != "c" {
				t.Errorf("%+v ends with %+v: %v", c.want, last, err)
			}
			if err := l.Create(ctx, c.want); err != nil { // as an attempt does that comes after another
				t.Errorf("%+v, a second time: %v", c.want, err)
			}
		})
	}
}
