package cpuagents_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// echoQueue is a queue in memory with a swarm that answers each batch at once, so that a benchmark
// has the cost of the CPU agent alone. An append takes some time, as one that waits for a disk.
type echoQueue struct {
	cpuagents.Queue
	append time.Duration

	mu     sync.Mutex
	record swarms.Swarm
	logs   map[string]*echoLog
}

func (q *echoQueue) CreateSwarm(_ context.Context, s swarms.Swarm) error {
	q.record = s
	return nil
}

func (q *echoQueue) Swarm(context.Context, string) (swarms.Swarm, error) {
	if q.record.ID == "" {
		return q.record, jobs.ErrNotFound
	}
	return q.record, nil
}

func (q *echoQueue) RemoveSwarm(context.Context, swarms.Swarm) error {
	q.record, q.logs = swarms.Swarm{}, map[string]*echoLog{}
	return nil
}

func (q *echoQueue) Log(_ string, shard int, d swarms.Direction) swarms.Log { return q.log(shard, d) }

func (q *echoQueue) log(shard int, d swarms.Direction) *echoLog {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := fmt.Sprint(shard, d)
	if q.logs[name] == nil {
		q.logs[name] = &echoLog{q: q, shard: shard, in: d == swarms.In, more: make(chan struct{}, 1)}
	}
	return q.logs[name]
}

type echoLog struct {
	q     *echoQueue
	shard int
	in    bool
	more  chan struct{}

	mu  sync.Mutex
	all []swarms.Entry
}

func (l *echoLog) Create(context.Context, ...swarms.Consistency) error { return nil }
func (l *echoLog) Delete(context.Context) error                        { return nil }
func (l *echoLog) Trim(context.Context, uint64) error                  { return nil }

func (l *echoLog) Last(context.Context) (swarms.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return swarms.Entry{}, nil
	}
	return l.all[len(l.all)-1], nil
}

func (l *echoLog) put(e swarms.Entry) {
	l.mu.Lock()
	e.Seq = uint64(len(l.all) + 1)
	l.all = append(l.all, e)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// Append takes the time of an append of a server.
func (l *echoLog) Append(ctx context.Context, _ uint64, entries ...swarms.Entry) error {
	select {
	case <-time.After(l.q.append):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, e := range entries {
		l.put(e)
		if !l.in || l.shard > 63 {
			continue
		}
		answer := swarms.Entry{Kind: e.Kind, Ref: e.Ref, Data: e.Data}
		if e.Kind == swarms.EntryObserve {
			data, err := echo(e.Data)
			if err != nil {
				return err
			}
			answer.Kind, answer.Data = swarms.EntryDecide, data
		}
		l.q.log(l.shard, swarms.Out).put(answer)
	}
	return nil
}

// echo returns a decision for each observation.
func echo(data []byte) ([]byte, error) {
	o, err := batch.DecodeObservations(data)
	if err != nil {
		return nil, err
	}
	n := o.Len()
	d := batch.Decisions{
		Group: o.Group, Row: o.Row, Read: o.Read, Timestamp: o.Timestamp, Value: o.Value, Candidates: 3,
		Score: make([]float32, n), Decision: make([]uint32, n), Counts: make([]uint32, 3*n), Leader: make([]uint64, n),
		Round: make([]uint64, n),
	}
	for i := range n {
		d.Score[i] = float32(i%1000) / 1000
	}
	return d.Encode()
}

func (l *echoLog) Read(_ context.Context, from uint64) (swarms.Reader, error) {
	return &echoReader{l, int(from) - 1}, nil
}

type echoReader struct {
	l  *echoLog
	at int
}

func (r *echoReader) Close() {}

func (r *echoReader) Next(ctx context.Context) (e swarms.Entry, err error) {
	for {
		r.l.mu.Lock()
		if r.at < len(r.l.all) {
			e = r.l.all[r.at]
			r.l.all[r.at].Data = nil
			r.at++
			r.l.mu.Unlock()
			return e, nil
		}
		r.l.mu.Unlock()
		select {
		case <-r.l.more:
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// BenchmarkKeyedRun has the rate of a CPU agent over rows of 200,000 entities in random order, with
// NDJSON as output. Appends take 0 or 2 ms.
func BenchmarkKeyedRun(b *testing.B) {
	const entities, n = 200_000, 1_000_000
	dir := b.TempDir()
	f, err := os.Create(filepath.Join(dir, "rows.csv"))
	if err != nil {
		b.Fatal(err)
	}
	w, r := bufio.NewWriter(f), rand.New(rand.NewPCG(1, 1))
	fmt.Fprintln(w, "timestamp,device_id,value")
	for i := range n {
		fmt.Fprintf(w, "%d,device-%d,%.4f\n", 1_700_000_000+i/100, r.IntN(entities), r.NormFloat64())
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	_ = f.Close()
	manifest := filepath.Join(dir, "m.json")
	if err := os.WriteFile(manifest, []byte(`[{"name":"a","uri":"file:dir/rows.csv"}]`), 0o644); err != nil {
		b.Fatal(err)
	}
	open, err := files.New(files.Options{Roots: map[files.Root]string{{Name: "dir"}: dir}, Scratch: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer open.Close()
	spec, err := json.Marshal(cpuagents.StreamSpec{
		Name: "test", Spec: json.RawMessage(`{"agents_per_group":16}`), Candidates: []string{"normal", "odd", "bad"},
		Columns: rows.ColumnSpec{
			Timestamp: "timestamp", Features: []string{"value"}, Key: []string{"device_id"}, MaxEntities: entities,
		},
		Manifest: "file:dir/m.json", Output: "file:dir/out.ndjson", Rejects: "file:dir/rejects",
		Summary: "file:dir/summary",
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, wait := range []time.Duration{0, 2 * time.Millisecond} {
		b.Run(fmt.Sprint("append=", wait), func(b *testing.B) {
			for b.Loop() {
				q := &echoQueue{append: wait, logs: map[string]*echoLog{}}
				s, err := cpuagents.New(cpuagents.Options{Queue: q, Files: open, Logger: quiet})
				if err != nil {
					b.Fatal(err)
				}
				out, err := s.Handle(b.Context(), jobs.Job{
					Version: jobs.Version, ID: "j", Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: spec,
				}, func(any) {})
				if err != nil {
					b.Fatal(err)
				}
				if got := out.(*cpuagents.StreamResult); got.Decisions != n {
					b.Fatalf("%+v", got)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
