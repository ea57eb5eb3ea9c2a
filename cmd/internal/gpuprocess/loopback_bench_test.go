package gpuprocess

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// loopback is a server with a port, and a connection over TCP for each writer.
type loopback struct {
	*rig
	of      swarms.Swarm
	writers []*natsq.Conn
	entries [][][]byte // by shard: the data of entries, which are appended in turn
}

var (
	loopbackEntries = flag.Int("loopback.entries", 256, "entries of all shards in a run of BenchmarkLoopback")
	loopbackShards  = flag.String("loopback.shards", "1,4", "numbers of shards")
	loopbackConns   = flag.Int("loopback.conns", 3, "further connections of the agent")
	loopbackRows    = flag.Int("loopback.rows", 32_768, "observations of an entry: of 32,768, 256 KiB in Arrow")
)

const (
	loopbackAgents = 1_000_000
	loopbackKinds  = 8 // different entries of each shard
)

// openLoopback makes a swarm of some shards and the data of its entries.
func openLoopback(b *testing.B, shards int, fast, packed bool) *loopback {
	b.Helper()
	srv, err := server.Start(b.Context(), server.Options{Dir: b.TempDir(), Fast: fast})
	if err != nil {
		b.Fatalf("server.Start: %v", err)
	}
	b.Cleanup(srv.Close)
	connect := func(name string, siblings int) *natsq.Conn {
		c, err := natsq.Connect(b.Context(), natsconn.Options{URL: srv.URL(), Name: name, Siblings: siblings})
		if err != nil {
			b.Fatalf("natsq.Connect: %v", err)
		}
		b.Cleanup(c.Close)
		return c
	}
	l := &loopback{rig: &rig{server: srv, conn: connect("agent", *loopbackConns)}}
	spec, err := swarm.Parse("bench.yaml", fmt.Appendf(nil, "name: x\naddressed: agent\nagents: %d\n"+
		"agents_per_group: 50\nshards: %d\ncell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000000}\n",
		loopbackAgents, shards))
	if err != nil {
		b.Fatal(err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	l.of = swarms.Swarm{
		Version: jobs.Version, ID: "x", Name: "x", Spec: data, Groups: spec.Groups(), Shards: shards,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for k := range shards {
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := l.conn.Swarms.Log("x", k, d).Create(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		first, end := l.of.ShardGroups(k)
		l.writers = append(l.writers, connect(fmt.Sprint("writer ", k), 0))
		var all [][]byte
		for range loopbackKinds {
			o := &batch.AgentObservations{Width: 1}
			for range *loopbackRows {
				o.Agent = append(o.Agent, uint32(50*first)+r.Uint32N(uint32(50*(end-first))))
				o.Features = append(o.Features, float32(math.Round(r.NormFloat64()*1000)/1000))
			}
			encode := o.Encode
			if packed {
				encode = o.Pack
			}
			data, err := encode()
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, data)
		}
		l.entries = append(l.entries, all)
	}
	return l
}

// append appends entries to the log of each shard, all shards at a time: those after number from up
// to number n.
func (l *loopback) append(b *testing.B, from, n int) {
	b.Helper()
	l.each(b, func(ctx context.Context, k int) error {
		log := l.writers[k].Swarms.Log("x", k, swarms.In)
		const together = 8
		for i := from; i < n; i += together {
			var entries []swarms.Entry
			for j := i; j < min(n, i+together); j++ {
				entries = append(entries, swarms.Entry{
					Kind: swarms.EntryObserve, Ref: uint64(j + 1), Data: l.entries[k][j%loopbackKinds],
				})
			}
			if err := log.Append(ctx, uint64(i), entries...); err != nil {
				return err
			}
		}
		return nil
	})
}

// read reads n entries of each shard, over its own connection, and decodes them if that is asked.
func (l *loopback) read(b *testing.B, n int, decode bool) {
	b.Helper()
	l.each(b, func(ctx context.Context, k int) error {
		r, err := l.writers[k].Swarms.Log("x", k, swarms.In).Read(ctx, 1)
		if err != nil {
			return err
		}
		defer r.Close()
		for range n {
			e, err := r.Next(ctx)
			if err == nil && decode {
				_, err = batch.DecodeAgentObservations(e.Data)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// answers waits until all shards have answered n entries.
func (l *loopback) answers(b *testing.B, n int) {
	b.Helper()
	l.each(b, func(ctx context.Context, k int) error {
		for {
			last, err := l.writers[k].Swarms.Log("x", k, swarms.Out).Last(ctx)
			switch {
			case err != nil:
				return err
			case last.Kind == swarms.EntryRejected:
				return fmt.Errorf("shard %d: %s", k, last.Data)
			case last.Ref >= uint64(n):
				return nil
			}
			<-time.After(50 * time.Millisecond) // a look reads an answer, and an answer is as large as its entry
		}
	})
}

// each calls f for all shards at a time.
func (l *loopback) each(b *testing.B, f func(ctx context.Context, k int) error) {
	b.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(l.entries))
	for k := range l.entries {
		all.Go(func() { errs[k] = f(b.Context(), k) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime returns the time that all cores have worked for this process: other work on the
// machine changes it less than the time of the clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLoopback measures where observations on their way into agents stop: the server alone,
// which stores entries and hands them out again; entries that are also decoded; and agents that
// apply entries while they are appended, up to their answers in the logs. Rates are of rows, and of
// the bytes of entries on the wire in one direction; cpu-ns/row is the processor time of all parts
// together. The agents and the server are in this process, and all connections are TCP.
func BenchmarkLoopback(b *testing.B) {
	entries := *loopbackEntries
	for _, fast := range []bool{false, true} {
		for text := range strings.SplitSeq(*loopbackShards, ",") {
			shards, err := strconv.Atoi(text)
			if err != nil {
				b.Fatalf("-loopback.shards: %v", err)
			}
			for _, packed := range []bool{false, true} {
				n := entries / shards
				form, synced := "arrow", "synced"
				if packed {
					form = "packed"
				}
				if fast {
					synced = "fast"
				}
				name := func(stage string) string {
					return fmt.Sprintf("%s/shards=%d/%s/%s", synced, shards, form, stage)
				}
				report := func(b *testing.B, l *loopback, took, worked time.Duration) {
					rows := float64(n*shards**loopbackRows) * float64(b.N)
					bytes := 0
					for _, of := range l.entries {
						for i := range n {
							bytes += len(of[i%loopbackKinds])
						}
					}
					b.ReportMetric(rows/took.Seconds()/1e6, "Mrows/s")
					b.ReportMetric(float64(bytes)*float64(b.N)/took.Seconds()/1e6, "wireMB/s")
					b.ReportMetric(float64(worked.Nanoseconds())/rows, "cpu-ns/row")
					b.ReportMetric(0, "ns/op")
				}
				stage := func(what string, prepare, run func(b *testing.B, l *loopback)) {
					b.Run(name(what), func(b *testing.B) {
						var took, worked time.Duration
						var l *loopback
						for range b.N {
							l = openLoopback(b, shards, fast, packed)
							prepare(b, l)
							began, before := time.Now(), processorTime(b)
							run(b, l)
							took, worked = took+time.Since(began), worked+processorTime(b)-before
						}
						report(b, l, took, worked)
					})
				}
				none := func(*testing.B, *loopback) {}
				full := func(b *testing.B, l *loopback) { b.Helper(); l.append(b, 0, n) }
				stage("append", none, full)
				stage("read", full, func(b *testing.B, l *loopback) { b.Helper(); l.read(b, n, false) })
				stage("decode", full, func(b *testing.B, l *loopback) { b.Helper(); l.read(b, n, true) })
				stage("agents", func(b *testing.B, l *loopback) { // which serve all shards when the clock starts
					b.Helper()
					l.record(b, l.of)
					l.agent(b, "")
					l.append(b, 0, loopbackKinds)
					l.answers(b, loopbackKinds)
				}, func(b *testing.B, l *loopback) {
					b.Helper()
					l.append(b, loopbackKinds, n+loopbackKinds)
					l.answers(b, n+loopbackKinds)
				})
			}
		}
	}
}
