package swarmlog_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// replication is what the routes of a cluster carry. It holds back what leaders replicate to one
// server, so that its replicas lag behind. Everything else passes, so its clients reach every
// leader.
type replication struct {
	mu     sync.Mutex
	behind string // the server that nothing is replicated to; empty: none
	routes map[*route]bool
	ended  sync.WaitGroup
}

// route is one direction of a connection between two servers.
type route struct {
	to   string // the server that reads from it; empty until it has named itself
	out  net.Conn
	held bytes.Buffer
}

// hold has a server lag behind; with "" it gets everything that was held back.
func (r *replication) hold(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = name
	for w := range r.routes {
		if w.to != name && w.held.Len() > 0 {
			_, _ = w.out.Write(w.held.Bytes())
			w.held.Reset()
		}
	}
}

// replicated begins the subjects on which the leader of a stream sends entries to its replicas.
const replicated = "$NRG.AE.S-R"

// carry passes one direction of a connection on, message by message, until it ends.
func (r *replication) carry(w, other *route, from net.Conn) {
	defer w.out.Close()
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		message, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		words := strings.Fields(string(message))
		if len(words) == 0 {
			continue
		}
		entry := false
		switch words[0] {
		case "RMSG", "HMSG", "LMSG":
			size, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				return
			}
			payload := make([]byte, size+2)
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			message = append(message, payload...)
			entry = strings.HasPrefix(words[1], replicated) || strings.HasPrefix(words[2], replicated)
		}
		r.mu.Lock()
		if info := (struct {
			Name string `json:"server_name"`
		}{}); other.to == "" && words[0] == "INFO" && json.Unmarshal(message[len("INFO "):], &info) == nil {
			other.to = info.Name
		}
		if entry && r.behind != "" && w.to == r.behind {
			w.held.Write(message)
		} else {
			_, err = w.out.Write(message)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// listen carries connections to the server behind an address.
func (r *replication) listen(t *testing.T, to string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.ended.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			there, back := &route{out: out}, &route{out: in}
			r.mu.Lock()
			r.routes[there], r.routes[back] = true, true
			r.mu.Unlock()
			r.ended.Go(func() { r.carry(there, back, in) })
			r.ended.Go(func() { r.carry(back, there, out) })
		}
	})
	return l
}

// laggingCluster starts three servers that reach one another through r alone.
func laggingCluster(t *testing.T) (r *replication, urls map[string]string) {
	t.Helper()
	r = &replication{routes: map[*route]bool{}}
	var all []*natsd.Options
	var relays []net.Listener
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		relay := r.listen(t, l.Addr().String())
		relays = append(relays, relay)
		all = append(all, &natsd.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: natsd.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(),
			JetStreamMaxStore: 1 << 50, JetStreamMaxMemory: 1 << 30, MaxPayload: server.MaxPayload,
			Cluster: natsd.ClusterOpts{
				Name: "lag", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port,
				Advertise: relay.Addr().String(),
			},
		})
		_ = l.Close()
	}
	urls = map[string]string{}
	var servers []*natsd.Server
	t.Cleanup(func() {
		for _, s := range servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
		for _, l := range relays {
			_ = l.Close()
		}
		r.ended.Wait()
	})
	for i, o := range all {
		for k, l := range relays {
			if k != i {
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()})
			}
		}
		s, err := natsd.NewServer(o)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		go s.Start()
	}
	for _, s := range servers {
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("a server does not start")
		}
		urls[s.Name()] = s.ClientURL()
	}
	testkit.Until(t, "the servers are a cluster", func() bool {
		return !slices.ContainsFunc(servers, func(s *natsd.Server) bool { return !s.JetStreamIsCurrent() })
	})
	return r, urls
}

// currentReplica returns the name of a server with a replica of the log that has all entries.
func currentReplica(ctx context.Context, t *testing.T, js jetstream.JetStream) (name string) {
	t.Helper()
	testkit.Until(t, "a replica is current", func() bool {
		stream, err := js.Stream(ctx, "EXO_LOG_s_0_in")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range stream.CachedInfo().Cluster.Replicas {
			if p.Current {
				name = p.Name
			}
		}
		return name != ""
	})
	return name
}

// TestLogOfLaggingReplica: a writer whose server has a replica that lags behind is not fenced by
// it, and hears of the end of the log as it is. It was: the replica answered the direct get of
// Last, and an append that was sent again, because its acknowledgement was lost, was refused.
func TestLogOfLaggingReplica(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, urls := laggingCluster(t)
	setup, err := natsq.Connect(ctx, natsconn.Options{URL: urls["s0"], Replicas: 3, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer setup.Close()
	directLog(t, urls["s0"], "s", 3)
	js := jobstest.Raw(t, natsconn.Options{URL: urls["s0"]}).JS
	behind := currentReplica(ctx, t, js)
	near := jobstest.Raw(t, natsconn.Options{URL: urls[behind]}).NC
	c, err := natsq.Connect(ctx, natsconn.Options{URL: urls[behind], Replicas: 3, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// end is the last entry as the nearest replica has it.
	end := func() string {
		m, err := near.RequestWithContext(ctx, "$JS.API.DIRECT.GET.EXO_LOG_s_0_in.exo.log.s.0.in", nil)
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get(jetstream.SequenceHeader)
	}
	log := c.Swarms.Log("s", 0, swarms.In)
	entry := func(n uint64) swarms.Entry { return swarms.Entry{Kind: swarms.EntryTick, Ref: n} }
	last := uint64(0)
	add := func() {
		if err := log.Append(ctx, last, entry(last+1)); err != nil {
			t.Fatal(err)
		}
		last++
	}
	add()
	// A replica answers direct gets some time after it has caught up. Until then another replica does,
	// which has the entries.
	testkit.Until(t, "the replica that lags behind answers", func() bool {
		held := strconv.FormatUint(last, 10)
		for end() != held {
		}
		r.hold(behind)
		add()
		add()
		if end() == held {
			return true
		}
		r.hold("")
		return false
	})
	if e, err := log.Last(ctx); err != nil || e.Seq != last {
		t.Errorf("the log of %d entries ends at %d: %v", last, e.Seq, err)
	}
	if err := log.Append(ctx, last-1, entry(last)); err != nil { // as after a lost acknowledgement
		t.Errorf("an entry that is stored, sent again by its writer: %v", err)
	}
	t.Logf("%d entries until the replica of %s lagged behind", last, behind)
	r.hold("")
	for end() != strconv.FormatUint(last, 10) {
	}
}

// TestReadersOfLaggingReplica: readers whose consumers are on a server with a replica that lags
// behind get what the leader has. Twelve consumers are on that server with a probability of 99 %.
func TestReadersOfLaggingReplica(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, urls := laggingCluster(t)
	c, err := natsq.Connect(ctx, natsconn.Options{URL: urls["s0"], Replicas: 3, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log := c.Swarms.Log("s", 0, swarms.In)
	if err := log.Create(ctx, swarms.Consistency{}); err != nil {
		t.Fatal(err)
	}
	js := jobstest.Raw(t, natsconn.Options{URL: urls["s0"]}).JS
	behind := currentReplica(ctx, t, js)
	if err := log.Append(ctx, 0, swarms.Entry{Kind: swarms.EntryTick, Ref: 1}); err != nil {
		t.Fatal(err)
	}
	var readers []swarms.Reader
	for range 12 {
		reader, err := log.Read(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if e, err := reader.Next(ctx); err != nil || e.Ref != 1 {
			t.Fatalf("entry %d: %v, want 1", e.Ref, err)
		}
		readers = append(readers, reader)
	}
	r.hold(behind)
	defer r.hold("")
	if err := log.Append(ctx, 1, swarms.Entry{Kind: swarms.EntryTick, Ref: 2}); err != nil {
		t.Fatal(err)
	}
	// The server chooses the place of a consumer, so several in turn may be on the same server. The
	// time is enough for more than a dozen.
	var reading sync.WaitGroup
	for i, reader := range readers {
		reading.Go(func() {
			if e, err := reader.Next(ctx); err != nil || e.Ref != 2 {
				t.Errorf("reader %d: entry %d: %v, want 2", i, e.Ref, err)
			}
		})
	}
	reading.Wait()
}
