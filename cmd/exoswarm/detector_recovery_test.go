package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protowire"
	_ "modernc.org/sqlite"

	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	detectKills = flag.Int("detect.kills", 6, "kill -9 of processes in TestDetectorRecovery, of all of them in turn")
	detectSeed  = flag.Uint64("detect.seed", 0, "seed of their order and moments; 0 takes one of the clock and logs it")
	detectRows  = flag.Int("detect.rows", 1500, "rows of each detector in TestDetectorRecovery")
)

// detectRow is a row of the detectors under kills.
type detectRow struct {
	at    int64 // milliseconds since 1970
	value int
	id    string
}

// json returns the row as a line of NDJSON.
func (r detectRow) json() string {
	return fmt.Sprintf("{\"timestamp\":%d,\"value\":%d,\"id\":%q}\n", r.at, r.value, r.id)
}

// detectRowsOf returns n rows of 30 entities in random order, some of them surprising.
func detectRowsOf(n int) (all []detectRow) {
	r := rand.New(rand.NewPCG(31, 31))
	for i := range n {
		v := r.IntN(7)
		if r.IntN(200) == 0 {
			v += 500
		}
		all = append(all, detectRow{1700000000000 + 1000*int64(i), v, fmt.Sprint("d", r.IntN(30))})
	}
	return all
}

// detecting is a detector under kills: its sources, and how rows get to them, each once.
type detecting struct {
	name string
	src  source.Series
	put  func(ctx context.Context, part int, rows []detectRow) error
	// shards of its swarm; 0 for one.
	shards int
	sent   atomic.Int64
}

// insist repeats a call that may be repeated until it succeeds or ctx ends.
func insist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// posted posts a body until it is stored.
func posted(ctx context.Context, url string, body []byte, header ...string) error {
	return insist(ctx, func() error {
		once, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(once, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode/100 != 2 {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		return err
	})
}

// writeRequest returns rows as a request of Prometheus remote write.
func writeRequest(rows []detectRow) []byte {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	var all []byte
	for _, r := range rows {
		label := field(field(nil, 1, []byte("id")), 2, []byte(r.id))
		sample := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
		sample = protowire.AppendFixed64(sample, math.Float64bits(float64(r.value)))
		sample = protowire.AppendVarint(protowire.AppendTag(sample, 2, protowire.VarintType), uint64(r.at))
		all = field(all, 1, field(field(nil, 1, label), 2, sample))
	}
	return s2.EncodeSnappy(nil, all)
}

// overKills returns a detector over each kind of source.
func (r *recovery) overKills(ctx context.Context, push string) []*detecting {
	t := r.t
	t.Helper()
	js := r.conn.JS
	if err := insist(ctx, func() error {
		for _, name := range []string{"IN", "OUT"} {
			if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
				Name: name, Subjects: []string{strings.ToLower(name) + ".>"}, Duplicates: 30 * time.Minute,
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("CreateOrUpdateStream: %v", err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatalf("kfake.NewCluster: %v", err)
	}
	t.Cleanup(broker.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatalf("kgo.NewClient: %v", err)
	}
	t.Cleanup(producer.Close)
	db, err := sql.Open("sqlite", filepath.Join(r.root, "rows.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatalf("sql.Open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(ctx, "CREATE TABLE readings (seq integer PRIMARY KEY, at, value, id)"); err != nil {
		t.Fatalf("CREATE TABLE: %v", err)
	}
	text := func(rows []detectRow) (b []byte) {
		for _, row := range rows {
			b = append(b, row.json()...)
		}
		return b
	}
	pushed := func(name string) func(context.Context, int, []detectRow) error {
		return func(ctx context.Context, part int, rows []detectRow) error {
			return posted(ctx, push+name, text(rows), "Content-Type", "application/x-ndjson", "Idempotency-Key",
				fmt.Sprint(name, part))
		}
	}
	mosquitto := servertest.StartMQTT(t)
	publisher := mosquitto.Publisher(t)
	const often = 0.005
	pushSpec := &source.PushSpec{BatchSeconds: often}
	return []*detecting{{
		name: "whole", src: source.Series{URI: "push:whole", Push: pushSpec}, put: pushed("whole"),
	}, {
		name: "push", src: source.Series{URI: "push:push", Push: pushSpec}, put: pushed("push"),
	}, {
		name: "subject", src: source.Series{URI: "nats:IN/in.rows", NATS: &source.SubjectSpec{BatchSeconds: often}},
		put: func(ctx context.Context, part int, rows []detectRow) error {
			return insist(ctx, func() error {
				// The acknowledgement of a server that was killed never comes.
				once, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				_, err := js.Publish(once, "in.rows", text(rows), jetstream.WithMsgID(fmt.Sprint("rows", part)))
				return err
			})
		},
	}, {
		name: "kafka", src: source.Series{
			URI: "kafka://" + broker.ListenAddrs()[0] + "/t", Kafka: &source.KafkaSpec{BatchSeconds: often},
		},
		put: func(ctx context.Context, _ int, rows []detectRow) error {
			var all []*kgo.Record
			for _, row := range rows {
				all = append(all, &kgo.Record{Value: []byte(strings.TrimSpace(row.json()))})
			}
			return producer.ProduceSync(ctx, all...).FirstErr()
		},
	}, {
		name: "mqtt", src: source.Series{
			URI: "mqtt://" + mosquitto.Address + "/rows", MQTT: &source.MQTTSpec{BatchSeconds: often},
		},
		put: func(_ context.Context, _ int, rows []detectRow) error {
			return publisher.Publish("rows", text(rows), false)
		},
	}, {
		name: "remotewrite", src: source.Series{URI: "push:remotewrite", Push: pushSpec},
		put: func(ctx context.Context, _ int, rows []detectRow) error {
			return posted(ctx, push+"remotewrite", writeRequest(rows), "Content-Type", "application/x-protobuf",
				"Content-Encoding", "snappy", "X-Prometheus-Remote-Write-Version", "0.1.0")
		},
	}, {
		name: "sql", src: source.Series{URI: "sqlite:r/rows.db", SQL: &source.SQLSpec{
			Query: "SELECT seq, at AS timestamp, value, id FROM readings WHERE seq > $1 ORDER BY seq", Cursor: "seq",
			Start: 0, Every: 0.1,
		}},
		put: func(ctx context.Context, part int, rows []detectRow) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			for _, row := range rows {
				if _, err := tx.ExecContext(ctx, "INSERT INTO readings (at, value, id) VALUES (?, ?, ?)", row.at,
					row.value, row.id); err != nil {
					return err
				}
			}
			return tx.Commit()
		},
	}}
}

// create creates the detector with a table, a folder and a subject for its decisions.
func (d *detecting) create(ctx context.Context, t *testing.T, all *detectors.Detectors) {
	t.Helper()
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: "+d.name+"\nagents_per_group: 16\nkey: id\n"+
		"max_entities: 40\npage_size: 64KiB\ncheckpoint: {interval: 100ms, entries: 16}\n"))
	if err != nil {
		t.Fatalf("swarm.Parse: %v", err)
	}
	parsed.Shards = d.shards
	d.src.Name = "s"
	spec, err := detectors.Spec(parsed, []source.Series{d.src}, []sink.Spec{
		{URI: "sqlite:r/" + d.name + ".db?table=decisions"},
		{URI: "file:r/" + d.name + ".parts", PartRows: 100},
		{URI: "nats:OUT/out." + d.name},
	}, nil)
	if err != nil {
		t.Fatalf("detectors.Spec: %v", err)
	}
	if err := all.Create(ctx, spec); err != nil {
		t.Fatalf("Create %s: %v", d.name, err)
	}
}

// inTable returns the decisions in the table of a detector, in their order.
func (r *recovery) inTable(ctx context.Context, name string) (all []string, err error) {
	db, err := sql.Open("sqlite", filepath.Join(r.root, name+".db")+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	found, err := db.QueryContext(ctx, "SELECT * FROM decisions ORDER BY rowid")
	if err != nil {
		if strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "unable to open") {
			return nil, nil
		}
		return nil, err
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	v, to := make([]any, len(columns)), make([]any, len(columns))
	for i := range v {
		to[i] = &v[i]
	}
	for found.Next() {
		if err := found.Scan(to...); err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprint(v[1:]...)) // the first is the key of the swarm
	}
	return all, found.Err()
}

// decided returns the decisions of a detector in each of its sinks.
func (r *recovery) decided(ctx context.Context, name string) (all [3][]string, err error) {
	if all[0], err = r.inTable(ctx, name); err != nil {
		return all, err
	}
	if all[1], err = lines(filepath.Join(r.root, name+".parts")); err != nil {
		return all, err
	}
	c, err := r.conn.JS.OrderedConsumer(ctx, "OUT", jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"out." + name},
	})
	if err != nil {
		return all, err
	}
	for {
		m, err := c.Next(jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return all, nil // no further message
		}
		for line := range strings.Lines(string(m.Data())) {
			all[2] = append(all[2], line)
		}
	}
}

// awaitTable waits until the table of a detector has n decisions.
func (r *recovery) awaitTable(ctx context.Context, name string, n int) {
	r.t.Helper()
	for have := 0; have < n; {
		r.until(fmt.Sprintf("decision %d of %d in the table of %s", have+1, n, name), func() bool {
			got, err := r.inTable(ctx, name)
			if err != nil {
				r.t.Fatalf("table of %s: %v", name, err)
			}
			more := len(got) > have
			have = len(got)
			return more
		})
	}
}

// awaitRunning waits until an agent has reported that it reads the sources of a detector.
func (r *recovery) awaitRunning(ctx context.Context, all *detectors.Detectors, name string) {
	r.t.Helper()
	r.until("the begin of detector "+name, func() bool {
		one, err := all.Get(ctx, name)
		return err == nil && one.Counts != nil
	})
	letPass(ctx, 200*time.Millisecond) // rows that are sent while it opens its sources are part of the test
}

// until waits for a condition, and fails with what the cluster says when nothing comes.
func (r *recovery) until(what string, met func() bool) {
	r.t.Helper()
	end := time.Now().Add(*recoverStall)
	testkit.Until(r.t, what, func() bool {
		if time.Now().After(end) {
			r.t.Fatalf("%s has not come\n%s", what, r.stalled(nil))
		}
		return met()
	})
}

// awaitPaused waits until the job of a detector that was told to pause is over. A job that no agent
// had at that moment ends when an agent gets it.
func (r *recovery) awaitPaused(ctx context.Context, all *detectors.Detectors, name string) {
	r.t.Helper()
	r.until("the pause of detector "+name, func() bool {
		one, err := all.Get(ctx, name)
		return err == nil && one.State == detectors.StatePaused && one.Counts != nil
	})
}

// TestDetectorRecovery kills the NATS server, the GPU agent and the CPU agent with kill -9 at
// random moments while rows come to a detector over each kind of source: a subject, pushed rows,
// Kafka, MQTT, Prometheus remote write and a table that grows. Each sink has the decisions of a
// detector that was not disturbed, in their order: none is lost, none is there twice, and all bits
// are the same. Every second detector has three shards, which keep the order within an entity.
func TestDetectorRecovery(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	seed := *detectSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Duration(*detectKills)*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	listen := fmt.Sprint("127.0.0.1:", fixedPorts(t, 1)[0])
	for _, m := range r.cpus {
		m.command = append(m.command, "--push-listen", listen, "--egress", "127.0.0.1/32", "--concurrency", "8")
	}
	for _, m := range slices.Concat(r.gpus, r.cpus) {
		m.start(t)
	}
	all := detectors.New(r.conn)
	detecting := r.overKills(ctx, "http://"+listen+"/v1/push/")
	rows := detectRowsOf(*detectRows)
	const part = 10
	whole := detecting[0]
	whole.create(ctx, t, all)
	number := 0
	for some := range slices.Chunk(rows, part) {
		if err := whole.put(ctx, number, some); err != nil {
			t.Fatalf("put: %v", err)
		}
		number++
	}
	r.awaitTable(ctx, whole.name, len(rows))
	if err := all.Pause(ctx, whole.name); err != nil {
		t.Fatalf("Pause: %v", err)
	}
	r.awaitPaused(ctx, all, whole.name)
	want, err := r.decided(ctx, whole.name)
	if err != nil {
		t.Fatalf("decided: %v", err)
	}
	for i, got := range want {
		if len(got) != len(rows) {
			t.Fatalf("the undisturbed sink %d has %d decisions, want %d", i, len(got), len(rows))
		}
	}

	disturbed := detecting[1:]
	for i, d := range disturbed {
		d.shards = 3 * (i % 2) // every second one
		d.create(ctx, t, all)
	}
	for _, d := range disturbed { // a session of MQTT begins with its detector
		r.awaitRunning(ctx, all, d.name)
	}
	feeding, failed := make(chan struct{}), make(chan error, len(disturbed))
	for _, d := range disturbed {
		go func() {
			number := 0
			for some := range slices.Chunk(rows, part) {
				if err := d.put(ctx, number, some); err != nil {
					failed <- fmt.Errorf("rows of %s: %w", d.name, err)
					return
				}
				number++
				d.sent.Add(int64(len(some)))
				select { // the rows are spread over the kills
				case <-feeding:
				case <-time.After(time.Duration(*detectKills) * 3 * time.Second * part / time.Duration(len(rows))):
				}
			}
			failed <- nil
		}()
	}
	random := rand.New(rand.NewPCG(seed, 3))
	members := r.members()
	for n := range *detectKills {
		if n%len(members) == 0 {
			random.Shuffle(len(members), func(i, k int) { members[i], members[k] = members[k], members[i] })
		}
		m := members[n%len(members)]
		letPass(ctx, time.Duration(random.Int64N(int64(4*time.Second)))) // the moment of the kill
		r.fault("kill", m)
		r.end(m, syscall.SIGKILL)
		m.kills++
		if random.IntN(2) == 0 {
			letPass(ctx, time.Duration(random.Int64N(int64(time.Second)))) // how long it is gone
		}
		m.start(t)
	}
	close(feeding)
	for range disturbed {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range disturbed {
		r.awaitTable(ctx, d.name, len(rows))
		if err := insist(ctx, func() error { return all.Pause(ctx, d.name) }); err != nil {
			t.Fatalf("Pause %s: %v", d.name, err)
		}
		r.awaitPaused(ctx, all, d.name)
		got, err := r.decided(ctx, d.name)
		if err != nil {
			t.Fatalf("decisions of %s: %v", d.name, err)
		}
		for i, kind := range []string{"table", "folder", "subject"} {
			want := want[i]
			if d.shards > 1 { // the order is kept within an entity only
				want = slices.Clone(want)
				slices.Sort(want)
				slices.Sort(got[i])
			}
			if err := compare(want, got[i]).err(); err != nil {
				t.Errorf("seed %d, detector over %s, sink %s: %v", seed, d.name, kind, err)
			}
		}
		one, err := all.Get(ctx, d.name)
		if err != nil || one.Counts == nil || one.Counts.Rows != uint64(len(rows)) ||
			one.Counts.Decisions != uint64(len(rows)) || one.Counts.Rejected != 0 {
			t.Errorf("seed %d, detector over %s: %+v, counts %+v, %v", seed, d.name, one, one.Counts, err)
		}
	}
	line := fmt.Sprintf("seed %d", seed)
	for _, m := range r.members() {
		r.end(m, syscall.SIGTERM)
		if code := m.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s: exit code %d\n%s", m.cmd.Path, code, m.log)
		}
		line += fmt.Sprintf("  %s killed %d", m.kind, m.kills)
	}
	t.Logf("%s  resumed from checkpoints %d  rows %d of %d detectors lost 0 doubled 0", line, r.resumed, len(rows),
		len(disturbed))
	if t.Failed() {
		for _, f := range r.faults {
			_, _ = fmt.Fprintln(os.Stderr, f)
		}
	}
}
