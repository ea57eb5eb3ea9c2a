package testkit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFile: an entry is made once for a key, other parts give another entry, and an entry that was
// not used for long is removed.
func TestFile(t *testing.T) {
	folder := t.TempDir()
	made := 0
	entry := func(content string, parts ...string) string {
		t.Helper()
		path := fileIn(t, folder, func(path string) error {
			made++
			return os.WriteFile(path, []byte(content), 0o600)
		}, parts...)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("entry %v has %q, want %q: %v", parts, got, content, err)
		}
		return path
	}
	first := entry("a", "x", "y")
	entry("a", "x", "y")
	entry("b", "x", "yz")
	entry("c", "xy", "")
	entry("d", "x", "y", "")
	if made != 4 {
		t.Errorf("%d entries made, want 4", made)
	}
	old := time.Now().Add(-2 * unused)
	if err := os.Chtimes(first, old, old); err != nil {
		t.Fatal(err)
	}
	prune(folder, time.Now().Add(-unused))
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an entry of last month is there: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*")); len(left) != 3 {
		t.Errorf("%d entries left, want 3: %v", len(left), left)
	}
}
