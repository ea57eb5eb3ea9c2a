package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// spool is a folder "in" below a root "r", next to a file outside the root.
type spool struct {
	t     testing.TB
	dir   string
	files *files.Files
}

func newSpool(t testing.TB) *spool {
	t.Helper()
	base := t.TempDir()
	s := &spool{t: t, dir: filepath.Join(base, "root", "in")}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		t.Fatalf("os.MkdirAll: %v, want no error", err)
	}
	if err := os.WriteFile(filepath.Join(base, "out.csv"), []byte("timestamp,value\n0,666\n"), 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	var err error
	if s.files, err = files.New(files.Options{
		Roots:   map[files.Root]string{{Name: "r"}: filepath.Join(base, "root")},
		Scratch: base,
	}); err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = s.files.Close() })
	return s
}

// write makes a file with rows from to to, modified at second at.
func (s *spool) write(name string, at, from, to int) {
	s.t.Helper()
	var b strings.Builder
	fixture.Page(&b, from, to)
	s.put(name, at, b.String())
}

func (s *spool) put(name string, at int, text string) {
	s.t.Helper()
	p := filepath.Join(s.dir, name)
	if err := errors.Join(os.WriteFile(p, []byte(text), 0o644),
		os.Chtimes(p, time.Time{}, time.Unix(int64(at), 0))); err != nil {
		s.t.Fatalf("write %s: %v", name, err)
	}
}

func (s *spool) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.t.Fatalf("remove %s: %v", name, err)
	}
}

// hooked lets a test act before poll number n, from 0, and before a file is read.
type hooked struct {
	watchable
	look func(n int)
	read func(name string)
	n    int
}

func (h *hooked) list(ctx context.Context, most int) ([]listed, error) {
	if h.look != nil {
		h.look(h.n)
	}
	h.n++
	return h.watchable.list(ctx, most)
}

func (h *hooked) copy(ctx context.Context, l listed, doc *os.File) error {
	if h.read != nil {
		h.read(l.name)
	}
	return h.watchable.copy(ctx, l, doc)
}

// watch makes a fetcher of the folder.
func (s *spool) watch(spec WatchSpec, h *hooked) *watcher {
	s.t.Helper()
	spec.Every, spec.Backoff = 0.1, 0.001
	f, err := newFolderWatcher("watch:r/in", "", &spec, s.files)
	if err != nil {
		s.t.Fatalf("make the watcher: %v, want no error", err)
	}
	if h != nil {
		h.watchable = f.src
		f.src = h
	}
	return f
}

// toldFiles is told with the reasons for what was skipped.
func toldFiles(r rows.Reader, most int) ([]string, error) {
	return toldWith(r, most, func(rej *rows.Reject) string {
		return fmt.Sprintf("%s %d %s", rej.File, rej.Row, rej.Reason)
	})
}

func (s *spool) told(id string, f *watcher) []string {
	s.t.Helper()
	r := remoteOf(fixture.Within(s.t), s.t, jobstest.Connected(s.t, natsq.Connect), id, f)
	defer r.Close()
	got, err := toldFiles(r, 1000)
	if err != nil {
		s.t.Fatalf("%s: %q, %v, want no error", id, got, err)
	}
	return got
}

// TestWatch: each file is read once, when it has come to rest, the oldest first.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := newSpool(t)
	s.put("b.ndjson", 7, `{"timestamp":3,"value":3}`+"\n"+`{"timestamp":4,"value":"x"}`)
	s.put("a2.csv.gz", 5, string(fixture.Gzip(t, []byte("timestamp,value\n2,2\n"))))
	s.write("a1.csv", 5, 0, 2)
	s.put("empty.csv", 5, "")
	s.put(".a0.csv", 5, "being written")
	s.put("notes.txt", 5, "not rows")
	h := &hooked{look: func(n int) {
		switch n {
		case 1: // it is found for the first time
			s.write("c.csv", 8, 5, 6)
		case 2: // it has grown
			s.write("c.csv", 8, 5, 7)
			s.write("empty.csv", 9, 7, 9) // at last
		case 3: // now both are at rest
			s.write("a1.csv", 10, 0, 50)
			s.write("old.csv", 1, 8, 10) // renamed into the folder: older than all
		case 4:
			s.write("a1.csv", 11, 0, 60)
		case 5:
			s.write("late.csv", 20, 20, 21)
		}
	}}
	want := []string{
		"1:0", "2:1", "-", "3:2", "-", "4:3", `b.ndjson 5 column "value" is a string, not a number`, "-",
		"6:5", "7:6", "-", "8:7", "9:8", "-", "a1.csv 0 " + whyChanged,
		"10:8", "11:9", "-", "late.csv 0 " + whyGrowing,
	}
	got := s.told("watch", s.watch(WatchSpec{Polls: 5}, h))
	if d := cmp.Diff(want, got); d != "" || h.n != 6 {
		t.Errorf("%d looks, want 6; difference (-want +got):\n%s", h.n, d)
	}
}

// TestWatchRenamed: where files are renamed into place, the first poll reads them.
func TestWatchRenamed(t *testing.T) {
	s := newSpool(t)
	s.write("a.csv", 1, 0, 1)
	h := &hooked{look: func(n int) {
		if n == 1 {
			s.write(".b.csv", 2, 1, 2)
			if err := os.Rename(filepath.Join(s.dir, ".b.csv"), filepath.Join(s.dir, "b.csv")); err != nil {
				t.Errorf("os.Rename: %v, want no error", err)
			}
		}
	}}
	if got := strings.Join(s.told("renamed", s.watch(WatchSpec{Polls: 2, Renamed: true}, h)),
		" "); got != "1:0 - 2:1" || h.n != 2 {
		t.Errorf("rows %s after %d looks, want 1:0 - 2:1 after 2", got, h.n)
	}
}

// TestWatchSkips: what is not a file of the folder, or not the file that was seen, is not read, and
// said so.
func TestWatchSkips(t *testing.T) {
	s := newSpool(t)
	path := func(name string) string { return filepath.Join(s.dir, name) }
	s.write("a.csv", 1, 0, 1)
	s.write("big.csv", 2, 0, 100)
	s.put("p.parquet.gz", 3, "x")
	s.write("gone.csv", 5, 0, 1)
	s.write("grows.csv", 6, 0, 1)
	s.write("late.csv", 7, 10, 11)
	s.write("x\xff\n.csv", 8, 20, 21)
	s.write("swap.csv", 9, 0, 1)
	if err := errors.Join(
		os.Symlink("../../out.csv", path("l1.csv")), os.Symlink("/etc/passwd", path("l2.csv")),
		os.Symlink("none.csv", path("l3.csv")),
		os.Symlink("l4.csv", path("l4.csv")), syscall.Mkfifo(path("pipe.csv"), 0o644),
		os.Mkdir(path("folder.csv"), 0o755), os.Mkdir(filepath.Join(s.dir, "../other"), 0o755),
		os.Symlink("../other", path("l5.csv")), os.WriteFile(path("../other/in.csv"),
			[]byte("timestamp,value\n30,30\n"), 0o644), os.Symlink("../other/in.csv", path("z.csv")),
	); err != nil {
		t.Fatalf("joined errors: %v, want no error", err)
	}
	if err := os.Chtimes(path("z.csv"), time.Time{}, time.Unix(99, 0)); err != nil {
		t.Fatalf("os.Chtimes: %v, want no error", err)
	}
	f := s.watch(WatchSpec{Polls: 1, MaxBytes: 200, Renamed: true}, &hooked{read: func(name string) {
		switch name {
		case "gone.csv":
			s.remove(name)
		case "grows.csv":
			s.write(name, 6, 0, 9)
		case "swap.csv":
			s.remove(name)
			if err := os.Symlink("/etc/passwd", path(name)); err != nil {
				t.Errorf("os.Symlink: %v, want no error", err)
			}
		case "late.csv": // neither its size nor its time says so: it is read as it is
			s.write(name, 7, 11, 12)
		}
	}})
	const link = " 0 it is a link to nothing, or out of the root"
	want := []string{
		"l1.csv" + link, "l2.csv" + link, "l3.csv" + link, "l4.csv" + link, "pipe.csv 0 it is not a regular file",
		"1:0", "-", "big.csv 0 it has 596 bytes; max_bytes allows 200",
		`p.parquet.gz 0 format "parquet.gz": a Parquet file packs its own pages: unpack it first`,
		"gone.csv 0 it vanished before it was read", "grows.csv 0 " + whyGrowing, "2:11", "-", "3:20", "-",
		"swap.csv 0 it cannot be opened: path escapes from parent", "4:30",
	}
	if d := cmp.Diff(want, s.told("skips", f)); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

// TestWatchManySkips: what is told of fits a message, however much it is.
func TestWatchManySkips(t *testing.T) {
	t.Parallel()
	s := newSpool(t)
	for i := range 2*maxSkips + 3 {
		if err := os.Symlink("/none", filepath.Join(s.dir, fmt.Sprintf("%0200d.csv", i))); err != nil {
			t.Fatalf("os.Symlink: %v, want no error", err)
		}
	}
	if got := s.told("many", s.watch(WatchSpec{}, nil)); len(got) != 2*maxSkips+3 ||
		strings.Contains(strings.Join(got, ""), "-") {
		t.Errorf("%d lines, want %d without a pause", len(got), 2*maxSkips+3)
	}
	r := remoteOf(
		fixture.Within(t),
		t,
		jobstest.Connected(t, natsq.Connect),
		"most",
		s.watch(WatchSpec{MaxFiles: 10}, nil),
	)
	defer r.Close()
	if _, err := told(r, 1); !fixture.IsInput(err) || !strings.Contains(err.Error(), "max_files") {
		t.Errorf("told: %v, want an error of the input and %q in its text", err, "max_files")
	}
}

// TestWatchResume: attempts that end anywhere read, all together, what one does, and no file twice.
func TestWatchResume(t *testing.T) {
	t.Parallel()
	s, q := newSpool(t), jobstest.Connected(t, natsq.Connect)
	for i := range 4 {
		s.write(fmt.Sprintf("%d.csv", i), i, 10*i, 10*i+2)
	}
	if err := os.Symlink("/none", filepath.Join(s.dir, "l.csv")); err != nil {
		t.Fatalf("os.Symlink: %v, want no error", err)
	}
	s.put("h.csv", 2, "timestamp,value\n25,x\n") // one row, no valid one
	whole := s.told("whole", s.watch(WatchSpec{Polls: 2}, nil))
	if len(whole) != 15 {
		t.Fatalf("%d lines, want 15: %q", len(whole), whole)
	}
	for stop := 1; stop <= len(whole); stop++ {
		if !testkit.Long() && stop != 1 && stop != 4 && stop != 9 {
			continue
		}
		id := fmt.Sprintf("resume-%d", stop)
		var all []string
		for n := stop; ; n += stop { // each attempt ends a little later
			r := remoteOf(fixture.Within(t), t, q, id, s.watch(WatchSpec{Polls: 2}, nil))
			got, err := toldFiles(r, n)
			if cerr := r.Close(); err != nil || cerr != nil {
				t.Fatalf("attempt of %d lines: %v, close: %v, want no error", n, err, cerr)
			}
			if d := cmp.Diff(strings.Join(all, " "), strings.Join(got[:len(all)], " ")); d != "" {
				t.Fatalf("difference (-want +got):\n%s", d)
			}
			if all = got; len(got) < n {
				break
			}
		}
		if d := cmp.Diff(whole, all); d != "" {
			t.Fatalf("stopped every %d: %s", stop, d)
		}
	}
	// What was read is remembered by the attempts that follow, and what has changed is not read
	// again.
	id := "changed"
	first := remoteOf(fixture.Within(t), t, q, id, s.watch(WatchSpec{Polls: 1}, nil))
	before, err := toldFiles(first, 3)
	if err != nil {
		t.Fatalf("toldFiles: %v, want no error", err)
	}
	_ = first.Close()
	s.write("0.csv", 50, 500, 600)
	second := remoteOf(fixture.Within(t), t, q, id, s.watch(WatchSpec{Polls: 1}, nil))
	defer second.Close()
	after, err := toldFiles(second, 1000)
	if err != nil {
		t.Fatalf("toldFiles: %v, want no error", err)
	}
	if got := strings.Join(after, " "); !cmp.Equal(before, after[:3]) || strings.Contains(got, ":500") ||
		!strings.Contains(got, whyChanged) || !strings.Contains(got, ":31") {
		t.Errorf("after the change: %s, want the same rows, and the changed file refused", got)
	}
}

// TestWatchRefuses: what is no folder below a root, and what is no spec.
func TestWatchRefuses(t *testing.T) {
	s := newSpool(t)
	s.write("a.csv", 1, 0, 1)
	if err := os.Symlink("../..", filepath.Join(s.dir, "up")); err != nil {
		t.Fatalf("os.Symlink: %v, want no error", err)
	}
	for _, uri := range []string{
		"watch:x/in", "watch:r", "watch:", "watch:r/..", "watch:r/in/../../", "watch:r//etc",
		"watch:r/none", "watch:r/in/a.csv", "watch:r/in/up", "watch:r/\x00",
	} {
		if f, err := newFolderWatcher(uri, "", nil, s.files); err == nil {
			t.Errorf("%q: watcher %v, want an error", uri, f)
		}
	}
	for name, spec := range map[string]WatchSpec{
		"polls": {Polls: -1}, "every": {Every: 0.01}, "bytes": {MaxBytes: -1},
		"files": {MaxFiles: 100_001}, "tries": {Tries: 21}, "backoff": {Backoff: -1},
	} {
		if _, err := newFolderWatcher("watch:r/in", "", &spec, s.files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// The folder goes away while it is watched.
	f := s.watch(WatchSpec{}, nil)
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatalf("os.RemoveAll: %v, want no error", err)
	}
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	if _, err := f.fetch(fixture.Within(t), position{}, "", doc); !fixture.IsInput(err) || jobs.Retryable(err) {
		t.Errorf("fetch without the folder: %v, want a final error of the input", err)
	}
}

// TestWatchWaitEnds: a folder in which nothing happens ends with its context.
func TestWatchWaitEnds(t *testing.T) {
	s := newSpool(t)
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	f := s.watch(WatchSpec{Polls: 1_000_000}, &hooked{look: func(n int) {
		if n == 2 {
			cancel(jobs.ErrFinish)
		}
	}})
	r := remoteOf(ctx, t, jobstest.Connected(t, natsq.Connect), "wait", f)
	defer r.Close()
	if _, err := told(r, 1); !errors.Is(err, jobs.ErrFinish) {
		t.Errorf("told: %v, want %v", err, jobs.ErrFinish)
	}
}

// TestPipeAsFile: a source that names a pipe is refused, and nobody waits for its writer.
func TestPipeAsFile(t *testing.T) {
	s := newSpool(t)
	if err := syscall.Mkfifo(filepath.Join(s.dir, "p.csv"), 0o644); err != nil {
		t.Fatalf("syscall.Mkfifo: %v, want no error", err)
	}
	if _, err := s.files.Open(t.Context(), "file:r/in/p.csv"); !fixture.IsInput(err) {
		t.Errorf("files.Open: %v, want an error of the input", err)
	}
}
