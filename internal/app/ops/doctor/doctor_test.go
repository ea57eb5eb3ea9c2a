package doctor_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

func healthy() *doctor.Facts {
	at := time.Now().UTC()
	sample := func(name string, v float64, labels ...string) jobs.Sample {
		s := jobs.Sample{Name: name, Value: v, Labels: map[string]string{}}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	return &doctor.Facts{
		At: at, Drift: &[]string{}, URL: "tls://nats.example:4222", Version: "1",
		Local: &doctor.Local{OpenFiles: 1 << 20, LockedMemory: ^uint64(0), FreeDisk: 1 << 40},
		State: &cluster.State{
			Frame: 1, At: at,
			NATS: telemetry.ServerReport{
				Server: "n1", Version: "2.15.2", Cluster: "c", RTT: time.Millisecond, Store: 10, StoreLimit: 1000,
				Streams: []telemetry.ServerStream{{
					Name: "EXO_JOBS_CPU", Replicas: 3, Leader: "n1", MaxBytes: -1, MaxMsgs: 1000,
					Messages: 3,
				}},
			},
			Pools: []cluster.Pool{{QueueStats: jobs.QueueStats{
				Pool:    jobs.PoolCPU,
				Sources: []jobs.SourceStats{{Kind: "a"}},
			}}},
			Agents: []cluster.Agent{
				{Agent: jobs.Agent{Name: "c", Pool: jobs.PoolCPU, State: "serving"}},
				{
					// Agents are asked less often than the State is made.
					Agent: jobs.Agent{Name: "g", Pool: jobs.PoolGPU, State: "serving"}, Heard: at.Add(-time.Minute),
					Telemetry: &jobs.Telemetry{
						At: at.Add(-time.Minute), Samples: []jobs.Sample{
							sample("exoswarm_build_info", 1, "version", "1"),
							sample("exoswarm_device_state", 1, "state", "ok", "device", "cuda:0"),
							sample("exoswarm_device_memory_errors_total", 0, "kind", "uncorrected", "device", "cuda:0"),
							sample("exoswarm_swarm_tier_fill_ratio", 0.2, "tier", "nvme"),
							sample("exoswarm_swarm_tier_failures_total", 0, "tier", "nvme"),
						},
					},
				},
			},
			Swarms: []cluster.Swarm{{
				Name: "s", State: cluster.StateServed,
				Shards: []cluster.Shard{{Holder: "g", State: cluster.StateServed}},
			}},
			Numbers: map[string]float64{},
		},
	}
}

// TestChecks: a healthy cluster has no finding, and each planted fault has the one that it should,
// with a cure.
func TestChecks(t *testing.T) {
	for _, r := range doctor.Examine(healthy()) {
		if r.Level != doctor.OK || r.Cure != "" {
			t.Errorf("a healthy cluster: %+v, want ok", r)
		}
	}
	tested := map[string]bool{}
	for _, c := range []struct {
		id, says string
		level    doctor.Level
		plant    func(f *doctor.Facts)
	}{
		{"nats-reachable", "refused", doctor.Failed, func(f *doctor.Facts) {
			f.State, f.Drift, f.Error = nil, nil, "connection refused"
		}},
		{
			"nats-reachable", "streams cannot be read", doctor.Failed,
			func(f *doctor.Facts) { f.State, f.Error = nil, "stream not found" },
		},
		{"nats-version", "2.9.1", doctor.Failed, func(f *doctor.Facts) { f.State.NATS.Version = "2.9.1" }},
		{"nats-rtt", "80ms", doctor.Warn, func(f *doctor.Facts) { f.State.NATS.RTT = 80 * time.Millisecond }},
		{"nats-store", "nearly full", doctor.Failed, func(f *doctor.Facts) { f.State.NATS.Refuses = true }},
		{"nats-reachable", "no leader", doctor.Failed, func(f *doctor.Facts) {
			f.State, f.Error = nil, "ask: "+telemetry.ErrNoLeader.Error()
		}},
		{"nats-store", "97 %", doctor.Failed, func(f *doctor.Facts) { f.State.NATS.Store = 970 }},
		{"nats-store", "85 %", doctor.Warn, func(f *doctor.Facts) { f.State.NATS.Store = 850 }},
		{
			"nats-leaders", "EXO_JOBS_CPU", doctor.Failed,
			func(f *doctor.Facts) { f.State.NATS.Streams[0].Leaderless = true },
		},
		{
			"nats-leaders", "EXO_LOG_s", doctor.Failed,
			func(f *doctor.Facts) { f.State.Swarms[0].Shards[0].Leaderless = "EXO_LOG_s" },
		},
		{"nats-replicas", "n3", doctor.Warn, func(f *doctor.Facts) { f.State.NATS.Streams[0].Behind = []string{"n3"} }},
		{"nats-replicas", "one replica", doctor.Warn, func(f *doctor.Facts) { f.State.NATS.Streams[0].Replicas = 1 }},
		{"nats-replicas", "only copy", doctor.Info, func(f *doctor.Facts) { f.State.NATS.Cluster = "" }},
		{
			"nats-streams", "is missing", doctor.Warn,
			func(f *doctor.Facts) { f.Drift = &[]string{"EXO_DEAD is missing"} },
		},
		{"nats-limits", "990 of 1000", doctor.Failed, func(f *doctor.Facts) { f.State.NATS.Streams[0].Messages = 990 }},
		{
			"agents-present", "no GPU agent", doctor.Failed,
			func(f *doctor.Facts) { f.State.Agents = f.State.Agents[:1] },
		},
		{"agents-lost", "held 2 shards", doctor.Failed, func(f *doctor.Facts) {
			f.State.Agents[1].Lost = &jobs.Lost{Since: f.At, Shards: []string{"s.0", "s.1"}}
		}},
		{"agents-state", "emergency", doctor.Failed, func(f *doctor.Facts) { f.State.Agents[1].State = "emergency" }},
		{"agents-state", "draining", doctor.Info, func(f *doctor.Facts) { f.State.Agents[0].State = "draining" }},
		{"agents-versions", "2: d", doctor.Warn, func(f *doctor.Facts) {
			f.State.Agents = append(f.State.Agents, cluster.Agent{Agent: jobs.Agent{
				Name: "d", Pool: jobs.PoolCPU,
				State: "serving",
			}, Telemetry: &jobs.Telemetry{
				At:      f.At,
				Samples: []jobs.Sample{{Name: "exoswarm_build_info", Labels: map[string]string{"version": "2"}}},
			}})
		}},
		{
			"agents-names", "2 processes answer", doctor.Failed,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Twins = 1 },
		},
		{
			"agents-clocks", "-1m0s", doctor.Warn,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.At = f.At.Add(-2 * time.Minute) },
		},
		{
			"device-state", "failed", doctor.Failed,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Samples[1].Labels["state"] = "failed" },
		},
		{
			"device-state", "degraded", doctor.Warn,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Samples[1].Labels["state"] = "degraded" },
		},
		{
			"device-fallback", "no driver", doctor.Warn,
			func(f *doctor.Facts) { f.State.Agents[1].Fallback = "no driver" },
		},
		{
			"device-memory", "cuda:0: 3", doctor.Failed,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Samples[2].Value = 3 },
		},
		{"queue-paused", "pool cpu", doctor.Warn, func(f *doctor.Facts) { f.State.Pools[0].Paused = true }},
		{"queue-paused", "kind a", doctor.Warn, func(f *doctor.Facts) { f.State.Pools[0].Sources[0].Paused = true }},
		{
			"queue-unserved", "kind b of pool cpu", doctor.Failed,
			func(f *doctor.Facts) { f.State.Pools[0].Unserved = []string{"b"} },
		},
		{
			"queue-oldest", "2h", doctor.Info,
			func(f *doctor.Facts) { f.State.Pools[0].Oldest = f.At.Add(-2 * time.Hour) },
		},
		{"queue-dead", "4 jobs", doctor.Warn, func(f *doctor.Facts) { f.State.Numbers[cluster.DeadLetters] = 4 }},
		{
			"swarm-served", "no GPU agent holds", doctor.Failed,
			func(f *doctor.Facts) { f.State.Swarms[0].Shards[0].State = cluster.StateWaiting },
		},
		{"swarm-served", "57 of 120", doctor.Warn, func(f *doctor.Facts) {
			f.State.Swarms[0].Shards[0].State = cluster.StateReplaying
			f.State.Swarms[0].Shards[0].Recovering = &jobs.Recovery{Entry: 57, Of: 120}
		}},
		{"swarm-records", "newer", doctor.Failed, func(f *doctor.Facts) { f.State.Swarms[0].Error = "newer" }},
		{
			"swarm-tiers", "96 %", doctor.Failed,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Samples[3].Value = 0.96 },
		},
		{
			"swarm-disks", "nvme: 2", doctor.Warn,
			func(f *doctor.Facts) { f.State.Agents[1].Telemetry.Samples[4].Value = 2 },
		},
		{"detectors-work", "plant: no agent", doctor.Failed, func(f *doctor.Facts) {
			f.State.Watches = []cluster.Watch{{Name: "plant", State: cluster.WatchWaits, Why: "no agent"}}
		}},
		{"security-transport", "not encrypted", doctor.Warn, func(f *doctor.Facts) { f.URL = "nats://10.0.0.1:4222" }},
		{"machine-files", "1024", doctor.Warn, func(f *doctor.Facts) { f.Local.OpenFiles = 1024 }},
		{"machine-memlock", "65536", doctor.Info, func(f *doctor.Facts) { f.Local.LockedMemory = 65536 }},
		{"machine-disk", "100 MiB", doctor.Warn, func(f *doctor.Facts) { f.Local.FreeDisk = 100 << 20 }},
	} {
		f := healthy()
		c.plant(f)
		tested[c.id] = true
		all := doctor.Examine(f, c.id)
		if len(all) != 1 {
			t.Errorf("%s: %d results, want one", c.id, len(all))
			continue
		}
		r := all[0]
		if text := r.Summary + strings.Join(r.Details, "; "); r.Level != c.level || !strings.Contains(text, c.says) {
			t.Errorf("%s: %+v, want %s with %q", c.id, r, c.level, c.says)
		}
		if r.Cure == "" && r.Level != doctor.Info {
			t.Errorf("%s: %+v has no cure", c.id, r)
		}
	}
	for _, c := range doctor.Checks() {
		if !tested[c[0]] {
			t.Errorf("check %s is not tested", c[0])
		}
		if !slices.Contains(doctor.Categories(), c[1]) {
			t.Errorf("check %s has the unknown category %s", c[0], c[1])
		}
	}
}

// TestNothing: without any fact every check is skipped, and none fails.
func TestNothing(t *testing.T) {
	for _, r := range doctor.Examine(&doctor.Facts{}) {
		if r.Level != doctor.Skip {
			t.Errorf("without facts: %+v, want skip", r)
		}
	}
}

// TestFormats: the worst result comes first, is in each format, and decides the status of Nagios.
func TestFormats(t *testing.T) {
	f := healthy()
	f.State.Swarms[0].Shards[0].State = cluster.StateWaiting
	f.State.NATS.RTT = time.Second
	all := doctor.Examine(f)
	if all[0].ID != "swarm-served" || doctor.Worst(all) != doctor.Failed {
		t.Errorf("the first of the results is %s, the worst %s", all[0].ID, doctor.Worst(all))
	}
	var text, js, prom, nagios bytes.Buffer
	if err := doctor.WriteText(&text, all, false); err != nil ||
		!strings.Contains(text.String(), "what to do: exoswarm swarm explain") ||
		strings.Contains(text.String(), "machine-files") {
		t.Errorf("%v, %s", err, text.String())
	}
	var back []doctor.Result
	if err := doctor.WriteJSON(&js, all); err != nil || json.Unmarshal(js.Bytes(), &back) != nil ||
		len(back) != len(all) {
		t.Errorf("%v, %s", err, js.String())
	}
	if err := doctor.WritePrometheus(&prom, all); err != nil ||
		!strings.Contains(prom.String(), `exoswarm_doctor_check{check="swarm-served",category="swarms"} 3`) {
		t.Errorf("%v, %s", err, prom.String())
	}
	status, err := doctor.WriteNagios(&nagios, all)
	if err != nil || status != 2 || !strings.HasPrefix(nagios.String(), "EXOSWARM CRITICAL - ") ||
		!strings.Contains(nagios.String(), "'nats-rtt'=1000ms") {
		t.Errorf("status %d, %v, %s", status, err, nagios.String())
	}
}

// TestFacts: what the checks see survives JSON, so they give the same results offline.
func TestFacts(t *testing.T) {
	_, c := jobstest.InProcess(t, natsq.Connect)
	f := doctor.Collect(t.Context(), c)
	f.Local = doctor.ReadLocal(t.TempDir())
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var back doctor.Facts
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	live, offline := doctor.Examine(f), doctor.Examine(&back)
	one, _ := json.Marshal(live)
	two, _ := json.Marshal(offline)
	if !bytes.Equal(one, two) {
		t.Errorf("live\n%s\noffline\n%s", one, two)
	}
	if i := slices.IndexFunc(live,
		func(r doctor.Result) bool { return r.ID == "agents-present" }); live[i].Level != doctor.Failed {
		t.Errorf("a cluster without agents: %+v", live[i])
	}
}

// TestFaults: faults are in the order of causes, keep the time of their begin, and are one while
// the servers do not answer.
func TestFaults(t *testing.T) {
	k, f := &doctor.Faults{}, healthy()
	if all := k.Of(f); len(all) != 0 {
		t.Errorf("a healthy cluster has the faults %+v", all)
	}
	began := f.At
	f.State.Watches = []cluster.Watch{{Name: "plant", State: cluster.WatchWaits, Why: "no agent"}}
	k.Of(f)
	f.At = f.At.Add(time.Minute)
	f.State.Agents[1].State = "emergency"
	f.State.NATS.Streams[0].Behind = []string{"n3"}
	all := k.Of(f)
	var ids []string
	for _, one := range all {
		ids = append(ids, one.ID)
	}
	if got := strings.Join(ids, " "); got != "nats-replicas agents-state detectors-work" {
		t.Errorf("the faults are %s", got)
	} else if !all[2].Since.Equal(began) || !all[0].Since.Equal(f.At) {
		t.Errorf("the faults are since %v and %v, want %v and %v", all[0].Since, all[2].Since, f.At, began)
	}
	f.Error, f.State.Error, f.State.Since = "refused", "refused", began
	if all = k.Of(f); len(all) != 1 || all[0].ID != "nats-reachable" || !all[0].Since.Equal(began) {
		t.Errorf("without a server the faults are %+v", all)
	}
	f = healthy()
	if all = k.Of(f); len(all) != 0 {
		t.Errorf("after all is repaired the faults are %+v", all)
	}
}
