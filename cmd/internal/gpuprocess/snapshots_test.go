package gpuprocess

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func place(t *testing.T, dir string) snapshot.Store {
	t.Helper()
	b, err := bucket.Open(t.Context(), dir)
	if err != nil {
		t.Fatalf("bucket.Open: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("b.Close: %v", err)
		}
	})
	return b
}

// entry appends an entry of JSON.
func (r *rig) entry(tb testing.TB, id string, after int, kind string, v any) {
	tb.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		tb.Fatalf("json.Marshal: %v", err)
	}
	n := uint64(after)
	if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), n,
		swarms.Entry{Kind: kind, Ref: n + 1, Data: data}); err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
}

// reply is an answer of a swarm.
func (r *rig) reply(tb testing.TB, id string, number int) swarms.Entry {
	tb.Helper()
	r.answered(tb, id, number)
	rd, err := r.conn.Swarms.Log(id, 0, swarms.Out).Read(tb.Context(), uint64(number))
	if err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Read: %v", err)
	}
	defer rd.Close()
	e, err := rd.Next(tb.Context())
	if err != nil || e.Ref != uint64(number) {
		tb.Fatal(e, err)
	}
	return e
}

// TestSwarmFromSnapshot: the life of a swarm that begins as a snapshot of another one, through
// agents with and without checkpoints.
func TestSwarmFromSnapshot(t *testing.T) {
	t.Parallel()
	const half, whole = 6, 14
	r, dir, data := newRig(t), t.TempDir(), t.TempDir()
	store := place(t, dir)
	all := observations(whole, 7)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.String())
		}
	})
	// The first swarm sees one half, is kept, is reset in between, and sees the other half.
	r.announce(t, "first", text(1, 1), all[:half])
	r.entry(t, "first", half, swarms.EntrySnapshot, swarms.Snapshot{Version: jobs.Version, Name: "half"})
	r.append(t, "first", half+1, all[half:])
	a := r.keepingAgent(t, checkpointsIn(data), store)
	kept, err := swarms.DecodeSnapshotted(r.reply(t, "first", half+1).Data)
	if err != nil || kept.Entry != half+1 || kept.Groups != groups {
		t.Fatal(kept, err)
	}
	r.answered(t, "first", whole+1)
	// The second begins as it was.
	spec, err := swarm.Parse("test.yaml", []byte(text(1, 2)))
	if err != nil {
		t.Fatalf("swarm.Parse test.yaml: %v", err)
	}
	specJSON, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	record := swarms.Swarm{
		Version: jobs.Version, ID: "second", Name: "x", Spec: specJSON, Groups: groups,
		From: &swarms.SnapshotRef{Name: "half", SHA256: kept.SHA256},
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log("second", 0, d).Create(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	r.append(t, "second", 0, all[half:whole-2])
	r.record(t, record)
	n := whole - half
	r.answered(t, "second", n-2)
	a.Stop()
	// Its checkpoint has all of it: it continues when the snapshot is out of reach.
	away := dir + "-away"
	if err := os.Rename(filepath.Join(dir, "half"), away); err != nil {
		t.Fatalf("os.Rename: %v", err)
	}
	r.Reset()
	r.append(t, "second", n-2, all[whole-2:whole-1])
	a = r.keepingAgent(t, checkpointsIn(data), store)
	r.logged(t, fmt.Sprintf("shard resumed from its checkpoint\" swarm=second entry=%d", n-2))
	r.answered(t, "second", n-1)
	a.Stop()
	// Without a checkpoint the agent waits for it, and continues when it is back. The first swarm's
	// entry has its answer: a replay does not write it again.
	r.Reset()
	r.append(t, "second", n-1, all[whole-1:])
	r.append(t, "first", whole+1, all[:1])
	b := r.keepingAgent(t, nil, store)
	r.logged(t, "shard failed, starting again\" swarm=second error=\"swarm x: snapshot half: snapshot not found")
	r.answered(t, "first", whole+2)
	if _, err := os.Stat(filepath.Join(dir, "half")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("an answered snapshot is written again:", err)
	}
	if err := os.Rename(away, filepath.Join(dir, "half")); err != nil {
		t.Fatalf("os.Rename: %v", err)
	}
	r.logged(t, "swarm begins as a snapshot")
	r.answered(t, "second", n)
	for k := range n {
		if got, want := r.reply(t, "second", k+1), r.reply(t, "first", half+2+k); got.Kind != swarms.EntryDecide ||
			!bytes.Equal(got.Data, want.Data) {
			t.Fatalf("answer %d of the swarm that goes on differs from the swarm that never stopped", k+1)
		}
	}
	// A reset goes into checkpoints and replays as any other entry.
	r.entry(t, "second", n, swarms.EntryReset, swarms.Reset{Version: jobs.Version})
	if e := r.reply(t, "second", n+1); e.Kind != swarms.EntryCleared {
		t.Fatal(e.Kind, string(e.Data))
	}
	b.Stop()
	r.append(t, "second", n+1, all[:half])
	c := r.keepingAgent(t, checkpointsIn(t.TempDir()), store)
	r.answered(t, "second", n+1+half)
	c.Stop()
	for k := range half {
		if got, want := r.reply(t, "second", n+2+k), r.reply(t, "first", 1+k); got.Kind != swarms.EntryDecide ||
			!bytes.Equal(got.Data, want.Data) {
			t.Fatalf("answer %d after a reset differs from new agents", k+1)
		}
	}
	// A checkpoint of a swarm that began as something else is not read.
	r.Reset()
	other := *record.From
	record.From = nil
	r.record(t, record)
	d := r.keepingAgent(t, checkpointsIn(data), store)
	r.logged(t, "it is of another spec")
	d.Stop()
	// What does not fit is told to whoever made the swarm.
	record.ID, record.From, record.Groups = "third", &other, groups
	other.Name = "none"
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log("third", 0, d).Create(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	r.append(t, "third", 0, all[:1])
	r.record(t, record)
	r.keepingAgent(t, nil, store)
	if e := r.reply(t, "third", 1); e.Kind != swarms.EntryRejected ||
		!bytes.Contains(e.Data, []byte("snapshot none: snapshot not found")) {
		t.Fatal(e.Kind, string(e.Data))
	}
}
