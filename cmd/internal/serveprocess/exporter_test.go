package serveprocess

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// series returns the values of a registry by name and labels, as NAME{A,B}: the values of the
// labels in the order of their names.
func series(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.TrimPrefix(f.GetName(), "exoswarm_")+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().
				GetValue()
		}
	}
	return found
}

// TestExporter: the metrics follow a cluster from an empty one to jobs, pauses, agents and a swarm.
// When the server is gone they say so, and the numbers of before are absent.
func TestExporter(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	w := cluster.Start(cluster.Options{Conn: jobstest.Open(t, s, natsq.Connect), Every: 50 * time.Millisecond})
	defer w.Close()
	r := prometheus.NewRegistry()
	r.MustRegister(newExporter(w))
	becomes := func(what string, want map[string]float64) {
		t.Helper()
		testkit.Until(t, what, func() bool {
			got := series(t, r)
			for name, v := range want {
				if have, ok := got[name]; !ok || have != v {
					return false
				}
			}
			return true
		})
	}
	becomes("an empty cluster", map[string]float64{
		"cluster_up{}": 1, "scale_demand{cpu}": 0, "scale_demand{gpu}": 0, "shards{waiting}": 0,
		"cluster_agents{cpu,serving}": 0, "queue_oldest_seconds{cpu}": 0, "dead_letters{}": 0,
		"queue_paused{*,cpu}": 0, "jetstream_messages{EXO_JOBS_CPU}": 0, "ui_viewers{}": 0,
	})
	for i := range 3 {
		if err := c.Queue.Submit(t.Context(), jobstest.Job(fmt.Sprint("j", i), "nosuch")); err != nil {
			t.Fatal(err)
		}
	}
	becomes("jobs that nobody handles", map[string]float64{
		"queue_jobs{nosuch,normal,cpu,waiting}": 3, "queue_jobs{nosuch,normal,cpu,running}": 0,
		"queue_unserved_jobs{nosuch,cpu}": 3, "scale_demand{cpu}": 3, "queue_paused{nosuch,cpu}": 0,
	})
	if err := c.Control.Pause(t.Context(), jobs.PoolCPU, "nosuch"); err != nil {
		t.Fatal(err)
	}
	becomes("a paused kind is no demand", map[string]float64{"queue_paused{nosuch,cpu}": 1, "scale_demand{cpu}": 0})
	entry, err := c.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{Name: "a", Pool: jobs.PoolCPU, Kinds: []string{"nosuch"}, State: "cuda:0 host"}
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	becomes("an agent that handles the kind", map[string]float64{
		"cluster_agents{cpu,degraded}": 1, "cluster_agents{cpu,serving}": 0, "queue_unserved_jobs{nosuch,cpu}": 0,
	})
	record := swarms.Swarm{
		Version: jobs.Version, ID: "s", Name: "s", Spec: []byte("{}"), Groups: 2, Shards: 2, Nonce: swarms.NewNonce(),
		Created: time.Now().UTC(),
	}
	if err := c.Swarms.CreateSwarm(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	done := w.Watched()
	becomes("a swarm without an agent", map[string]float64{
		"swarms{waiting}": 1, "shards{waiting}": 2, "scale_demand{gpu}": 2, "ui_viewers{}": 1,
	})
	done()
	if err := entry.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	becomes("the agent leaves", map[string]float64{"cluster_agents{cpu,degraded}": 0})
	if age := series(t, r)["queue_oldest_seconds{cpu}"]; age <= 0 || age > 60 {
		t.Errorf("the oldest job is %v s old", age)
	}
	s.Close()
	becomes("the server is gone", map[string]float64{"cluster_up{}": 0})
	for name := range series(t, r) {
		if name != "cluster_up{}" && name != "ui_viewers{}" && name != "cluster_look_timestamp_seconds{}" {
			t.Errorf("%s is shown without a server", name)
		}
	}
}

// TestKinds: at most 32 kinds have a label of their own; the sums stay right.
func TestKinds(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	for i := range 40 {
		if err := c.Queue.Submit(t.Context(), jobstest.Job(fmt.Sprint("j", i), fmt.Sprint("kind", i))); err != nil {
			t.Fatal(err)
		}
	}
	w := cluster.Start(cluster.Options{Conn: c, Every: 50 * time.Millisecond})
	defer w.Close()
	r := prometheus.NewRegistry()
	r.MustRegister(newExporter(w))
	testkit.Until(t, "all jobs are counted", func() bool {
		return series(t, r)["scale_demand{cpu}"] == 40
	})
	names, sum := 0, 0.0
	for name, v := range series(t, r) {
		if strings.HasPrefix(name, "queue_unserved_jobs{") {
			names++
			sum += v
		}
	}
	if names != 33 || sum != 40 {
		t.Errorf("%d kinds with %v jobs, want 33 with 40", names, sum)
	}
}
