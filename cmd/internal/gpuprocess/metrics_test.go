package gpuprocess

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// values sums what a registry has by name: counters, gauges, and the counts of histograms.
func values(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatalf("r.Gather: %v", err)
	}
	sums := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sums
}

// TestMetrics: what an agent did and how its device is can be read from its metrics.
func TestMetrics(t *testing.T) {
	const entries = 6
	r := newRig(t)
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open host: %v", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(newDeviceMetrics(func() device.Device { return dev }))
	counts, err := gpuagents.NewMetrics(reg)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	a, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: r.conn.Swarms, LeaseTTL: time.Minute,
		Logger:      slog.New(slog.NewTextHandler(r, nil)),
		Checkpoints: checkpointsIn(t.TempDir()), Metrics: counts, Snapshots: place(t, t.TempDir()),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(func() {
		a.Stop()
		if err := dev.Close(); err != nil {
			t.Errorf("dev.Close: %v", err)
		}
	})
	r.announce(t, "counted", text(1, 2), observations(entries, 7))
	if err := r.conn.Swarms.Log("counted", 0, swarms.In).Append(t.Context(), entries,
		swarms.Entry{Kind: swarms.EntryObserve, Ref: entries + 1, Data: []byte("no batch")}); err != nil {
		t.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
	r.answered(t, "counted", entries+1)
	serving := values(t, reg)
	for name, want := range map[string]float64{
		"exoswarm_swarm_shards": 1, "exoswarm_swarm_observations_total": entries * batchRows,
		"exoswarm_swarm_apply_seconds":          entries,
		"exoswarm_swarm_rejected_entries_total": 1, "exoswarm_swarm_pages": 2, "exoswarm_device_state": 1,
	} {
		if serving[name] != want {
			t.Errorf("%s is %v, want %v", name, serving[name], want)
		}
	}
	for _, name := range []string{
		"exoswarm_swarm_agents", "exoswarm_swarm_groups", "exoswarm_swarm_page_frames", "exoswarm_device_info",
		"exoswarm_swarm_stage_seconds_total", "exoswarm_device_memory_size_bytes", "exoswarm_gpuagent_assignments",
	} {
		if serving[name] <= 0 {
			t.Errorf("%s is %v of a shard that is served", name, serving[name])
		}
	}
	decisions := serving["exoswarm_swarm_decisions_total"] + serving["exoswarm_swarm_undecided_total"]
	if decisions != entries*batchRows || serving["exoswarm_swarm_votes_total"] <= 0 ||
		serving["exoswarm_swarm_lag_seconds"] != 0 {
		t.Errorf("%v decisions, want %d; %v votes; the oldest entry waits for %v s", decisions, entries*batchRows,
			serving["exoswarm_swarm_votes_total"], serving["exoswarm_swarm_lag_seconds"])
	}
	if n := serving["exoswarm_snapshot_bytes_total"]; n != 0 || serving["exoswarm_snapshot_timestamp_seconds"] != 0 {
		t.Errorf("%v bytes of snapshots before the first", n)
	}
	r.entry(t, "counted", entries+1, swarms.EntrySnapshot, swarms.Snapshot{Version: jobs.Version, Name: "counted"})
	kept, err := swarms.DecodeSnapshotted(r.reply(t, "counted", entries+2).Data)
	if err != nil {
		t.Fatalf("swarms.DecodeSnapshotted: %v", err)
	}
	serving = values(t, reg)
	if n := serving["exoswarm_snapshot_bytes_total"]; n != float64(kept.Bytes) || n <= 0 {
		t.Errorf("%v bytes of snapshots, want %d", n, kept.Bytes)
	}
	if at := serving["exoswarm_snapshot_timestamp_seconds"]; at < float64(time.Now().Add(-time.Minute).Unix()) {
		t.Errorf("the last snapshot is of %v", at)
	}
	perObservation := serving["exoswarm_swarm_agents"] / serving["exoswarm_swarm_groups"]
	if n := serving["exoswarm_swarm_steps_total"]; n != entries*batchRows*perObservation {
		t.Errorf("%v steps of agents, want %v for each of %d observations", n, perObservation, entries*batchRows)
	}
	if serving["exoswarm_device_memory_in_use_bytes"] <= 0 || a.Shards() != 1 {
		t.Errorf("%v bytes in use, %d shards", serving["exoswarm_device_memory_in_use_bytes"], a.Shards())
	}
	a.Stop() // with a last checkpoint
	ended := values(t, reg)
	if n := ended["exoswarm_swarm_checkpoints_total"]; n < 1 || ended["exoswarm_swarm_checkpoint_seconds"] != n {
		t.Errorf("%v checkpoints, %v timed", n, ended["exoswarm_swarm_checkpoint_seconds"])
	}
	if at := ended["exoswarm_swarm_checkpoint_timestamp_seconds"]; at < float64(time.Now().Add(-time.Minute).Unix()) {
		t.Errorf("the last checkpoint is of %v", at)
	}
	if took := ended["exoswarm_swarm_stage_seconds_total"]; took < serving["exoswarm_swarm_stage_seconds_total"] {
		t.Errorf("the stages of an agent that has ended took %v s, and %v s before", took,
			serving["exoswarm_swarm_stage_seconds_total"])
	}
	if writes := ended["exoswarm_swarm_store_write_seconds"]; writes < 1 {
		t.Errorf("%v writes of checkpoints are timed", writes)
	}
	if ended["exoswarm_swarm_agents"] != 0 || ended["exoswarm_swarm_groups"] != 0 ||
		ended["exoswarm_swarm_shards"] != 0 || ended["exoswarm_device_memory_in_use_bytes"] != 0 || a.Shards() != 0 {
		t.Errorf("after the end: %v", ended)
	}
	if _, err := gpuagents.NewMetrics(reg); err == nil {
		t.Error("registered twice")
	}
}
