package inputtest

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/files"
)

// Database makes a SQLite database below a root "db" and returns the root's folder.
func Database(t *testing.T, statements ...string) (*files.Files, string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatalf("make the root: %v", err)
	}
	for _, name := range []string{"root/a.db", "outside.db"} {
		db, err := sql.Open("sqlite", filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("open database %s: %v", name, err)
		}
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatalf("statement %q: %v", s, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatalf("close database %s: %v", name, err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "outside.db"), filepath.Join(root, "link.db")); err != nil {
		t.Fatalf("link a database into the root: %v", err)
	}
	files, err := files.New(files.Options{Roots: map[files.Root]string{{Name: "db"}: root}, Scratch: dir})
	if err != nil {
		t.Fatalf("open the files: %v", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	return files, dir
}
