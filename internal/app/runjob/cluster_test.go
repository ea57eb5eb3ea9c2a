package runjob

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestCluster: a cluster has an agent of each kind, holds its folder alone, and leaves nothing in
// it but the lock.
func TestCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	left := filepath.Join(dir, "embedded", "left-by-a-killed-process")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatalf("prepare the folder: %v", err)
	}
	o := ClusterOptions{DataDir: dir, Log: slog.New(slog.DiscardHandler)}
	c, err := StartCluster(t.Context(), o)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of an earlier process: %v, want that it is gone", err)
	}
	if err := c.Conn().Queue.Submit(t.Context(), jobs.Job{
		Version: jobs.Version, ID: "j", Pool: jobs.PoolCPU, Kind: "stream", Spec: []byte(`{}`), MaxAttempts: 1,
	}); err != nil {
		t.Errorf("submit a job: %v", err)
	}
	if r, err := c.Conn().Results.Result(t.Context(), "j"); err != nil || r.Status != jobs.Failed {
		t.Errorf("a stream job with an empty specification: %+v, error %v; want that the CPU agent fails it", r, err)
	}
	if _, err := StartCluster(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "wait for it, or name another folder") {
		t.Errorf("a second cluster in the folder: error %v, want a refusal", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 || all[0].Name() != "embedded.lock" {
		t.Errorf("the folder has %v, error %v; want the lock alone", all, err)
	}
}

// TestTemporary: without a folder, a cluster works in a temporary one, which goes with it also
// after Abort.
func TestTemporary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := StartCluster(t.Context(), ClusterOptions{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if _, err := os.Stat(c.Dir()); err != nil {
		t.Errorf("the folder of a running cluster: %v", err)
	}
	select {
	case <-c.Full():
		t.Error("the disk is said to be full")
	default:
	}
	c.Abort()
	_ = c.Close() // connections that Abort has closed may be errors
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder after the end: %v, want that it is gone", err)
	}
}

// TestOptions: wrong options end what was started before them.
func TestOptions(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, o := range map[string]ClusterOptions{
		"egress":  {Log: log, Egress: []string{"://"}},
		"secrets": {Log: log, Secrets: filepath.Join(t.TempDir(), "none")},
	} {
		if c, err := StartCluster(t.Context(), o); err == nil {
			_ = c.Close()
			t.Errorf("wrong %s are accepted", name)
		}
	}
}
