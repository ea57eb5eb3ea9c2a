package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// unused is the time after its last use at which an entry is removed.
const unused = 14 * 24 * time.Hour

// CachedFile returns the path of the entry with the key that parts form. If there is none, create
// must write it to the path that it gets; an error fails the test. Tests and processes may ask for
// the same entry at a time: each gets a complete one. The key is a digest of all that the content
// depends on, so an entry is never stale. Entries that no test has used for two weeks are removed.
func CachedFile(t testing.TB, create func(path string) error, parts ...string) string {
	t.Helper()
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = t.TempDir()
	}
	return fileIn(t, filepath.Join(folder, "exoswarm", "tests"), create, parts...)
}

func fileIn(t testing.TB, folder string, create func(path string) error, parts ...string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	once(folder, prune)
	path := filepath.Join(folder, key(parts))
	now := time.Now()
	if os.Chtimes(path, now, now) == nil {
		return path
	}
	// The entry gets its name when it is complete.
	scratch, err := os.MkdirTemp(folder, "scratch-") //nolint:usetesting // the entry is renamed within one file system
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	temporary := filepath.Join(scratch, "entry")
	if err := create(temporary); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// key is the digest of parts. Each part is followed by a zero byte, which no part contains.
func key(parts []string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strings.ReplaceAll(p, "\x00", " ")))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

var pruned sync.Map // folder -> struct{}

// once calls f for a folder once in a process.
func once(folder string, f func(folder string, before time.Time)) {
	if _, done := pruned.LoadOrStore(folder, struct{}{}); !done {
		f(folder, time.Now().Add(-unused))
	}
}

// prune removes entries, and scratch folders of tests that were killed, that were last used before
// a time.
func prune(folder string, before time.Time) {
	entries, _ := os.ReadDir(folder) // the cache may be shared: what another process removes is gone
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.RemoveAll(filepath.Join(folder, e.Name()))
		}
	}
}

var versions sync.Map // compiler -> string

// CompilerVersion returns what a compiler prints for --version: a part of the key of what it makes.
func CompilerVersion(t testing.TB, compiler string) string {
	t.Helper()
	if v, ok := versions.Load(compiler); ok {
		return v.(string)
	}
	out, err := exec.Command(compiler, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --version: %v\n%s", compiler, err, out)
	}
	versions.Store(compiler, string(out))
	return string(out)
}

// ReadFile returns the content of a source file, for the key of CachedFile.
func ReadFile(t testing.TB, fsys fs.FS, name string) string {
	t.Helper()
	content, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
