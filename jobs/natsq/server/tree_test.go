package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTree: what has changed is synced once, and what goes is forgotten.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	file := func(path ...string) string {
		name := filepath.Join(append([]string{dir}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	meta, block := file("streams", "a", "meta.inf"), file("streams", "a", "msgs", "1.blk")
	tr := tree{dir: dir}
	if err := tr.sync(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Dir(meta), meta, filepath.Dir(block)} {
		if tr.seen[path].IsZero() {
			t.Errorf("%s is not durable", path)
		}
	}
	if !tr.seen[block].IsZero() {
		t.Error("messages are synced too")
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(meta, later, later); err != nil {
		t.Fatal(err)
	}
	if err := tr.sync(); err != nil || !tr.seen[meta].Equal(later) {
		t.Errorf("a change was not seen: %v, %v", tr.seen[meta], err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "streams")); err != nil {
		t.Fatal(err)
	}
	if err := tr.sync(); err != nil || len(tr.seen) != 1 {
		t.Errorf("what is gone stays: %v, %v", tr.seen, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := tr.sync(); err != nil || len(tr.seen) != 0 {
		t.Errorf("a folder that went: %v, %v", tr.seen, err)
	}
}
