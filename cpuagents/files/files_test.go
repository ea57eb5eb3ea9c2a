package files

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
)

// rootOf returns Files with a root.
func rootOf(t *testing.T, name, dir string) *Files {
	t.Helper()
	f, err := New(Options{Roots: map[Root]string{{Name: name}: dir}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestRoots: a job reads and writes below the folders that the agent was given, and nowhere else.
func TestRoots(t *testing.T) {
	dir := t.TempDir()
	fixture.Write(t, filepath.Join(dir, "in", "a", "x.csv"), "inside")
	fixture.Write(t, filepath.Join(dir, "secret"), "outside")
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(dir, "in", "link")); err != nil {
		t.Fatalf("os.Symlink: %v, want no error", err)
	}
	f := rootOf(t, "in", filepath.Join(dir, "in"))
	r, err := f.Open(t.Context(), "file:in/a/x.csv")
	if err != nil {
		t.Fatalf("f.Open: %v, want no error", err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "inside" {
		t.Fatalf("the file has %q, %v, want inside", text, err)
	}
	r.Close()
	for _, uri := range []string{
		"file:in/../secret", "file:in/a/../../secret", "file:in/link", "file:in//etc/passwd", "file:out/a", "file:in",
		"file:in/a",
		"object:x", "http://example.com/", "/etc/passwd", "", "file:", "file:/etc/passwd",
	} {
		if r, err := f.Open(t.Context(), uri); err == nil {
			r.Close()
			t.Errorf("read %s", uri)
		}
		o, err := f.Create(t.Context(), uri)
		if err == nil {
			o.Abort()
			if uri == "file:in/a/../../secret" || strings.HasPrefix(uri, "file:in/..") || uri == "file:in/a" {
				t.Errorf("wrote %s", uri)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "secret")); err != nil || string(text) != "outside" {
		t.Fatalf("the file outside has %q, %v, want outside", text, err)
	}
}

// TestOutputIsWholeOrAbsent: a file appears with commit; until then, and after abort, what was
// there stays.
func TestOutputIsWholeOrAbsent(t *testing.T) {
	dir := t.TempDir()
	fixture.Write(t, filepath.Join(dir, "d"), "old")
	f := rootOf(t, "out", dir)
	for _, commit := range []bool{false, true} {
		o, err := f.Create(t.Context(), "file:out/d")
		if err != nil {
			t.Fatalf("f.Create: %v, want no error", err)
		}
		if _, err := io.WriteString(o, "new"); err != nil {
			t.Fatalf("io.WriteString: %v, want no error", err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "d")); string(text) != "old" {
			t.Fatalf("%s before commit", text)
		}
		want := "old"
		if commit {
			want = "new"
			if err := o.Commit(); err != nil {
				t.Fatalf("o.Commit: %v, want no error", err)
			}
		}
		o.Abort()
		if text, _ := os.ReadFile(filepath.Join(dir, "d")); string(text) != want {
			t.Fatalf("%s, want %s", text, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

// TestOutputOfTwo: of two attempts that write a file at a time the later has it, and the earlier is
// told that it was overtaken.
func TestOutputOfTwo(t *testing.T) {
	dir := t.TempDir()
	fixture.Write(t, filepath.Join(dir, ".d.x.part"), "somebody's")
	f := rootOf(t, "out", dir)
	var two []*Output
	for _, text := range []string{"earlier", "later"} {
		o, err := f.Create(t.Context(), "file:out/d")
		if err != nil {
			t.Fatalf("f.Create: %v, want no error", err)
		}
		defer o.Abort()
		if _, err := io.WriteString(o, text); err != nil {
			t.Fatalf("io.WriteString: %v, want no error", err)
		}
		two = append(two, o)
	}
	if err := two[1].Commit(); err != nil {
		t.Fatalf("Commit: %v, want no error", err)
	}
	if err := two[0].Commit(); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("the earlier attempt: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "d")); err != nil || string(text) != "later" {
		t.Errorf("the file has %q, %v, want the text of the later attempt", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.csv", "a/z.CSV", "a/y.csv", "a/readme.md", "c"} {
		fixture.Write(t, filepath.Join(dir, name), "")
	}
	files, err := Walk(dir)
	if err != nil {
		t.Fatalf("Walk: %v, want no error", err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "a/y.csv a/z.CSV b.csv" {
		t.Errorf("names: %s, want a/y.csv a/z.CSV b.csv", got)
	}
	if files, err := Walk(filepath.Join(dir, "c")); err != nil || len(files) != 1 || files[0].Name != "c" {
		t.Errorf("Walk of a file: %v, %v, want that file as c", files, err)
	}
	var e *jobs.Error
	if _, err := Walk(filepath.Join(dir, "nothing")); !errors.As(err, &e) || e.Code != jobs.CodeInput {
		t.Errorf("Walk: %v, want code %v", err, jobs.CodeInput)
	}
}

// TestOutputIsRegular: a job writes through a link that stays in the agent's folder, and replaces
// nothing that is no file.
func TestOutputIsRegular(t *testing.T) {
	dir := t.TempDir()
	files, err := New(Options{Roots: map[Root]string{{Name: "r"}: dir}})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatalf("syscall.Mkfifo: %v, want no error", err)
	}
	for link, to := range map[string]string{"link": "sub/file", "out": "/dev/null", "up": "../file", "round": "round"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatalf("os.Symlink: %v, want no error", err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	for _, name := range []string{"fifo", "out", "up", "round", "sub"} {
		if out, err := files.Create(t.Context(), "file:r/"+name); err == nil {
			out.Abort()
			t.Errorf("%s: it is written", name)
		}
	}
	out, err := files.Create(t.Context(), "file:r/link")
	if err != nil {
		t.Fatalf("files.Create: %v, want no error", err)
	}
	if _, err := out.Write([]byte("new")); err != nil {
		t.Fatalf("out.Write: %v, want no error", err)
	}
	if err := out.Commit(); err != nil {
		t.Fatalf("out.Commit: %v, want no error", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "sub", "file")); err != nil || string(data) != "new" {
		t.Errorf("behind the link: %q, %v", data, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "link")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
}

// TestCheckScratch: a scratch folder that cannot be written is told before anything uses it.
func TestCheckScratch(t *testing.T) {
	check := func(dir string) error {
		t.Helper()
		f, err := New(Options{Scratch: dir})
		if err != nil {
			return err
		}
		defer f.Close()
		return f.CheckScratch()
	}
	dir := t.TempDir()
	if err := check(dir); err != nil {
		t.Errorf("a folder: %v", err)
	}
	if err := check(filepath.Join(dir, "absent")); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("no folder: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16k"); errors.Is(err, syscall.EPERM) {
		t.Skip("only root may mount a disk")
	} else if err != nil {
		t.Fatalf("mount a disk of 16 KiB: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := check(dir); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a full disk: %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := check(dir); err == nil || !strings.Contains(err.Error(), dir+" cannot be used") {
		t.Errorf("a disk to read: %v", err)
	}
}
