package gpuprocess

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// maxParallel is how many tests run at a time. They mostly wait.
const maxParallel = 6

func TestMain(m *testing.M) {
	kernelMain(openKernelTest)
	testkit.TempInMemory()
	if os.Getenv(childAgent) != "" {
		command.Main(Command())
	}
	testkit.CheckLeaksParallel(m, maxParallel)
}

// checkpointsIn are checkpoints in a folder.
func checkpointsIn(dir string) *checkpoints { return newCheckpoints(folderTier(dir)) }

const (
	groups    = 10
	batchRows = 200
)

// rig is a queue on disk and what agents in this process need.
type rig struct {
	server      *server.Server
	conn        *natsq.Conn
	testkit.Log // what agents logged
}

func newRig(tb testing.TB) *rig { tb.Helper(); return newRigAt(tb, server.InProcess) }

// newRigAt is newRig with a port for other processes.
func newRigAt(tb testing.TB, port int) *rig {
	tb.Helper()
	srv, err := server.Start(tb.Context(), server.Options{Dir: tb.TempDir(), Port: port})
	if err != nil {
		tb.Fatalf("server.Start: %v", err)
	}
	tb.Cleanup(srv.Close)
	conn, err := natsq.Connect(tb.Context(), natsconn.Options{InProcess: srv, Name: "test"})
	if err != nil {
		tb.Fatalf("natsq.Connect: %v", err)
	}
	tb.Cleanup(conn.Close)
	return &rig{server: srv, conn: conn}
}

// logged waits until the agents have logged a text since the last call of reset.
func (r *rig) logged(tb testing.TB, text string) {
	tb.Helper()
	r.wait(tb, "the log line "+text, func() bool { return strings.Contains(r.String(), text) })
}

func (r *rig) wait(tb testing.TB, what string, met func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("%s: %v\n%s", what, context.Cause(ctx), r.String())
		}
	}
}

// agent starts a GPU agent on the host device with its checkpoints in dir; "" for none. Stop it, or
// the test does.
func (r *rig) agent(tb testing.TB, dir string) *gpuagents.Agent {
	tb.Helper()
	if dir == "" {
		return r.agentWith(tb, nil)
	}
	return r.agentWith(tb, checkpointsIn(dir))
}

func (r *rig) agentWith(tb testing.TB, c shard.Checkpoints) *gpuagents.Agent {
	tb.Helper()
	return r.start(tb, gpuagents.Options{Checkpoints: c})
}

// agentOf is agentWith bytes for pages on the device and in host memory.
func (r *rig) agentOf(tb testing.TB, c shard.Checkpoints, onDevice, inHost int64) *gpuagents.Agent {
	tb.Helper()
	return r.start(tb, gpuagents.Options{Checkpoints: c, PageMemory: onDevice, HostPageMemory: inHost})
}

// keepingAgent is agentWith for an agent that has a place for snapshots.
func (r *rig) keepingAgent(tb testing.TB, c shard.Checkpoints, s snapshot.Store) *gpuagents.Agent {
	tb.Helper()
	return r.start(tb, gpuagents.Options{Checkpoints: c, Snapshots: s})
}

// start runs an agent on the devices of -device.
func (r *rig) start(tb testing.TB, o gpuagents.Options) *gpuagents.Agent {
	tb.Helper()
	var devices []device.Device
	for name := range strings.SplitSeq(*benchDevice, ",") {
		dev, err := cuda.Open(tb.Context(), name, cuda.Options{})
		if err != nil {
			tb.Fatalf("cuda.Open %s: %v", name, err)
		}
		devices = append(devices, dev)
	}
	o.Name, o.Device = cmp.Or(o.Name, "agent"), devices[0]
	for _, dev := range devices[1:] {
		o.Others = append(o.Others, pool.Accelerator{Device: dev})
	}
	o.LeaseTTL = cmp.Or(o.LeaseTTL, time.Minute) // none is lost on a busy machine
	if o.Queue == nil {
		o.Queue = r.conn.Swarms
	}
	o.Logger = slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
	a, err := gpuagents.Start(o)
	if err != nil {
		tb.Fatalf("gpuagents.Start: %v", err)
	}
	tb.Cleanup(func() {
		a.Stop()
		for _, dev := range devices {
			if err := dev.Close(); err != nil {
				tb.Errorf("dev.Close: %v", err)
			}
		}
	})
	return a
}

func text(seed int, entries int) string {
	return fmt.Sprintf("name: x\nagents_per_group: 16\npage_size: 64KiB\nseed: %d\ncheckpoint: {interval: 1h, "+
		"entries: %d}\n", seed, entries)
}

// announce makes the logs of a swarm, puts the batches into one, and then the record.
func (r *rig) announce(tb testing.TB, id, text string, batches []*batch.Observations) {
	tb.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(id, 0, d).Create(tb.Context()); err != nil {
			tb.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	r.append(tb, id, 0, batches)
	r.put(tb, id, text)
}

func (r *rig) put(tb testing.TB, id, text string) {
	tb.Helper()
	spec, err := swarm.Parse("test.yaml", []byte(text))
	if err != nil {
		tb.Fatalf("swarm.Parse test.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		tb.Fatalf("json.Marshal: %v", err)
	}
	r.record(tb, swarms.Swarm{Version: jobs.Version, ID: id, Name: spec.Name, Spec: data, Groups: groups})
}

func (r *rig) record(tb testing.TB, s swarms.Swarm) {
	tb.Helper()
	err := r.conn.Swarms.CreateSwarm(tb.Context(), s)
	if errors.Is(err, jobs.ErrExists) { // its record is changed
		_, err = r.conn.Swarms.ChangeSwarm(tb.Context(), s, func(now *swarms.Swarm) { *now = s })
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func (r *rig) append(tb testing.TB, id string, after int, batches []*batch.Observations) {
	tb.Helper()
	for i, o := range batches {
		data, err := o.Encode()
		if err != nil {
			tb.Fatalf("o.Encode: %v", err)
		}
		n := uint64(after + i)
		if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(tb.Context(), n,
			swarms.Entry{Kind: swarms.EntryObserve, Ref: n + 1, Data: data}); err != nil {
			tb.Fatalf("r.conn.Swarms.Log().Append: %v", err)
		}
	}
}

// answered waits until a swarm has answered a number of entries.
func (r *rig) answered(tb testing.TB, id string, n int) {
	tb.Helper()
	r.wait(tb, fmt.Sprintf("%d answers of %s", n, id), func() bool {
		last, err := r.conn.Swarms.Log(id, 0, swarms.Out).Last(tb.Context())
		return err == nil && last.Ref >= uint64(n)
	})
}

// decisions are the answers of a swarm from one entry up to another, as they stand in the log.
func (r *rig) decisions(tb testing.TB, id string, from, to int) [][]byte {
	tb.Helper()
	rd, err := r.conn.Swarms.Log(id, 0, swarms.Out).Read(tb.Context(), uint64(from))
	if err != nil {
		tb.Fatalf("r.conn.Swarms.Log().Read: %v", err)
	}
	defer rd.Close()
	var all [][]byte
	for i := from; i <= to; i++ {
		e, err := rd.Next(tb.Context())
		if err != nil {
			tb.Fatalf("rd.Next: %v", err)
		}
		if e.Kind != swarms.EntryDecide || e.Ref != uint64(i) {
			tb.Fatalf("%s: answer %d is a %s to entry %d: %s", id, i, e.Kind, e.Ref, e.Data)
		}
		all = append(all, e.Data)
	}
	return all
}

// observations are batches of random groups; read marks them as read at another time.
func observations(batches int, read int64) []*batch.Observations {
	r := rand.New(rand.NewPCG(1, 1))
	rows := make([]uint64, groups)
	var all []*batch.Observations
	for b := range batches {
		o := &batch.Observations{Width: 1}
		for i := range batchRows {
			g := r.IntN(groups)
			rows[g]++
			at := b*batchRows + i
			v := math.Sin(float64(at)/20) + 0.1*r.NormFloat64()
			if r.IntN(100) == 0 {
				v += 20
			}
			o.Group = append(o.Group, uint32(g))
			o.Row = append(o.Row, rows[g])
			o.Time = append(o.Time, int64(at)*1e9)
			o.Read = append(o.Read, read)
			o.Timestamp = append(o.Timestamp, "")
			o.Value = append(o.Value, v)
			o.Features = append(o.Features, float32(v))
		}
		all = append(all, o)
	}
	return all
}

// flipPages changes a byte in every block of every segment file below a folder, behind the file's
// own header.
func flipPages(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".seg" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for at := 1<<14 + 100; at < len(data); at += 4096 {
			data[at] ^= 1
		}
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil {
		t.Fatalf("filepath.WalkDir: %v", err)
	}
}

// TestResume stops an agent behind the half of a log, does something to what it left, and starts
// another: the answers to the second half are the same as of an agent that was never stopped,
// whether the checkpoint could be used or not.
func TestResume(t *testing.T) {
	testkit.OnlyLong(t)
	const half, whole = 9, 18
	r := newRig(t)
	all := observations(whole, 7)
	for i, c := range []struct {
		name string
		harm func(t *testing.T, id, dir string)
		log  string
		text string // of the second agent's swarm
	}{
		{name: "whole", log: "shard resumed from its checkpoint\" swarm=ID entry=9"},
		{
			name: "stale", log: "shard resumed from its checkpoint\" swarm=ID entry=9",
			harm: func(t *testing.T, id, _ string) {
				r.append(t, id, half, all[half:half+4])
				b := r.agent(t, "")
				r.answered(t, id, half+4)
				b.Stop()
			},
		},
		{name: "another seed", text: text(2, 4), log: "it is of another spec"},
		{
			name: "another log", log: "the log has another entry there than the one that it holds",
			harm: func(t *testing.T, id, _ string) {
				r.renew(t, id, observations(half, 8))
			},
		},
		{
			name: "shorter log", log: "it is of log entry 9; the log has 18, and answers to 0",
			harm: func(t *testing.T, id, _ string) {
				r.renew(t, id, observations(3, 7))
			},
		},
		{
			name: "damaged pages", log: "stored bytes are corrupt",
			harm: func(t *testing.T, id, dir string) { flipPages(t, filepath.Join(dir, id+".0")) },
		},
		{name: "index gone", log: "checkpoint not used", harm: func(t *testing.T, id, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, id+".0", "*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("files of the checkpoint: %v, error %v; want some", files, err)
			}
			for _, f := range files {
				if filepath.Ext(f) != ".seg" {
					if err := os.RemoveAll(f); err != nil {
						t.Fatalf("os.RemoveAll: %v", err)
					}
				}
			}
		}},
		{name: "locked", log: "no checkpoints of this shard", harm: func(t *testing.T, id, dir string) {
			s, err := checkpointsIn(dir).Open(id, 0, 64<<10, 1)
			if err != nil {
				t.Fatalf("checkpointsIn().Open: %v", err)
			}
			t.Cleanup(func() { _ = s.Close() })
		}},
		{name: "folder gone", log: "serving shard", harm: func(t *testing.T, _, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatalf("os.RemoveAll: %v", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, dir := fmt.Sprintf("swarm%d", i), t.TempDir()
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(r.String())
				}
			})
			if c.text == "" {
				c.text = text(1, 4)
			}
			r.announce(t, id, text(1, 4), all[:half])
			r.announce(t, id+"-whole", c.text, all)
			first := r.agent(t, dir)
			r.answered(t, id, half)
			r.answered(t, id+"-whole", whole)
			first.Stop()
			for name, entry := range map[string]int{id: half, id + "-whole": whole} {
				r.logged(t, fmt.Sprintf("checkpoint stored\" swarm=%s entry=%d ", name, entry))
			}
			if c.harm != nil {
				c.harm(t, id, dir)
			}
			last, err := r.conn.Swarms.Log(id, 0, swarms.In).Last(t.Context())
			if err != nil {
				t.Fatalf("r.conn.Swarms.Log().Last: %v", err)
			}
			have := int(last.Seq)
			r.append(t, id, have, all[have:])
			r.put(t, id, c.text)
			r.Reset()
			second := r.agent(t, dir)
			r.logged(t, strings.ReplaceAll(c.log, "ID", id))
			r.answered(t, id, whole)
			second.Stop()
			need := r.decisions(t, id+"-whole", half+1, whole)
			for k, got := range r.decisions(t, id, half+1, whole) {
				if !bytes.Equal(got, need[k]) {
					t.Fatalf("answer %d differs from an agent that was never stopped", half+1+k)
				}
			}
			// A third one starts behind the end, unless the shard could not be kept.
			if c.name != "locked" {
				r.Reset()
				third := r.agent(t, dir)
				r.logged(t, fmt.Sprintf("shard resumed from its checkpoint\" swarm=%s entry=%d", id, whole))
				third.Stop()
				if c.name != "folder gone" && !bytes.Equal(kept(t, dir, id), kept(t, dir, id+"-whole")) {
					t.Error("the state differs from an agent that was never stopped")
				}
			}
			for _, s := range []string{id, id + "-whole"} {
				if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: s}); err != nil {
					t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
				}
			}
		})
	}
}

// kept is the state of a swarm as the last checkpoint has it.
func kept(t *testing.T, dir, id string) []byte {
	t.Helper()
	s, err := checkpointsIn(dir).Open(id, 0, 64<<10, 1)
	if err != nil {
		t.Fatalf("checkpointsIn().Open: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("s.Close: %v", err)
		}
	}()
	if len(s.Pages()) == 0 {
		t.Errorf("no pages of %s", id)
	}
	var all []byte
	content := make([]byte, 64<<10)
	for _, page := range s.Pages() {
		if err := s.Get(t.Context(), page, content); err != nil {
			t.Fatalf("s.Get: %v", err)
		}
		all = append(all, content...)
	}
	return all
}

// renew makes the logs of a swarm anew, with other entries.
func (r *rig) renew(t *testing.T, id string, batches []*batch.Observations) {
	t.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		l := r.conn.Swarms.Log(id, 0, d)
		if err := l.Delete(t.Context()); err != nil {
			t.Fatalf("l.Delete: %v", err)
		}
		if err := l.Create(t.Context()); err != nil {
			t.Fatalf("l.Create: %v", err)
		}
	}
	r.append(t, id, 0, batches)
	if len(batches) > 3 {
		b := r.agent(t, "")
		r.answered(t, id, len(batches))
		b.Stop()
	}
}

// TestCheckpointsEndWithTheSwarm: what is kept goes when the swarm does, while an agent serves it,
// after its log has ended, and while no agent runs.
func TestCheckpointsEndWithTheSwarm(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	gone := func(id string) {
		t.Helper()
		r.wait(t, "removal of "+id, func() bool {
			_, err := os.Stat(filepath.Join(dir, id+".0"))
			return os.IsNotExist(err)
		})
	}
	there := func(id string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(dir, id+".0")); err != nil {
			t.Errorf("os.Stat: %v", err)
		}
	}
	remove := func(id string) {
		t.Helper()
		if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: id}); err != nil {
			t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
		}
		for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
			if err := r.conn.Swarms.Log(id, 0, d).Delete(t.Context()); err != nil {
				t.Fatalf("r.conn.Swarms.Log().Delete: %v", err)
			}
		}
	}
	all := observations(3, 7)
	for _, id := range []string{"served", "ended", "late"} {
		r.announce(t, id, text(1, 1), all)
	}
	if err := r.conn.Swarms.Log("ended", 0, swarms.In).Append(t.Context(), 3,
		swarms.Entry{Kind: swarms.EntryEnd, Ref: 4, Data: []byte("{}")}); err != nil {
		t.Fatalf("r.conn.Swarms.Log().Append: %v", err)
	}
	a := r.agent(t, dir)
	for id, n := range map[string]int{"served": 3, "ended": 4, "late": 3} {
		r.answered(t, id, n)
		there(id)
	}
	remove("served")
	gone("served")
	r.logged(t, "shard finished")
	there("ended")
	remove("ended")
	gone("ended")
	a.Stop()
	there("late")
	remove("late")
	r.agent(t, dir)
	gone("late")
}

// TestPagedSwarm serves a swarm of twelve pages with three of them on the device, and one or none
// in host memory: its answers are the same as of an agent that has all pages there. It is stopped
// in between; the second agent continues from the checkpoint, or finds it damaged when it needs a
// page, and starts from the log.
func TestPagedSwarm(t *testing.T) {
	t.Parallel()
	const half, whole, page = 9, 18, 64 << 10
	r := newRig(t)
	all := observations(whole, 7)
	spec := strings.Replace(text(1, 4), "agents_per_group: 16", "agents_per_group: 600", 1) // a group fills a page
	r.announce(t, "resident", spec, all)
	first := r.agent(t, "")
	r.answered(t, "resident", whole)
	first.Stop()
	want := r.decisions(t, "resident", 1, whole)
	if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: "resident"}); err != nil {
		t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
	}
	for i, c := range []struct {
		inHost  int64
		damaged bool
	}{{page, false}, {0, false}, {0, true}} {
		if testing.Short() && i > 0 {
			continue // half a minute with the race detector
		}
		id, dir := fmt.Sprintf("paged%d", i), t.TempDir()
		r.announce(t, id, spec, all[:half])
		a := r.agentOf(t, checkpointsIn(dir), 3*page, c.inHost)
		r.answered(t, id, half)
		a.Stop()
		r.logged(t, fmt.Sprintf("pages=%d ", groups))
		r.Reset()
		if c.damaged {
			flipPages(t, filepath.Join(dir, id+".0"))
		}
		r.append(t, id, half, all[half:])
		a = r.agentOf(t, checkpointsIn(dir), 3*page, c.inHost)
		r.answered(t, id, whole)
		a.Stop()
		r.logged(t, fmt.Sprintf("shard resumed from its checkpoint\" swarm=%s entry=%d", id, half))
		if got := strings.Contains(r.String(), "checkpoint not used, the shard starts from its log"); got != c.damaged {
			t.Errorf("%s: the shard started from its log: %v, want %v\n%s", id, got, c.damaged, r.String())
		}
		for k, got := range r.decisions(t, id, 1, whole) {
			if !bytes.Equal(got, want[k]) {
				t.Fatalf("%s: answer %d differs from an agent with all pages on the device", id, k+1)
			}
		}
		if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: id}); err != nil {
			t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
		}
	}
}

// TestNoRoom: a swarm whose pages have no place is answered with what is missing.
func TestNoRoom(t *testing.T) {
	r := newRig(t)
	r.announce(t, "large", strings.Replace(text(1, 4), "agents_per_group: 16", "agents_per_group: 600", 1),
		observations(1, 7))
	r.agentOf(t, nil, 3*64<<10, 4*64<<10)
	r.answered(t, "large", 1)
	rd, err := r.conn.Swarms.Log("large", 0, swarms.Out).Read(t.Context(), 1)
	if err != nil {
		t.Fatalf("r.conn.Swarms.Log().Read: %v", err)
	}
	defer rd.Close()
	e, err := rd.Next(t.Context())
	if err != nil || e.Kind != swarms.EntryRejected || !strings.Contains(string(e.Data),
		fmt.Sprintf("%d bytes; there are 196608 for them on the device and 262144 in host memory", groups*64<<10)) {
		t.Errorf("%s %.300q: %v", e.Kind, e.Data, err)
	}
}

// BenchmarkRecover is the time from the start of an agent to the answer of the last entry, behind a
// log of 512 entries of 200 rows, 256 agents a row. The last entry has no answer.
func BenchmarkRecover(b *testing.B) {
	const entries = 512
	all := observations(entries+1, 7)
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("checkpoint=%v", kept), func(b *testing.B) {
			r, dir := newRig(b), ""
			if kept {
				dir = b.TempDir()
			}
			r.announce(b, "long", "name: x\npage_size: 64KiB\ncheckpoint: {entries: 64}\n", all[:entries])
			a := r.agent(b, dir)
			r.answered(b, "long", entries)
			a.Stop()
			b.ResetTimer()
			for i := range b.N {
				b.StopTimer()
				r.append(b, "long", entries+i, all[entries:])
				b.StartTimer()
				a := r.agent(b, dir)
				r.answered(b, "long", entries+i+1)
				b.StopTimer()
				a.Stop()
				b.StartTimer()
			}
		})
	}
}

// interrupted is a page store whose agent drains while it reads.
type interrupted struct {
	pages.Store
	began            *sync.Once
	reading, drained chan struct{}
}

// Get implements pages.Store. It may be called again: a restore that ends early is tried anew.
func (s interrupted) Get(ctx context.Context, page uint64, dst []byte) error {
	s.began.Do(func() { close(s.reading) })
	select {
	case <-ctx.Done():
	case <-s.drained:
	}
	return s.Store.Get(ctx, page, dst)
}

// interrupting opens interrupted stores.
type interrupting struct {
	*checkpoints
	began            sync.Once
	reading, drained chan struct{}
}

// Open implements gpuagents.Checkpoints.
func (c *interrupting) Open(swarm string, shard, pageSize, pages int) (pages.Store, error) {
	s, err := c.checkpoints.Open(swarm, shard, pageSize, pages)
	return interrupted{s, &c.began, c.reading, c.drained}, err
}

// TestDrainDuringRestore: an agent that is told to end while it reads its checkpoint leaves it as
// it is.
func TestDrainDuringRestore(t *testing.T) {
	r, dir := newRig(t), t.TempDir()
	r.announce(t, "short", text(1, 1), observations(3, 7))
	a := r.agent(t, dir)
	r.answered(t, "short", 3)
	a.Stop()
	c := &interrupting{checkpoints: checkpointsIn(dir), reading: make(chan struct{}), drained: make(chan struct{})}
	defer close(c.drained)
	b := r.agentWith(t, c)
	<-c.reading
	b.Stop()
	r.Reset()
	r.agent(t, dir)
	r.logged(t, "shard resumed from its checkpoint\" swarm=short entry=3")
}
