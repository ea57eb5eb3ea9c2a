package userfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: a file is parsed, the errors name it, and a file that a specification names does not
// lie outside its folder.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
		return path
	}
	spec, err := ReadSpec(write("good.yaml", "name: good\nfeatures: [value]\n"))
	if err != nil || spec.Name != "good" {
		t.Errorf("a good file: %+v, error %v", spec, err)
	}
	outside := filepath.Join(t.TempDir(), "step.cuh")
	if err := os.WriteFile(outside, []byte("// a step"), 0o600); err != nil {
		t.Fatalf("write a file outside: %v", err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "out.cuh")); err != nil {
		t.Fatalf("link: %v", err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.yaml"):              "check the path",
		write("bad.yaml", "name: bad\nunknown: 1\n"): "bad.yaml",
		write("link.yaml", "name: l\ncell: {kind: custom, step_file: out.cuh}\n"): "name a file below the spec's " +
			"own folder",
	} {
		if _, err := ReadSpec(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", filepath.Base(path), err, want)
		}
	}
}
