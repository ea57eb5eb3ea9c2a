package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// TestLiveViews asks a real GPU agent for its views through the API: a heat map of three shards,
// the tiers of their pages, and the stages of their batches, also as a trace.
func TestLiveViews(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	c, w := live(t)
	r := opened(t, Observe(w, c), nil)
	ask := func(path string, to any) {
		t.Helper()
		reply, body := r.get(t, path)
		if reply.status != http.StatusOK {
			t.Fatalf("%s: status %d: %.300s", path, reply.status, body)
		}
		if err := json.Unmarshal([]byte(body), to); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var h cluster.Heat
	testkit.Until(t, "the steps of all shards", func() bool {
		if reply, _ := r.get(t, "swarms/crowd/heat?size=64"); reply.status != http.StatusOK {
			return false
		}
		ask("swarms/crowd/heat?size=64", &h)
		return len(h.Parts) == 3 && len(h.States) == 1 && h.States[0][1] == 0
	})
	if h.Variable != "hidden" || !strings.Contains(strings.Join(h.Variables, " "), "vote") || h.Least > h.Most ||
		h.Least < -1 || h.Most > 1 {
		t.Errorf("a heat map of %s, one of %v, from %v to %v", h.Variable, h.Variables, h.Least, h.Most)
	}
	cells, agent := 0, int64(0)
	for i, p := range h.Parts {
		if p.Shard != i || p.First != cells || p.Agent != agent || p.Agents != 30_000 || p.Holder != "gpu-1" ||
			int64(p.Cells) != (p.Agents+p.Per-1)/p.Per || p.At.IsZero() || p.Took <= 0 {
			t.Errorf("part %d is %+v", i, p)
		}
		cells, agent = cells+p.Cells, agent+p.Agents
	}
	if cells != len(h.Cells) || cells > 64*64 || cells < 64*64/2 || h.States[0][0] != cells {
		t.Errorf("%d cells in parts, %d in all, %v", cells, len(h.Cells), h.States)
	}
	// The cells of a grid are agents, or agents of one row that divide it.
	for size, per := range map[int]int64{128: 1, 32: 8} {
		var grid cluster.Heat
		ask(fmt.Sprintf("swarms/garden/heat?size=%d&variable=alive&value=most", size), &grid)
		if grid.Grid == nil || *grid.Grid != (cluster.Grid{Width: 120, Height: 64}) || len(grid.Parts) != 1 ||
			grid.Parts[0].Per != per || len(grid.Cells) != int(120*64/per) {
			t.Fatalf("size %d: %d cells of %+v on %v, want %d of %d agents on 120 by 64", size, len(grid.Cells),
				grid.Parts, grid.Grid, 120*64/per, per)
		}
		if n := bytes.Count(grid.Cells, []byte{255}); size == 128 && n < 36 {
			t.Errorf("%d agents are alive, want the 36 of the gun at least", n)
		}
	}
	if h.Grid != nil || h.Map != nil {
		t.Errorf("a swarm without neighbours has the grid %v and the map %v", h.Grid, h.Map)
	}
	// The cells of a box are places, and all agents are in one.
	var box cluster.Heat
	ask("swarms/flock/heat?size=32", &box)
	if box.Map == nil || *box.Map != (cluster.Map{Columns: 39, Width: 60, Height: 40}) || box.Variable != "places" ||
		len(box.Cells) != 39*26 {
		t.Fatalf("%d cells of %s on %+v", len(box.Cells), box.Variable, box.Map)
	}
	agents := 0.0
	for _, n := range box.Cells {
		agents += math.Round(float64(box.Most) * float64(n) / 255)
	}
	if agents != 2000 || box.Least != 0 {
		t.Errorf("%v agents are in the box, from %v to %v in a cell, want 2000", agents, box.Least, box.Most)
	}
	// The columns of a network are ticks, which are recorded after the first view.
	var spikes cluster.Heat
	testkit.Until(t, "spikes", func() bool {
		ask("swarms/cortex/heat", &spikes)
		return spikes.Map != nil && spikes.Map.Tick > 0 && spikes.Most > 0
	})
	if m := spikes.Map; m.Columns != 256 || m.Per != 4 || m.Width != 0 || spikes.Variable != "spikes" ||
		len(spikes.Cells) != 250*256 {
		t.Errorf("%d cells of %s on %+v", len(spikes.Cells), spikes.Variable, m)
	}
	if reply, body := r.get(t, "swarms/crowd/heat?variable=mood"); reply.status != http.StatusBadRequest ||
		!strings.Contains(body, "hidden") {
		t.Errorf("an unknown variable: status %d, %s", reply.status, body)
	}
	if reply, _ := r.get(t, "swarms/none/heat"); reply.status != http.StatusNotFound {
		t.Errorf("an unknown swarm: status %d", reply.status)
	}

	var m cluster.PageMaps
	ask("swarms/crowd/pages", &m)
	for _, p := range m.Parts {
		if p.Error != "" || p.Pages < 1 || p.Counts[0] != p.Pages || len(p.Runs) != 1 || p.Runs[0][1] != 0 {
			t.Errorf("shard %d: %+v, want all pages on the device", p.Shard, p)
		}
	}

	var line cluster.Timeline
	ask("agents/gpu-1/timeline?seconds=60", &line)
	seen := map[string]int{}
	for _, s := range line.Spans {
		seen[line.Names[s.Swarm]+" "+line.Stages[s.Stage]]++
	}
	for _, want := range []string{
		"shops fetch", "shops decode", "shops upload", "shops kernel", "shops read back", "shops append",
		"crowd fetch", "crowd kernel", "crowd append",
	} {
		if seen[want] == 0 {
			t.Errorf("no span of %s: %v", want, seen)
		}
	}
	var trace struct {
		TraceEvents []struct {
			Name     string
			Ph       string
			Ts, Dur  *float64
			Pid, Tid *int
			Args     map[string]any
		}
		DisplayTimeUnit string
	}
	ask("agents/gpu-1/timeline?seconds=60&format=chrome", &trace)
	spans, named, last := 0, map[int]bool{}, map[[2]int]float64{}
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ts == nil || e.Dur == nil || e.Pid == nil || e.Tid == nil || e.Name == "":
			t.Fatalf("an event without a field: %+v", e)
		case e.Ph == "M":
			if e.Name == "process_name" {
				named[*e.Pid] = strings.Contains(e.Args["name"].(string), "shard")
			}
		case e.Ph != "X" || *e.Ts < 0 || *e.Dur < 0 || !named[*e.Pid] || e.Args["first_entry"] == nil:
			t.Fatalf("event %+v", e)
		default:
			// Events of a thread nest or follow one another, or viewers draw them wrongly. A microsecond is
			// for the rounding of the clock.
			at := [2]int{*e.Pid, *e.Tid}
			if *e.Ts+1 < last[at] {
				t.Errorf("%s of thread %v begins %v us before the one before it has ended", e.Name, at, last[at]-*e.Ts)
			}
			last[at] = *e.Ts + *e.Dur
			spans++
		}
	}
	if spans < 20 || len(named) != 7 || trace.DisplayTimeUnit != "ms" {
		t.Errorf("%d spans of %d shards in %s, want 20 or more of 7 in ms", spans, len(named), trace.DisplayTimeUnit)
	}
}

// TestEntities: the entities of a swarm are found by a part of their names, and a swarm without a
// key has none.
func TestEntities(t *testing.T) {
	t.Parallel()
	conn := jobstest.Open(t, jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess}), natsq.Connect)
	keyed := swarms.Swarm{
		Version: jobs.Version, ID: "keyed", Nonce: swarms.NewNonce(), Groups: 9, Created: time.Now(),
		Spec: json.RawMessage(`{"name":"keyed","agents_per_group":16,"key":["id"],"groups":9}`),
	}
	if err := conn.Swarms.CreateSwarm(t.Context(), keyed); err != nil {
		t.Fatalf("CreateSwarm: %v", err)
	}
	createSwarm(t, conn, crowd, 1)
	keys := statelog.NewKeys(conn.Swarms.Log(keyed.Key(), statelog.KeyShard, swarms.In))
	if err := keys.Open(t.Context()); err != nil {
		t.Fatalf("Keys.Open: %v", err)
	}
	if err := keys.Store(t.Context(), []string{"pump-1", "pump-2"}, nil); err != nil {
		t.Fatalf("Keys.Store: %v", err)
	}
	w := cluster.Start(cluster.Options{Conn: conn})
	t.Cleanup(w.Close)
	o := Observe(w, conn)
	p, err := o.Entities(t.Context(), "keyed", "2", 10)
	if err != nil || p.Matches != 1 || p.Entities[0].Group != 1 {
		t.Errorf("Entities returns %+v, %v", p, err)
	}
	if _, err := o.Entities(t.Context(), "crowd", "2", 10); !errors.Is(err, jobs.ErrNotFound) ||
		!strings.Contains(err.Error(), "has no key") {
		t.Errorf("Entities of a swarm without a key: %v", err)
	}
	if _, err := o.Entities(t.Context(), "none", "2", 10); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Entities of no swarm: %v", err)
	}
}
