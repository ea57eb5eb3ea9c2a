package main

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/bucket"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestSnapshotCommands: snapshots as a user sees them, on a real server with a real agent.
func TestSnapshotCommands(t *testing.T) {
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		if args[0] == "swarm" {
			args = append(args, "--nats", s.URL())
			if args[1] != "delete" && args[1] != "list" {
				args = append(args, "--timeout", "5m")
			}
		}
		code, stdout, stderr := exec(t.Context(), t, args...)
		if code != want {
			t.Fatalf("exoswarm %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	dev, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	place := filepath.Join(t.TempDir(), "snapshots")
	serve := func(place string) *gpuagents.Agent {
		t.Helper()
		o := gpuagents.Options{Name: "agent", Device: dev, Queue: conn.Swarms, Logger: slog.New(slog.DiscardHandler)}
		if place != "" {
			b, err := bucket.Open(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			o.Snapshots = b
		}
		agent, err := gpuagents.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		return agent
	}
	agent := serve("")
	defer func() { agent.Stop() }()
	spec := write(t, filepath.Join(t.TempDir(), "spec.yaml"), "name: first\naddressed: agent\nagents: 1000\n"+
		"agents_per_group: 10\nfeatures: [current, gain]\ncell: {kind: leaky}\n")
	run(0, "swarm", "create", "-f", spec)
	_, errs := run(2, "swarm", "snapshot", "first")
	has(errs, "this GPU agent keeps no snapshots: start all of them with --snapshots")
	agent.Stop()
	agent = serve(place)

	currents := write(t, filepath.Join(t.TempDir(), "in.csv"), "agent,current,gain\n0,0.3,0\n1,0.7,0.5\n995,1.5,0\n"+
		"999,0.2,0\n")
	run(0, "swarm", "observe", "first", "--input", currents)
	run(0, "swarm", "tick", "first", "--count", "5")
	before, _ := run(0, "swarm", "query", "first", "--agents", "0-2,990-999", "-o", "json")
	few, _ := run(0, "swarm", "query", "first", "--agents", "0-2,499", "-o", "json")
	out, _ := run(0, "swarm", "snapshot", "first", "--name", "kept", "-o", "jsonl")
	var done swarms.Snapshotted
	if err := json.Unmarshal([]byte(out), &done); err != nil || done.Name != "kept" || done.Agents != 1000 ||
		done.Groups != 100 || done.Bytes < 17_000 {
		t.Fatalf("%s: %v", out, err)
	}
	out, _ = run(0, "snapshot", "list", place)
	has(out, "kept", "first", "leaky", done.SHA256)
	out, errs = run(0, "snapshot", "show", place, "kept")
	has(out, "potential  float32  agent  [1000, 1]", "counts     uint32   group  [100, 2]")
	has(errs, "swarm first, cell leaky, seed 0, 1000 agents in 100 groups, digest "+done.SHA256)
	run(0, "snapshot", "verify", place)
	_, errs = run(2, "swarm", "snapshot", "first", "--name", "kept")
	has(errs, "snapshot kept: snapshot exists already", "choose another name")
	out, _ = run(0, "swarm", "snapshot", "first", "--wait=false")
	has(out, "first-20")

	run(0, "swarm", "reset", "first")
	out, _ = run(0, "swarm", "query", "first", "--agents", "995", "-o", "jsonl")
	has(out, `{"agent":995,"state":[0,0],"vote":"none"}`)
	// What was kept goes on under another name: the same state, and the same after the next steps.
	run(0, "swarm", "create", "again", "--from", "kept", "--snapshots", place)
	if again, _ := run(0, "swarm", "query", "again", "--agents", "0-2,990-999", "-o", "json"); again != before {
		t.Errorf("restored:\n%s\nkept:\n%s", again, before)
	}
	_, errs = run(0, "swarm", "create", "more", "--from", "kept", "--snapshots", place, "--agents", "1500")
	has(errs, "swarm more is served: 1500 agents in 150 groups")
	out, _ = run(0, "swarm", "query", "more", "--agents", "0-2,990-999", "-o", "json")
	if out != before {
		t.Errorf("restored with more agents:\n%s\nkept:\n%s", out, before)
	}
	out, _ = run(0, "swarm", "query", "more", "--agents", "1499", "-o", "jsonl")
	has(out, `{"agent":1499,"state":[0,0],"vote":"none"}`)
	named := write(t, filepath.Join(t.TempDir(), "named.yaml"), "name: fewer\naddressed: agent\nagents: 500\n"+
		"agents_per_group: 10\npage_size: 64KiB\nfeatures: [current, gain]\ncell: {kind: leaky}\n")
	run(0, "swarm", "create", "-f", named, "--from", "kept", "--digest", done.SHA256)
	if fewer, _ := run(0, "swarm", "query", "fewer", "--agents", "0-2,499", "-o", "json"); fewer != few {
		t.Errorf("restored with fewer agents:\n%s\nkept:\n%s", fewer, few)
	}
	tick := func(name string) string {
		out, _ := run(0, "swarm", "query", name, "--groups", "0,99", "-o", "json")
		run(0, "swarm", "tick", name, "--count", "3")
		after, _ := run(0, "swarm", "query", name, "--agents", "0-2,990-999", "-o", "json")
		return out + after
	}
	if a, b := tick("again"), tick("more"); a != b {
		t.Errorf("they do not go on alike:\n%s\n%s", a, b)
	}

	// Agents without a checkpoint begin a trimmed log with its snapshot.
	run(0, "swarm", "snapshot", "again", "--name", "base")
	run(0, "swarm", "tick", "again")
	before, _ = run(0, "swarm", "query", "again", "--agents", "0-2,990-999", "-o", "json")
	for range 2 { // the second time there is nothing left to remove
		_, errs = run(0, "swarm", "trim", "again", "--to", "base", "--snapshots", place)
		has(errs, "swarm again: the log begins with entry 6, behind snapshot base")
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		begins(t, conn.Swarms.Log(swarmKey(t, conn, "again"), 0, d), 6)
	}
	agent.Stop()
	agent = serve(place)
	if again, _ := run(0, "swarm", "query", "again", "--agents", "0-2,990-999", "-o", "json"); again != before {
		t.Errorf("behind its base:\n%s\nbefore:\n%s", again, before)
	}

	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{
			2, "snapshot kept is of another swarm, first of",
			[]string{"swarm", "trim", "again", "--to", "kept", "--snapshots", place},
		},
		{2, "name a snapshot with --to", []string{"swarm", "trim", "again", "--snapshots", place}},
		{2, "give --snapshots, or --digest", []string{"swarm", "create", "x", "--from", "kept"}},
		{2, "--digest without -f", []string{"swarm", "create", "x", "--from", "kept", "--digest", done.SHA256}},
		{
			2, "write exoswarm swarm create NAME --from kept",
			[]string{"swarm", "create", "--from", "kept", "--snapshots", place},
		},
		{
			2, "--agents: swarm spec: agents 1005: use a multiple of agents_per_group, 10",
			[]string{"swarm", "create", "x", "--from", "kept", "--snapshots", place, "--agents", "1005"},
		},
		{
			1, "snapshot nothing: snapshot not found",
			[]string{"swarm", "create", "x", "--from", "nothing", "--snapshots", place},
		},
		{
			2, "its manifest has the SHA-256 " + done.SHA256,
			[]string{
				"swarm", "create", "-f", strings.Replace(named, "named", "other", 1), "--from", "kept", "--digest",
				strings.Repeat("0", 64),
			},
		},
		{
			2, "snapshot kept: its seed, which chooses the weights, is 0, that of the swarm 9: correct",
			[]string{
				"swarm", "create", "-f", strings.Replace(named, "named", "seeded", 1), "--from", "kept",
				"--snapshots", place,
			},
		},
		{
			2, "snapshot kept: snapshot does not fit: its seed",
			[]string{
				"swarm", "create", "-f", strings.Replace(named, "named", "seeded", 1), "--from", "kept",
				"--digest", done.SHA256,
			},
		},
		{2, "use 1 to 64 letters", []string{"swarm", "snapshot", "first", "--name", "../x"}},
		{
			2, "name a folder, file:///FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
			[]string{"snapshot", "list", "ftp://x"},
		},
	} {
		text, err := os.ReadFile(named)
		if err != nil {
			t.Fatal(err)
		}
		write(t, strings.Replace(named, "named", "other", 1), strings.Replace(string(text), "fewer", "x", 1))
		write(t, strings.Replace(named, "named", "seeded", 1), strings.Replace(string(text), "fewer", "x\nseed: 9", 1))
		_, errs := run(c.code, c.args...)
		has(errs, c.want)
	}
	files, err := filepath.Glob(filepath.Join(place, "kept", "potential-*.npy"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(files[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ = run(1, "snapshot", "verify", place, "kept")
	has(out, "kept", "snapshot is damaged")
	_, errs = run(1, "swarm", "create", "x", "--from", "kept", "--snapshots", place)
	has(errs, "swarm x: snapshot kept: snapshot is damaged: potential-00000.npy has the SHA-256",
		"restore from another one")
	_, errs = run(1, "swarm", "trim", "first", "--to", "kept", "--snapshots", place)
	has(errs, "snapshot is damaged")
	begins(t, conn.Swarms.Log(swarmKey(t, conn, "first"), 0, swarms.In), 1)
	out, _ = run(0, "swarm", "list")
	if strings.Contains(out, "x ") {
		t.Errorf("a swarm that could not be restored stays:\n%s", out)
	}
}

// begins checks that a log begins with an entry.
func begins(t *testing.T, l swarms.Log, first uint64) {
	t.Helper()
	for from := range first { // those that are not there, and the first
		r, err := l.Read(t.Context(), from+1)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Next(t.Context())
		r.Close()
		if there := err == nil && e.Seq == from+1; there != (from+1 == first) {
			t.Errorf("entry %d is there: %v, %v; the log is to begin with %d", from+1, there, err, first)
		}
	}
}
