package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// tierExec runs the command and returns its exit code and what it said.
func tierExec(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	cmd := Tiers()
	cli.CheckOutput(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	code = command.Run(t.Context(), cmd, &e)
	return code, o.String(), e.String()
}

// tierStore makes a store of two tiers with 40 pages in segments of 8, and deletes the first 30
// pages.
func tierStore(t *testing.T, key []byte) (dirs []string) {
	t.Helper()
	dir := t.TempDir()
	dirs = []string{filepath.Join(dir, "nvme"), filepath.Join(dir, "ssd")}
	const page = 64 << 10
	s, err := pagestore.Open(pagestore.Options{PageSize: page, Key: key, Tiers: []pagestore.Tier{
		{Dir: dirs[0], Capacity: 256 << 20, SegmentBytes: 8*(page+4096) + 8192},
		{
			Dir:          dirs[1],
			Capacity:     256 << 20,
			SegmentBytes: 8*(page+4096) + 8192,
			Codec:        pagestore.Codec{ID: pagestore.LZ4},
		},
	}})
	if err != nil {
		t.Fatalf("pagestore.Open: %v", err)
	}
	ctx := context.Background()
	for id := range uint64(40) {
		if err := s.Put(ctx, int(id%2), id, bytes.Repeat([]byte{byte(id), 7}, page/2), pagestore.Kind{}); err != nil {
			t.Fatalf("s.Put: %v", err)
		}
	}
	if _, err := s.Commit(ctx, []byte("note")); err != nil {
		t.Fatalf("s.Commit: %v", err)
	}
	for id := range uint64(30) {
		if err := s.Delete(ctx, id); err != nil {
			t.Fatalf("s.Delete: %v", err)
		}
	}
	if _, err := s.Commit(ctx, []byte("note")); err != nil {
		t.Fatalf("s.Commit: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("s.Close: %v", err)
	}
	return dirs
}

func TestTierCommands(t *testing.T) {
	dirs := tierStore(t, nil)
	stats := func() (st pagestore.Stats) {
		t.Helper()
		code, out, errs := tierExec(t, append([]string{"stats", "-o", "json"}, dirs...)...)
		if code != 0 || json.Unmarshal([]byte(out), &st) != nil {
			t.Fatalf("stats: %d, %s, %s", code, out, errs)
		}
		return st
	}
	before := stats()
	if before.Pages != 10 || before.Epoch != 2 || before.Tiers[0].Pages != 5 {
		t.Errorf("stats: %+v", before)
	}
	if code, out, errs := tierExec(t, append([]string{"stats"}, dirs...)...); code != 0 ||
		!strings.Contains(out, dirs[1]) || !strings.Contains(out, "10 pages") {
		t.Errorf("stats: %d, %s, %s", code, out, errs)
	}
	code, out, errs := tierExec(t, append([]string{"compact", "-o", "json"}, dirs...)...)
	var freed struct {
		Bytes int64 `json:"freed_bytes"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &freed) != nil || freed.Bytes <= 0 {
		t.Errorf("compact: %d, %s, %s", code, out, errs)
	}
	after := stats()
	if got := before.Tiers[0].FileBytes +
		before.Tiers[1].FileBytes - after.Tiers[0].FileBytes - after.Tiers[1].FileBytes; got != freed.Bytes {
		t.Errorf("compact says %d bytes, the files are %d shorter", freed.Bytes, got)
	}
	if after.Pages != 10 || after.Tiers[1].LiveBytes != before.Tiers[1].LiveBytes {
		t.Errorf("stats after compact: %+v, before: %+v", after, before)
	}
	if code, out, errs := tierExec(t, append([]string{"verify"}, dirs...)...); code != 0 ||
		!strings.Contains(out, "10 pages") || !strings.Contains(out, "0 bad") {
		t.Errorf("verify: %d, %s, %s", code, out, errs)
	}
	// Flip a bit of a page.
	s, err := pagestore.Open(mustDiscover(t, dirs))
	if err != nil {
		t.Fatalf("pagestore.Open: %v", err)
	}
	at, err := s.Stat(38)
	if err != nil {
		t.Fatalf("s.Stat: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("s.Close: %v", err)
	}
	b, err := os.ReadFile(at.File)
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	b[at.Offset+5000] ^= 4
	if err := os.WriteFile(at.File, b, 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	code, out, _ = tierExec(t, append([]string{"verify", "-o", "json"}, dirs...)...)
	var r tierReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != command.ExitFailure || len(r.Bad) != 1 ||
		r.Bad[0] != 38 || len(r.Problems) != 1 {
		t.Errorf("verify of a damaged store: %d, %s, %v", code, out, err)
	}
}

// mustDiscover is Discover.
func mustDiscover(t *testing.T, dirs []string) pagestore.Options {
	t.Helper()
	o, err := pagestore.Discover(nil, dirs)
	if err != nil {
		t.Fatalf("pagestore.Discover: %v", err)
	}
	return o
}

// TestTierUsage holds mistakes to one clear sentence and the exit code of usage.
func TestTierUsage(t *testing.T) {
	t.Parallel()
	dirs := tierStore(t, bytes.Repeat([]byte{9}, 32))
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v", err)
		}
		return path
	}
	good := write("good", strings.Repeat("09", 32)+"\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"stats"}, command.ExitUsage, "DIR is missing"},
		{[]string{"stats", dir}, command.ExitUsage, "no page store"},
		{[]string{"stats", filepath.Join(dir, "none")}, command.ExitUsage, "no page store"},
		{[]string{"stats", "-o", "xml", dirs[0], dirs[1]}, command.ExitUsage, "table or json"},
		{[]string{"verify", "-o", "yaml", dirs[0], dirs[1]}, command.ExitUsage, "table or json"},
		{[]string{"verify", dirs[0], dirs[1]}, command.ExitUsage, "--key-file"},
		{[]string{"verify", "--key-file", write("short", "abc"), dirs[0], dirs[1]}, command.ExitUsage, "16, 24 or 32"},
		{
			[]string{"verify", "--key-file", write("other", strings.Repeat("x", 32)), dirs[0], dirs[1]},
			command.ExitUsage,
			"another key",
		},
		{[]string{"verify", "--key-file", filepath.Join(dir, "none"), dirs[0], dirs[1]}, command.ExitUsage, "none"},
		{[]string{"verify", "--key-file", good, "--rate", "-1", dirs[0], dirs[1]}, command.ExitUsage, "--rate"},
		{[]string{"stats", "--key-file", good, dirs[1], dirs[0]}, command.ExitUsage, "in its order"},
		{[]string{"verify", "--key-file", good, dirs[0], dirs[1]}, 0, ""},
		{[]string{"verify", "--key-file", write("raw", strings.Repeat("\x09", 32)), dirs[0], dirs[1]}, 0, ""},
	} {
		code, out, errs := tierExec(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(strings.TrimSpace(errs), "\n") > 0 {
			t.Errorf("%v: %d, %s, %s; want %d and %q", c.args, code, out, errs, c.code, c.says)
		}
	}
	s, err := pagestore.Open(func() pagestore.Options {
		o := mustDiscover(t, dirs)
		o.Key = bytes.Repeat([]byte{9}, 32)
		return o
	}())
	if err != nil {
		t.Fatalf("pagestore.Open: %v", err)
	}
	defer s.Close()
	if code, _, errs := tierExec(t, "stats", "--key-file", good, dirs[0], dirs[1]); code != command.ExitFailure ||
		!strings.Contains(errs, "stop the agent") {
		t.Errorf("a store that is open: %d, %s", code, errs)
	}
}
