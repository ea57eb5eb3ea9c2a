package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// entryOf returns an entry with the data of a request.
func entryOf(t *testing.T, kind string, ref uint64, v any) swarms.Entry {
	t.Helper()
	data, err := json.Marshal(v)
	if o, ok := v.(*batch.AgentObservations); ok {
		data, err = o.Encode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return swarms.Entry{Kind: kind, Ref: ref, Data: data}
}

// kept are entries of a swarm of many agents: steps of it, snapshots, a reset, and a snapshot whose
// name is taken.
func kept(t *testing.T, agents int) (all []swarms.Entry) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 3))
	add := func(kind string, v any) {
		all = append(all, entryOf(t, kind, uint64(len(all)+1), v))
	}
	for i := range 12 {
		o := &batch.AgentObservations{Width: 2}
		for range 20_000 {
			o.Agent = append(o.Agent, uint32(r.IntN(agents)))
			o.Features = append(o.Features, float32(r.Float64()), float32(r.Float64()))
		}
		add(swarms.EntryObserve, o)
		add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1})
		// the fifth has the name of the fourth
		add(swarms.EntrySnapshot, swarms.Snapshot{Version: jobs.Version, Name: fmt.Sprint("s", i-i%5/4)})
		if i == 6 {
			add(swarms.EntryReset, swarms.Reset{Version: jobs.Version})
		}
	}
	return all
}

// readFiles are those below a folder, by name.
func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatalf("filepath.WalkDir: %v", err)
	}
	return all
}

// TestKilledInSnapshots kills the process that serves a swarm in the middle of snapshots: each has
// one answer, and all answers and all files are the same bytes as of a process that was never
// killed. EXOSWARM_KILLS is the number of kills, 4 by default.
func TestKilledInSnapshots(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	most := 4
	if text := os.Getenv("EXOSWARM_KILLS"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			t.Fatalf("EXOSWARM_KILLS: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	const agents = 600_000
	spec, err := swarm.Parse("test.yaml", fmt.Appendf(nil, "name: x\naddressed: agent\nagents: %d\n"+
		"agents_per_group: 24\npage_size: 256KiB\nfeatures: [a, b]\n"+
		"cell: {kind: leaky}\ncheckpoint: {interval: 100ms, entries: 3}\n", agents))
	if err != nil {
		t.Fatalf("swarm.Parse test.yaml: %v", err)
	}
	specJSON, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := &processes{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: c.url, Name: "test"})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	defer conn.Close()
	all := kept(t, agents)
	data := t.TempDir()
	start := func(place string) {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"),
			"--nats", c.url, "--data-dir", data, "--snapshots", place, "--device", "host", "--lease-ttl", "1s")
	}
	run := func() (got []swarms.Entry, ended chan error) {
		got, ended = make([]swarms.Entry, len(all)), make(chan error, 1)
		announce(ctx, t, conn, specJSON, agents/24, all)
		go func() {
			i := 0
			ended <- answers(ctx, conn, "x", 0, len(all), func(e swarms.Entry) { got[i] = e; i++ })
		}()
		return got, ended
	}
	calm := filepath.Join(t.TempDir(), "calm")
	start(calm)
	want, ended := run()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.gpu.end(t, syscall.SIGTERM)
	if err := conn.Swarms.RemoveSwarm(ctx, swarms.Swarm{ID: "x"}); err != nil {
		t.Fatalf("conn.Swarms.RemoveSwarm: %v", err)
	}
	kinds := map[string]int{}
	for _, e := range want {
		kinds[e.Kind]++
	}
	if kinds[swarms.EntrySnapshotted] != 10 || kinds[swarms.EntryRejected] != 2 || kinds[swarms.EntryCleared] != 1 {
		t.Fatalf("answers %v", kinds)
	}
	// On a machine so busy that this process sleeps through all snapshots, the run proves nothing
	// and is made again.
	for attempt, kills := 1, 0; kills == 0; attempt++ {
		if attempt > 5 {
			t.Fatal("no run was killed in a snapshot")
		}
		place := filepath.Join(t.TempDir(), "disturbed")
		start(place)
		got, ended := run()
		for done := false; !done; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				done = true
				continue
			default:
			}
			begun, err := filepath.Glob(filepath.Join(place, "*", "*.partial"))
			if err != nil {
				t.Fatalf("filepath.Glob: %v", err)
			}
			if len(begun) == 0 || kills == most {
				letPass(ctx, 100*time.Microsecond) // between two looks
				continue
			}
			// the moment of the kill, not a wait for anything
			letPass(ctx, time.Duration(r.Int64N(int64(40*time.Millisecond))))
			c.gpu.end(t, syscall.SIGKILL)
			kills++
			start(place)
		}
		c.gpu.end(t, syscall.SIGTERM)
		if err := conn.Swarms.RemoveSwarm(ctx, swarms.Swarm{ID: "x"}); err != nil {
			t.Fatalf("conn.Swarms.RemoveSwarm: %v", err)
		}
		t.Logf("%d kills, answers %v", kills, kinds)
		for i, e := range got {
			if e.Kind != want[i].Kind || e.Ref != want[i].Ref || !bytes.Equal(e.Data, want[i].Data) {
				t.Fatalf("answer %d is a %s to %d, an undisturbed process gives a %s to %d, or their bytes "+
					"differ: %.300q and %.300q", i+1, e.Kind, e.Ref, want[i].Kind, want[i].Ref, e.Data, want[i].Data)
			}
		}
		have, need := readFiles(t, place), readFiles(t, calm)
		for name, text := range need {
			if have[name] != text {
				t.Errorf("%s differs from the file of an undisturbed process", name)
			}
			delete(have, name)
		}
		for name := range have {
			t.Errorf("%s is left", name)
		}
		if len(need) != 10*7 {
			t.Errorf("%d files", len(need))
		}
	}
}

// announce makes a swarm x with entries in its log.
func announce(ctx context.Context, t *testing.T, c *natsq.Conn, spec json.RawMessage, groups int, all []swarms.Entry) {
	t.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := c.Swarms.Log("x", 0, d).Create(ctx); err != nil {
			t.Fatalf("c.Swarms.Log().Create: %v", err)
		}
	}
	for i, e := range all {
		if err := c.Swarms.Log("x", 0, swarms.In).Append(ctx, uint64(i), e); err != nil {
			t.Fatalf("c.Swarms.Log().Append: %v", err)
		}
	}
	if err := c.Swarms.CreateSwarm(ctx, swarms.Swarm{
		Version: jobs.Version, ID: "x", Name: "x", Spec: spec,
		Groups: groups,
	}); err != nil {
		t.Fatalf("c.Swarms.CreateSwarm: %v", err)
	}
}
