package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

var (
	watchingFor = flag.Duration("watching.for", 0, "length of each part of TestWatchingCost, 5 s at least; 0 skips it")
	watchingN   = flag.Int("watching.pairs", 4, "pairs of parts, without and with viewers, in TestWatchingCost")
	watchingMax = flag.Float64(
		"watching.most",
		0,
		"percent of the rate that 10 viewers may cost in TestWatchingCost; 0: "+
			"the cost is printed alone",
	)
)

// viewers is the number of browsers that watch in TestWatchingCost.
const viewers = 10

// TestWatchingCost streams observations through real processes on the host device, with every
// message synced, and a dashboard. It alternates between parts in which nobody watches and parts in
// which 10 HTTP clients read its event stream, and prints the rates of both in observations a
// second. A pair of parts is next to each other in time, so that what else the machine does affects
// both.
func TestWatchingCost(t *testing.T) {
	testkit.OnlyLong(t)
	if *watchingFor < 5*time.Second || *watchingN < 1 {
		t.Skip("-watching.for says how long: make watching")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2**watchingN)**watchingFor+10*time.Minute)
	defer cancel()
	r := startRecovery(ctx, t, 1, 1)
	r.gpus[0].command = []string{
		filepath.Join(
			r.bin,
			"gpuagent",
		), "--nats", r.url, "--data-dir", r.data, "--device", "host", "--name", "watched",
	}
	r.gpus[0].start(t)
	r.cpus[0].start(t)
	const token = "a token for the viewers of a test"
	file := write(t, filepath.Join(t.TempDir(), "token"), token)
	_, base := startProcess(t, `the dashboard is ready.*url="?([^"\s]+)`, filepath.Join(r.bin, "exoswarm"),
		"ui", "--nats", r.url, "--listen", "127.0.0.1:0", "--login-token-file", file)

	const files, perFile = 32, 8000
	r.inputs(files, perFile)
	spec := specJSON(t, "name: watched\nagents_per_group: 64\n")
	work, stop := context.WithCancel(ctx)
	var streaming sync.WaitGroup
	defer streaming.Wait()
	defer stop()
	for slot := range 2 {
		streaming.Go(func() {
			for work.Err() == nil {
				out := fmt.Sprint("file:r/", slot)
				if _, err := streamed(work, r.conn, natsconn.NewID(), cpuagents.StreamSpec{
					Name: "watched", Spec: spec, Candidates: []string{"normal", "suspicious", "anomalous"},
					Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
					Manifest: "file:r/manifest.json", Output: out + ".ndjson", Rejects: out + ".rejects",
					Summary: out + ".summary",
				}, func(uint64) {}); err != nil && work.Err() == nil {
					t.Errorf("a stream failed: %v", err)
					return
				}
			}
		})
	}
	testkit.Until(t, "rows: the swarms are there, and files are in memory", func() bool {
		return applied(ctx, t, r.conn) >= files*perFile/4
	})

	// part returns the rate of a part with n viewers.
	part := func(n int) float64 {
		t.Helper()
		look, leave := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer leave()
		var bytes atomic.Int64
		for range n {
			all.Go(func() { bytes.Add(watchEvents(look, t, base, token)) })
		}
		letPass(ctx, time.Second) // the agents are asked each second from then on
		began, from := time.Now(), applied(ctx, t, r.conn)
		letPass(ctx, *watchingFor) // the rate is measured over this time
		rate := (applied(ctx, t, r.conn) - from) / time.Since(began).Seconds()
		leave()
		all.Wait()
		if n > 0 && bytes.Load() < int64(n)*1000 {
			t.Errorf("%d viewers have read %d bytes, want a stream each", n, bytes.Load())
		}
		return rate
	}
	var without, with, costs []float64
	for i := range *watchingN {
		var a, b float64
		if i%2 == 0 { // each goes first as often
			a, b = part(0), part(viewers)
		} else {
			b, a = part(viewers), part(0)
		}
		without, with, costs = append(without, a), append(with, b), append(costs, 100*(a-b)/a)
		t.Logf("pair %d: %.0f observations/s with 0 viewers, %.0f with %d: cost %.1f %%", i+1, a, b, viewers,
			costs[i])
	}
	stop()
	cost := median(costs)
	t.Logf("observations/s: %.0f with 0 viewers, %.0f with %d; cost %.1f %% (median of %d pairs, %.1f to %.1f %%)",
		median(without), median(with), viewers, cost, *watchingN, slices.Min(costs), slices.Max(costs))
	if *watchingMax > 0 && cost > *watchingMax {
		t.Errorf("%d viewers cost %.1f %% of the rate, want at most %.1f %%", viewers, cost, *watchingMax)
	}
}

// median returns the middle of values, of an even number the mean of both.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// applied returns how many observations the GPU agent has applied, by its own counter.
func applied(ctx context.Context, t *testing.T, c *natsq.Conn) (n float64) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; { // a loaded agent may answer late
		look, cancel := context.WithTimeout(ctx, 5*time.Second)
		got, err := c.Telemetry.Ask(look, []string{"exoswarm_swarm_observations_total"}, []string{"watched"})
		cancel()
		if err != nil {
			t.Fatalf("ask the agent: %v", err)
		}
		if of, ok := got["watched"]; ok {
			for _, s := range of.Samples {
				n += s.Value
			}
			return n
		}
		if time.Now().After(end) || ctx.Err() != nil {
			t.Fatal("the agent does not answer")
		}
	}
}

// watchEvents reads the event stream of a dashboard as a browser does, and returns the number of
// bytes.
func watchEvents(ctx context.Context, t *testing.T, base, token string) int64 {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/api/v1/events", nil)
	if err != nil {
		t.Errorf("the request of a viewer: %v", err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Errorf("a viewer: %v", err)
		return 0
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a viewer gets %s", res.Status)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil && ctx.Err() == nil {
		t.Errorf("a viewer was cut off: %v", err)
	}
	return n
}
