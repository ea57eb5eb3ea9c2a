package gpuprocess

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/bulk"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// bulkDirEnv names a folder on a disk for the logs and the spool of BenchmarkBulk.
const bulkDirEnv = "BULK_DIR"

// Sizes of BenchmarkBulk: 132 bytes an observation, and 8.6 MB a part.
const (
	bulkFeatures = 32
	bulkAgents   = 1_000_000
	bulkParts    = 4 // of each shard in an operation
)

// BenchmarkBulk observes agents of a gru with 32 features, through synced logs and beside them, until
// all are answered. Writer, NATS server, server of the spool and agent are in this process, all
// connections are TCP, and payloads are synced. MB/s are of observations in memory: 4 bytes for the
// id and for each feature.
func BenchmarkBulk(b *testing.B) {
	for _, shards := range []int{1, 4, 8} {
		for _, beside := range []bool{false, true} {
			way := "log"
			if beside {
				way = "bulk"
			}
			b.Run(fmt.Sprintf("shards=%d/%s", shards, way), func(b *testing.B) { benchmarkBulk(b, shards, beside) })
		}
	}
}

func benchmarkBulk(b *testing.B, shards int, beside bool) {
	dir := b.TempDir()
	if d := os.Getenv(bulkDirEnv); d != "" {
		var err error
		if dir, err = os.MkdirTemp(d, "bulk"); err != nil { //nolint:usetesting // on the disk of the variable
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	if err := os.Mkdir(dir+"/nats", 0o700); err != nil {
		b.Fatal(err)
	}
	srv, err := server.Start(b.Context(), server.Options{Dir: dir + "/nats"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(srv.Close)
	connect := func(name string) *natsq.Conn {
		c, err := natsq.Connect(b.Context(), natsconn.Options{URL: srv.URL(), Name: name})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		return c
	}
	spool := benchmarkSpool(b, dir+"/spool")
	benchmarkAgent(b, connect("agent"))
	client, err := swarmclient.New(swarmclient.Options{Swarms: connect("writer").Swarms, Timeout: 5 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for i := range bulkFeatures {
		names = append(names, fmt.Sprint("f", i))
	}
	spec, err := swarm.Parse("bench.yaml", fmt.Appendf(nil, "name: x\naddressed: agent\nagents: %d\n"+
		"agents_per_group: 50\nshards: %d\nfeatures: [%s]\ncell: {kind: gru, params: {hidden: 32}}\n"+
		"vote: {candidates: [a, b], rule: majority}\ncheckpoint: {interval: 1h, entries: 1000000}\n",
		bulkAgents, shards, strings.Join(names, ", ")))
	if err != nil {
		b.Fatal(err)
	}
	s, err := client.Create(b.Context(), spec, nil)
	if err != nil {
		b.Fatal(err)
	}
	o := benchmarkRows(bulkParts * shards * swarms.MaxAddressed)
	send := func() {
		n, count := 0, func(d *batch.AgentDecisions) error { return nil }
		if beside {
			n, err = s.ObserveBulk(b.Context(), spool, o, count)
		} else {
			n, err = s.Observe(b.Context(), o, count)
		}
		if err != nil {
			b.Fatalf("after %d entries: %v", n, err)
		}
	}
	send() // pages and memory are there from now on
	bytes := 4 * (1 + bulkFeatures) * len(o.Agent)
	began, before := time.Now(), processorTime(b)
	for b.Loop() {
		send()
	}
	took := time.Since(began)
	b.ReportMetric(float64(bytes)*float64(b.N)/took.Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(len(o.Agent))*float64(b.N)/took.Seconds()/1e6, "Mrows/s")
	b.ReportMetric((processorTime(b)-before).Seconds()/took.Seconds(), "cores")
}

// benchmarkRows returns observations of random agents.
func benchmarkRows(n int) *batch.AgentObservations {
	r := rand.New(rand.NewPCG(1, 2))
	o := &batch.AgentObservations{
		Agent: make([]uint32, n), Features: make([]float32, n*bulkFeatures), Width: bulkFeatures,
	}
	for i := range o.Agent {
		o.Agent[i] = r.Uint32N(bulkAgents)
	}
	for i := range o.Features {
		o.Features[i] = r.Float32()
	}
	return o
}

// benchmarkSpool returns a spool that is served until the benchmark ends.
func benchmarkSpool(b *testing.B, dir string) *bulk.Spool {
	b.Helper()
	spool, err := bulk.OpenSpool(bulk.SpoolOptions{Dir: dir, LeastFree: 1})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv, err := bulk.Serve(bulk.ServerOptions{Spool: spool, Listener: l, Place: bulk.Place{Address: l.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	return spool
}

// benchmarkAgent serves swarms on the device of the variable until the benchmark ends.
func benchmarkAgent(b *testing.B, conn *natsq.Conn) {
	b.Helper()
	dev, err := cuda.Open(b.Context(), *benchDevice, cuda.Options{})
	if err != nil {
		b.Fatal(err)
	}
	fetcher := bulk.NewFetcher(bulk.FetcherOptions{})
	a, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler), Payloads: fetcher,
		LeaseTTL: time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		a.Stop()
		fetcher.Close()
		if err := dev.Close(); err != nil {
			b.Error(err)
		}
	})
}

// BenchmarkLane fetches payloads of 16 MiB over loopback, with checksums, into pinned memory of the
// device. cores is the processor time of both sides in a second; payloads are in the page cache.
func BenchmarkLane(b *testing.B) {
	for _, c := range []struct{ payloads, streams int }{{1, 4}, {2, 4}, {4, 1}, {4, 2}, {4, 4}, {8, 1}, {8, 2}} {
		b.Run(fmt.Sprintf("payloads=%d/streams=%d", c.payloads, c.streams), func(b *testing.B) {
			benchmarkLane(b, c.payloads, c.streams)
		})
	}
}

func benchmarkLane(b *testing.B, payloads, streams int) {
	dev, err := cuda.Open(b.Context(), *benchDevice, cuda.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := dev.Close(); err != nil {
			b.Error(err)
		}
	})
	spool := benchmarkSpool(b, b.TempDir())
	f := bulk.NewFetcher(bulk.FetcherOptions{Streams: streams})
	b.Cleanup(f.Close)
	data := make([]byte, swarms.MaxBulk)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // which never fails
	all, into := make([]swarms.Bulk, payloads), make([]device.HostBuffer, payloads)
	for i := range all {
		if all[i], err = spool.Put(b.Context(), "x", 0, data); err != nil {
			b.Fatal(err)
		}
		if into[i], err = dev.AllocHost(swarms.MaxBulk, "payloads"); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = into[i].Close() })
	}
	fetch := func() {
		var ended sync.WaitGroup
		for i := range all {
			ended.Go(func() {
				if err := f.Fetch(b.Context(), all[i], into[i].Bytes()); err != nil {
					b.Error(err)
				}
			})
		}
		ended.Wait()
	}
	fetch() // connections and pages are there from now on
	b.SetBytes(int64(payloads) * swarms.MaxBulk)
	began, before := time.Now(), processorTime(b)
	for b.Loop() {
		fetch()
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/time.Since(began).Seconds(), "cores")
}
