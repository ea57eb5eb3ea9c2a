package swarmlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// directLog makes a log whose stream any replica may read from, as earlier versions made them.
func directLog(t *testing.T, url, swarm string, replicas int) {
	t.Helper()
	js := jobstest.Raw(t, natsconn.Options{URL: url}).JS
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EXO_LOG_" + swarm + "_0_in", Subjects: []string{"exo.log." + swarm + ".0.in"}, Replicas: replicas,
		Discard: jetstream.DiscardNew, AllowDirect: true, AllowAtomicPublish: true,
	}); err != nil {
		t.Fatal(err)
	}
}

// TestLogEndIsTheLeaders: no call that decides by the end of a log asks a replica, even if the
// stream lets replicas answer.
func TestLogEndIsTheLeaders(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	directLog(t, s.URL(), "old", 1)
	ear := jobstest.Raw(t, natsconn.Options{InProcess: s}).NC
	asked, err := ear.SubscribeSync("$JS.API.DIRECT.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := ear.Flush(); err != nil {
		t.Fatal(err)
	}
	made := c.Swarms.Log("new", 0, swarms.In)
	if err := made.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range []swarms.Log{c.Swarms.Log("old", 0, swarms.In), made} {
		if err := l.Append(t.Context(), 0, swarms.Entry{Kind: swarms.EntryTick, Ref: 1}); err != nil {
			t.Fatal(err)
		}
		err := l.Append(t.Context(), 0, swarms.Entry{Kind: swarms.EntryTick, Ref: 2})
		if !errors.Is(err, jobs.ErrFenced) {
			t.Fatal(err)
		}
		if last, err := l.Last(t.Context()); err != nil || last.Seq != 1 || last.Ref != 1 {
			t.Fatalf("%+v: %v", last, err)
		}
	}
	if err := ear.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := asked.Pending(); err != nil || n > 0 {
		m, _ := asked.NextMsg(time.Second)
		t.Errorf("%d direct gets, the first on %s: %v", n, m.Subject, err)
	}
	info := struct {
		Config struct {
			AllowDirect bool `json:"allow_direct"`
		} `json:"config"`
	}{}
	m, err := ear.Request("$JS.API.STREAM.INFO.EXO_LOG_new_0_in", nil, 10*time.Second)
	if err == nil {
		err = json.Unmarshal(m.Data, &info)
	}
	if err != nil || info.Config.AllowDirect {
		t.Errorf("the stream of a new log: %+v: %v", info, err)
	}
}

// TestLogOfThreeServers: a stored entry is the last one for the next reader at any server. Two
// writers that take turns at different servers are never fenced because a replica lags.
func TestLogOfThreeServers(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	servers := jobstest.Cluster(t)
	var conns []*natsq.Conn
	for _, s := range servers {
		c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Replicas: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	directLog(t, servers[0].URL(), "s", 3)
	for i := range uint64(100) {
		writer, reader := conns[i%3].Swarms.Log("s", 0, swarms.In), conns[(i+1)%3].Swarms.Log("s", 0, swarms.In)
		if err := writer.Append(ctx, i, swarms.Entry{Kind: swarms.EntryTick, Ref: i + 1}); err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		if last, err := reader.Last(ctx); err != nil || last.Seq != i+1 {
			t.Fatalf("behind entry %d the log ends at %d: %v", i+1, last.Seq, err)
		}
	}
}

// TestReaderOfLogPutBack: a reader whose log was put back to an earlier state returns an error. It
// does not wait behind the end of the log, and does not continue with an entry that does not
// follow.
func TestReaderOfLogPutBack(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fill := func(l swarms.Log, seed byte, n uint64) {
		t.Helper()
		err := l.Create(ctx)
		for i := uint64(0); i < n && err == nil; i++ {
			err = l.Append(ctx, i, swarms.Entry{Kind: swarms.EntryTick, Ref: i + 1, Data: []byte{seed, byte(i)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for name, again := range map[string]uint64{"shorter": 1, "longer": 5} {
		l := c.Swarms.Log(name, 0, swarms.In)
		fill(l, 1, 3)
		r, err := l.Read(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for range 3 {
			if _, err := r.Next(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		fill(l, 2, again)
		all.Go(func() {
			if e, err := r.Next(ctx); !errors.Is(err, jobs.ErrFenced) {
				t.Errorf("%s: %+v: %v", name, e, err)
			}
		})
	}
	all.Wait()
}
