package cluster

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

var update = flag.Bool("update", false, "write the golden files")

// facts is a cluster with something of everything, some of it written by strangers.
func facts() *cluster.State {
	at := time.Date(2026, 11, 23, 8, 30, 0, 0, time.UTC)
	return &cluster.State{
		Frame: 7, At: at,
		NATS: telemetry.ServerReport{
			Server: "n1", Version: "2.15.2", Servers: []string{"a:1", "b:1", "c:1"}, Store: 3 << 20,
			Streams: []telemetry.ServerStream{{Name: "EXO_DEAD", Replicas: 3, Leaderless: true}, {
				Name: "EXO_JOBS_CPU", Replicas: 3, Leader: "n1", Behind: []string{"n3"},
			}},
		},
		Pools: []cluster.Pool{{
			QueueStats: jobs.QueueStats{Pool: "cpu", Paused: true, Jobs: 9, Sources: []jobs.SourceStats{
				{Kind: "a", Lane: "normal", Tenant: "t", Waiting: 1, Running: 3},
				{Kind: "b\x1b[31m", Lane: "low", Tenant: "u", Waiting: 5},
			}},
			Unserved: []string{"b\x1b[31m"},
		}, {QueueStats: jobs.QueueStats{Pool: "gpu"}}},
		Agents: []cluster.Agent{
			{Agent: jobs.Agent{Name: "c1", Pool: "cpu", State: "serving", Running: 3, Concurrency: 4}},
			{
				Agent: jobs.Agent{
					Name: "g1", Pool: "gpu", State: "serving", Running: 2, MaxShards: 8, Device: "NVIDIA H200",
					Recovering: []jobs.Recovery{{Shard: "s.0", Entry: 57, Of: 120, Rate: 10}},
				},
				Telemetry: &jobs.Telemetry{Samples: []jobs.Sample{
					{Name: "process_resident_memory_bytes", Value: 2 << 30},
					{Name: "process_cpu_seconds_total", Value: 12},
					{Name: "exoswarm_swarm_pages", Labels: map[string]string{"tier": "gpu"}, Value: 4},
					{Name: "exoswarm_swarm_pages", Labels: map[string]string{"tier": "cpu"}, Value: 2},
					{Name: "exoswarm_swarm_stored_pages", Value: 6},
					{Name: "exoswarm_device_busy_ratio", Value: 0.31},
					{Name: "exoswarm_swarm_lag_entries", Value: 63},
				}},
			},
			{Agent: jobs.Agent{
				Name: "g0", Pool: "gpu", State: "lost",
				Lost: &jobs.Lost{Since: at, Shards: []string{"s.1"}},
			}},
		},
		Swarms: []cluster.Swarm{{
			Name: "s", Cell: "gru", Agents: 2000, State: cluster.StateWaiting, Shards: []cluster.Shard{
				{
					Shard: 0, Holder: "g1", State: cluster.StateReplaying, Entries: 120, Answered: 120,
					EntriesPerSecond: 2.5,
				},
				{Shard: 1, State: cluster.StateWaiting, Entries: 40, Answered: 30},
			},
		}},
		Numbers: map[string]float64{
			cluster.JobsWaiting: 6, cluster.JobsRunning: 3, cluster.EntryRate: 12345, cluster.ObservationRate: 3.2e6,
			cluster.DeviceBusy: 0.31, cluster.DeadLetters: 2,
		},
	}
}

// TestGolden: each page of the terminal, a narrow one, an empty cluster and a lost one look as the
// golden files, and no text of strangers reaches the terminal as a control character.
func TestGolden(t *testing.T) {
	lost := facts()
	lost.Error, lost.Since = "no server answers", lost.At
	for name, draw := range map[string]func() []byte{
		"status": func() []byte { return text(t, facts()) },
		"empty": func() []byte {
			return append(text(t, &cluster.State{}), frame(&cluster.State{}, screenOptions{})...)
		},
		"lost":   func() []byte { return text(t, lost) },
		"agents": func() []byte { return frame(facts(), screenOptions{Sort: "memory"}) },
		"queues": func() []byte { return frame(facts(), screenOptions{View: queuesView, Sort: "waiting"}) },
		"swarms": func() []byte { return frame(facts(), screenOptions{View: swarmsView, Sort: "rate"}) },
		"narrow": func() []byte { return frame(facts(), screenOptions{Width: 40, Height: 8}) },
	} {
		got, file := draw(), "testdata/"+name+".golden"
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if strings.ContainsRune(string(got), '\x1b') {
			t.Errorf("%s has an escape character: %q", name, got)
		}
	}
	for _, l := range strings.Split(string(frame(facts(), screenOptions{Width: 40, Height: 8})), "\n") {
		if n := len([]rune(l)); n > 40 {
			t.Errorf("a line of %d characters on a terminal of 40: %s", n, l)
		}
	}
}

func text(t *testing.T, s *cluster.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeStatus(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
