package cpuagents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// sharded sets the number of shards of a job's swarm.
func sharded(t *testing.T, shards int, change func(*cpuagents.StreamSpec)) func(*cpuagents.StreamSpec) {
	t.Helper()
	text := fmt.Sprintf("name: test\nagents_per_group: 16\nshards: %d\n", shards)
	spec, err := swarm.Parse("swarm.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	return func(s *cpuagents.StreamSpec) {
		change(s)
		s.Spec = data
	}
}

// cutQueue stops an attempt at an append to the log of a shard, before it or after it. The parts of
// the same batch for other shards are then stored or not.
type cutQueue struct {
	cpuagents.Queue
	shards int

	mu   sync.Mutex
	left int // appends until stop is called
	stop func()
	r    *rand.Rand
}

func (q *cutQueue) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	l := q.Queue.Log(swarm, shard, d)
	if d != swarms.In || shard >= q.shards {
		return l
	}
	return &cutLog{l, q}
}

type cutLog struct {
	swarms.Log
	q *cutQueue
}

func (l *cutLog) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	l.q.mu.Lock()
	l.q.left--
	cut, before := l.q.left <= 0, l.q.r.IntN(2) == 0
	l.q.mu.Unlock()
	if !cut {
		return l.Log.Append(ctx, after, entries...)
	}
	l.q.stop()
	if before {
		return jobs.ErrDrain
	}
	return errors.Join(l.Log.Append(context.WithoutCancel(ctx), after, entries...), jobs.ErrDrain)
}

// outputs returns all files that a job wrote.
func (c *cluster) outputs(t *testing.T, id string) (all string) {
	t.Helper()
	for _, kind := range []string{".ndjson", ".summary", ".rejects", ".incidents"} {
		all += c.read(t, id+kind)
	}
	return all
}

// TestShardedStream: a job over several shards writes the bytes of one with one shard, also when it
// is stopped again and again between the parts of a batch. Entities are found by their keys in all
// shards.
func TestShardedStream(t *testing.T) {
	c := newCluster(t)
	all := keyedRows(4000)
	writeKeyed(t, c, "1.csv", all[:2500])
	writeKeyed(t, c, "2.csv", append(all[2500:], all[:5]...)) // the last rows are late
	two := []source.Series{{Name: "1", URI: "file:dir/1.csv"}, {Name: "2", URI: "file:dir/2.csv"}}
	base := keyed(40, "site", "id")
	c.handle(t, c.job(t, "one", two, base))
	want := c.outputs(t, "one")
	for _, shards := range []int{2, 5} {
		id := fmt.Sprint("whole", shards)
		r := c.handle(t, c.job(t, id, two, sharded(t, shards, base)))
		if r.Entities != 30 || r.Decisions != 4000 || r.Rejected != 5 {
			t.Errorf("%d shards: the result is %+v", shards, r)
		}
		if c.outputs(t, id) != want {
			t.Errorf("%d shards: other bytes than with one", shards)
		}
	}
	const shards = 3
	q := &cutQueue{Queue: c.conn.StreamJobs(), shards: shards, r: rand.New(rand.NewPCG(7, 7))}
	broken, err := cpuagents.New(cpuagents.Options{Queue: q, Files: c.streamer.Files, Logger: quiet})
	if err != nil {
		t.Fatalf("cpuagents.New: %v", err)
	}
	job := c.job(t, "broken", two, sharded(t, shards, base))
	uneven, attempts := 0, 0
	for ; ; attempts++ {
		ctx, stop := context.WithCancelCause(t.Context())
		q.left, q.stop = 5+q.r.IntN(20), func() { stop(jobs.ErrDrain) }
		_, err := broken.Handle(ctx, job, func(any) {})
		stop(nil)
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrDrain) || attempts > 100 {
			t.Fatalf("attempt %d: %v", attempts, err)
		}
		record, err := c.conn.Swarms.Swarm(t.Context(), "broken")
		if err != nil {
			t.Fatalf("Swarm of a job that was drained: %v", err)
		}
		last := map[uint64]bool{}
		for k := range shards {
			e, err := c.conn.Swarms.Log(record.Key(), k, swarms.In).Last(t.Context())
			if err != nil {
				t.Fatalf("shard %d: %v", k, err)
			}
			last[e.Ref] = true
		}
		if len(last) > 1 {
			uneven++
		}
		var d statelog.Dictionary
		if _, err := d.Update(t.Context(), c.conn.Swarms.Log(record.Key(), statelog.KeyShard, swarms.In)); err != nil {
			t.Fatalf("the dictionary: %v", err)
		}
		seen := map[int]int{}
		for g, key := range d.Keys() {
			if key != "" {
				seen[record.ShardOf(g)]++
			}
		}
		for k := range shards {
			if seen[k] != 10 {
				t.Errorf("shard %d has %d entities, want 10 of 30", k, seen[k])
			}
		}
	}
	if attempts < 3 || uneven == 0 {
		t.Errorf("%d attempts were stopped, %d of them between the parts of a batch", attempts, uneven)
	}
	if c.outputs(t, "broken") != want {
		t.Error("a job that was stopped has other bytes")
	}
}

// TestShardedSeries: series and a source with a journal use shards too, and more shards than groups
// are refused before there is a swarm.
func TestShardedSeries(t *testing.T) {
	c := newCluster(t)
	src := httptest.NewServer(http.HandlerFunc(pages))
	defer src.Close()
	polled := func(name string) source.Series {
		return source.Series{Name: name, URI: src.URL + "/x.csv", HTTP: &source.HTTPSpec{
			CursorParam: "from", CursorFrom: "header:Next", Rate: 1000, Backoff: 0.001,
		}}
	}
	all := keyedRows(900)
	writeKeyed(t, c, "f.csv", all)
	three := []source.Series{polled("a"), polled("b"), {Name: "c", URI: "file:dir/f.csv"}}
	anyOrder := func(s *cpuagents.StreamSpec) {
		s.Columns = rows.ColumnSpec{Timestamp: s.Columns.Timestamp, Features: s.Columns.Features, AnyOrder: true}
		s.BatchRows = 200
		explained(s)
	}
	c.handle(t, c.job(t, "one", three, anyOrder))
	c.handle(t, c.job(t, "three", three, sharded(t, 3, anyOrder)))
	if c.outputs(t, "one") != c.outputs(t, "three") {
		t.Error("three shards: other bytes than with one")
	}
	_, err := c.streamer.Handle(t.Context(), c.job(t, "many", three, sharded(t, 4, anyOrder)), func(any) {})
	if err == nil || !strings.Contains(err.Error(), "shards: 4, and its swarm has 3 groups") {
		t.Errorf("4 shards of 3 series: %v", err)
	}
	if _, err := c.conn.Swarms.Swarm(t.Context(), "many"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("there is a swarm: %v", err)
	}
}

// again counts the messages of detectors that send the rows of a batch again.
type again struct {
	slog.Handler
	n *atomic.Int64
}

func (h again) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "rows of the last batch") {
		h.n.Add(1)
	}
	return nil
}
func (h again) Enabled(context.Context, slog.Level) bool { return true }

// TestDetectorParts: a detector over several shards whose attempts end between the parts of a
// batch, or at a swap, decides each row once, as one with one shard that is never stopped. Its rows
// come from two sources.
func TestDetectorParts(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes minutes")
	}
	t.Parallel()
	c := newCluster(t)
	all := detectorRows(testkit.Of(800, 400))
	two := func(name string) []source.Series {
		return append(pushSource(name+"-a"), source.Series{
			Name: "q", URI: "push:" + name + "-b", Push: &source.PushSpec{BatchSeconds: 0.005},
		})
	}
	// The rows of an entity come from one source, since the order of two is not fixed.
	push := func(name string, rows []string) {
		of := [2][]string{}
		for _, row := range rows {
			k := strings.Count(row, "1\"}") // entities d1, d11 and d21
			of[k] = append(of[k], row)
		}
		for k, rows := range of {
			if len(rows) > 0 {
				c.pushLines(t, name+[]string{"-a", "-b"}[k], rows...)
			}
		}
	}
	whole := c.detect(t, detectorJob(t, "whole", 40, two("whole"), nil))
	for part := range slices.Chunk(all, 100) {
		push("whole", part)
	}
	c.awaitDecisions(t, "whole", len(all))
	whole.end(t, jobs.ErrFinish)
	want := c.decisionsOf(t, "whole")
	slices.Sort(want)

	const shards = 3
	completed := int64(0)
	for _, one := range []struct {
		name   string
		groups int
		cut    int // most appends of an attempt
		change func(*cpuagents.DetectorSpec)
	}{
		{"kept", 40, 12, inShards(t, shards)},
		{"full", 8, 60, func(s *cpuagents.DetectorSpec) { inShards(t, shards)(s); evicting(t, 1e6)(s) }},
		{"time", 40, 30, func(s *cpuagents.DetectorSpec) { inShards(t, shards)(s); evicting(t, 20)(s) }},
	} {
		q := &cutQueue{Queue: c.conn.StreamJobs(), shards: shards, r: rand.New(rand.NewPCG(7, 8))}
		broken, err := cpuagents.New(cpuagents.Options{Queue: q, Files: c.streamer.Files, Logger: quiet})
		if err != nil {
			t.Fatalf("cpuagents.New: %v", err)
		}
		job := detectorJob(t, one.name, one.groups, two(one.name), one.change)
		var repeated atomic.Int64
		counting := slog.New(again{Handler: quiet.Handler(), n: &repeated})
		logs := jobs.WithLoggers(t.Context(), func(int) *slog.Logger { return counting })
		attempts, left := 0, all
		for end := time.Now().Add(5 * time.Minute); c.decided(t, one.name) < len(all); attempts++ {
			if time.Now().After(end) {
				t.Fatalf("%s: the table has %d rows of %d after %d attempts", one.name,
					c.decided(t, one.name), len(all), attempts)
			}
			ctx, stop := context.WithCancelCause(logs)
			q.mu.Lock()
			q.left, q.stop = 4+q.r.IntN(one.cut), func() { stop(jobs.ErrDrain) }
			q.mu.Unlock()
			n := min(len(left), 60)
			push(one.name, left[:n])
			left = left[n:]
			ended := make(chan error, 1)
			go func() {
				_, err := broken.HandleDetector(ctx, job, func(any) {})
				stop(nil)
				ended <- err
			}()
			testkit.Until(t, "the attempt to end, or to decide all of its rows, which may be fewer than its appends",
				func() bool { return ctx.Err() != nil || c.decided(t, one.name) >= len(all)-len(left) })
			stop(jobs.ErrDrain)
			err := <-ended
			if !errors.Is(err, jobs.ErrDrain) && !givenOutAgain(err) {
				t.Fatalf("%s: attempt %d: %v", one.name, attempts, err)
			}
		}
		now := c.detect(t, job)
		now = c.allDecisions(t, now, job, one.name, len(all))
		now.end(t, jobs.ErrFinish)
		got := c.decisionsOf(t, one.name)
		slices.Sort(got)
		if p := now.result; !slices.Equal(got, want) || p.Rows != uint64(len(all)) || p.Decisions != p.Rows ||
			p.Rejected != 0 {
			t.Errorf("%s: after %d attempts there are other decisions, %d of %d: %+v", one.name, attempts, len(got),
				len(want), p)
		}
		t.Logf("%s: %d attempts, %d batches completed, %+v", one.name, attempts, repeated.Load(), *now.result)
		completed += repeated.Load()
	}
	if completed == 0 { // on a busy machine most attempts end before they append
		t.Error("no attempt completes a batch: the test reaches nothing")
	}
}
