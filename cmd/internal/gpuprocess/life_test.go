package gpuprocess

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var (
	lifeAgents = flag.Int64("life.agents", 20_000, "agents of TestLife, a multiple of 1,000")
	lifeCell   = flag.String("life.cell", "leaky", "cell of TestLife: leaky or gru")
	lifeTwin   = flag.Bool("life.twin", true, "the host device lives the same life in TestLife")
)

// life is the entries of a life: observations of many agents, ticks, what all decide and know, and
// a snapshot; then more.
func life(t *testing.T, agents int64, snap string) (entries []swarms.Entry) {
	t.Helper()
	add := func(kind string, v any) {
		e := swarms.Entry{Kind: kind}
		var err error
		if o, ok := v.(*batch.AgentObservations); ok {
			e.Data, err = o.Encode()
		} else {
			e.Data, err = json.Marshal(v)
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	r := rand.New(rand.NewPCG(uint64(agents), 1))
	for range 4 {
		o := &batch.AgentObservations{Width: 2}
		for range min(agents/2, 20_000) {
			o.Agent = append(o.Agent, uint32(r.Int64N(agents)))
			o.Features = append(o.Features, 2*r.Float32()-0.5, r.Float32())
		}
		add(swarms.EntryObserve, o)
		add(swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 3})
	}
	if snap != "" {
		add(swarms.EntrySnapshot, swarms.Snapshot{Version: jobs.Version, Name: snap})
	}
	for _, v := range asked(r, agents) {
		add(v.kind, v.of)
	}
	return entries
}

type question struct {
	kind string
	of   any
}

// asked is what a swarm is asked in the end: its answers say in what state all agents are, and some
// of them in full.
func asked(r *rand.Rand, agents int64) []question {
	some := make([]uint32, 0, 1000)
	for range min(agents, 1000) {
		some = append(some, uint32(r.Int64N(agents)))
	}
	return []question{
		{swarms.EntryVote, swarms.Vote{
			Version: jobs.Version, Round: 1, Rule: swarms.RuleMajority,
			Priority: swarms.PrioritySeeded,
		}},
		{swarms.EntryFuse, swarms.Fuse{Version: jobs.Version, By: swarms.ByAll}},
		{swarms.EntryFuse, swarms.Fuse{Version: jobs.Version, By: swarms.ByGroup, Nodes: 100}},
		{swarms.EntryFuse, swarms.Fuse{Version: jobs.Version, By: swarms.ByVote}},
		{swarms.EntryQuery, swarms.Query{Version: jobs.Version, Agents: some}},
	}
}

// lived runs a life on a device and returns the answers, and how long each took from the one
// before.
func lived(t *testing.T, device, id string, entries []swarms.Entry, store snapshot.Store,
	from *swarms.SnapshotRef,
) (answers []swarms.Entry, took []time.Duration) {
	t.Helper()
	r := newRig(t)
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(id, 0, d).Create(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	text := fmt.Sprintf("name: life\naddressed: agent\nagents: %d\nagents_per_group: 50\nfeatures: [a, b]\ncell: "+
		"{kind: %s}\nvote: {rule: majority}\nseed: 7\ncheckpoint: {interval: 1h, entries: 1000000}\n", *lifeAgents,
		*lifeCell)
	if *lifeCell == "gru" {
		text = fmt.Sprintf("name: life\naddressed: agent\nagents: %d\nagents_per_group: 50\nfeatures: [a, b]\ncell: "+
			"{kind: gru, params: {hidden: 8}}\nvote: {candidates: [a, b, c], rule: majority}\nseed: 7\ncheckpoint: "+
			"{interval: 1h, entries: 1000000}\n", *lifeAgents)
	}
	spec, err := swarm.Parse("life.yaml", []byte(text))
	if err != nil {
		t.Fatalf("swarm.Parse life.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	r.record(t, swarms.Swarm{
		Version: jobs.Version, ID: id, Name: "life", Spec: data, Groups: spec.Groups(), From: from,
	})
	dev, err := cuda.Open(t.Context(), device, cuda.Options{
		Logger:   slog.New(slog.DiscardHandler),
		CacheDir: filepath.Join(os.TempDir(), "exoswarm-kernels"),
	})
	if err != nil {
		t.Fatalf("cuda.Open: %v", err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: dev, Queue: r.conn.Swarms, LeaseTTL: time.Minute, Snapshots: store,
		Logger: slog.New(slog.NewTextHandler(r, nil)),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	defer func() {
		agent.Stop()
		if err := dev.Close(); err != nil {
			t.Errorf("dev.Close: %v", err)
		}
	}()
	began := time.Now()
	for i, e := range entries {
		e.Ref = uint64(i + 1)
		if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(t.Context(), uint64(i), e); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Append: %v", err)
		}
		for end, look := time.Now().Add(10*time.Minute), time.NewTicker(2*time.Millisecond); ; <-look.C {
			last, err := r.conn.Swarms.Log(id, 0, swarms.Out).Last(t.Context())
			if err == nil && last.Ref >= e.Ref {
				answers = append(answers, last)
				look.Stop()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("no answer to %s in 10 minutes: %v\n%s", e.Kind, err, r.String())
			}
		}
		took = append(took, time.Since(began))
		began = time.Now()
		if got := answers[i]; got.Kind == swarms.EntryRejected {
			t.Fatalf("%s on %s: %s", e.Kind, device, got.Data)
		}
		t.Logf("%-8s %-10s %v", device, e.Kind, took[i].Round(time.Millisecond))
	}
	return answers, took
}

// TestLife: agents are made, observed, ticked, vote, are fused and go into a snapshot; a swarm that
// is made of that answers every question as the first one; and so does the host device that lives
// the same life, whose snapshot has the same bytes.
func TestLife(t *testing.T) {
	t.Parallel()
	if *lifeAgents%1000 != 0 {
		t.Fatalf("-life.agents %d: use a multiple of 1,000", *lifeAgents)
	}
	dir := t.TempDir()
	store := place(t, dir)
	entries := life(t, *lifeAgents, "here")
	want, _ := lived(t, *benchDevice, "first", entries, store, nil)
	const before = 9 // entries up to the snapshot
	kept, err := swarms.DecodeSnapshotted(want[before-1].Data)
	if err != nil {
		t.Fatalf("swarms.DecodeSnapshotted: %v", err)
	}
	t.Logf("a snapshot of %d agents, %d bytes", kept.Agents, kept.Bytes)
	m, digest, err := snapshot.ReadManifest(t.Context(), store, "here")
	if err != nil || digest != kept.SHA256 || m.Agents != *lifeAgents {
		t.Fatal(m, digest, err)
	}
	same := func(what string, got []swarms.Entry) {
		t.Helper()
		for i, e := range got {
			if w := want[len(want)-len(got)+i]; e.Kind != w.Kind || !bytes.Equal(e.Data, w.Data) {
				t.Errorf("%s: answer %d, %s, differs from the first: %.300q, %.300q", what, i, w.Kind, e.Data, w.Data)
			}
		}
	}
	again, _ := lived(t, *benchDevice, "second", entries[before:], store,
		&swarms.SnapshotRef{Name: "here", SHA256: digest})
	same("the restored", again)
	if !*lifeTwin {
		return
	}
	entries[before-1] = life(t, *lifeAgents, "there")[before-1]
	twin, _ := lived(t, "host", "first", entries, store, nil)
	for i := range twin {
		if i != before-1 && (twin[i].Kind != want[i].Kind || !bytes.Equal(twin[i].Data, want[i].Data)) {
			t.Errorf("answer %d, %s, differs from the host", i, want[i].Kind)
		}
	}
	other, _, err := snapshot.ReadManifest(t.Context(), store, "there")
	if err != nil {
		t.Fatalf("snapshot.ReadManifest there: %v", err)
	}
	for v, of := range m.Variables {
		for f, file := range of.Files {
			if o := other.Variables[v].Files[f]; o.SHA256 != file.SHA256 || o.Bytes != file.Bytes {
				t.Errorf("%s, file %d: its bytes differ from the host", of.Name, f)
			}
		}
	}
}
