package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestParseRoots: a folder is written NAME=DIR, or with a tenant, and everything else is refused
// with the text that was given.
func TestParseRoots(t *testing.T) {
	got, err := ParseRoots([]string{
		"in=/data/in", "out=/data=x/o,ut", "tenant=acme,name=in,path=/data/acme",
		"tenant=*,name=all,path=/data/a,b",
	})
	want := map[Root]string{
		{"", "in"}: "/data/in", {"", "out"}: "/data=x/o,ut", {"acme", "in"}: "/data/acme",
		{"*", "all"}: "/data/a,b",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("roots %v, error %v; want %v", got, err, want)
	}
	for _, text := range []string{
		"", "in", "in=", "=/data", "a b=/data", "a/b=/data", "tenant=acme,in=/data", "tenant=acme,name=in",
		"tenant=acme,name=in,path=", "tenant=acme,name=,path=/data", "tenant=acme,in,path=/data",
		"tenant=a b,name=in,path=/data", "tenant=acme,name=a b,path=/data",
	} {
		var e *jobs.Error
		if roots, err := ParseRoots([]string{"in=/data", text}); !errors.As(err, &e) || e.Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), fmt.Sprintf("--root %q", text)) || roots != nil {
			t.Errorf("%q: roots %v, error %v; want none, and code %v with the flag", text, roots, err, jobs.CodeInvalid)
		}
	}
}

// TestRootsOfTenants: the folder of a job's tenant comes before the folder of all, and nobody has
// the folder of another.
func TestRootsOfTenants(t *testing.T) {
	roots := map[Root]string{}
	for root, text := range map[Root]string{
		{"", "in"}: "own", {"acme", "in"}: "acme's", {"*", "in"}: "all's",
		{"*", "shared"}: "shared", {"", "own"}: "own",
	} {
		roots[root] = t.TempDir()
		fixture.Write(t, filepath.Join(roots[root], "x"), text)
	}
	f, err := New(Options{Roots: roots, Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	defer f.Close()
	for _, c := range []struct{ tenant, uri, want string }{
		{"", "file:in/x", "own"},
		{"default", "file:in/x", "own"},
		{"acme", "file:in/x", "acme's"},
		{"other", "file:in/x", "all's"},
		{"", "file:shared/x", "shared"},
		{"acme", "file:shared/x", "shared"},
		{"", "file:own/x", "own"},
		{"default", "file:own/x", "own"},
		{"acme", "file:own/x", "start it with --root tenant=acme,name=own,path=DIR"},
		{"", "file:none/x", "start it with --root none=DIR"},
		{"default", "file:in", "start it with --root in=DIR"},
		{"acme", "file:in", "start it with --root tenant=acme,name=in,path=DIR"},
	} {
		r, err := f.For(jobs.Owner{Tenant: c.tenant}).Open(t.Context(), c.uri)
		got := ""
		if err != nil {
			if got = err.Error(); !fixture.IsInput(err) {
				t.Errorf("%s of %q: %v", c.uri, c.tenant, err)
			}
		} else {
			got = fixture.ReadAll(t, r)
			_ = r.Close()
		}
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%s of %q: %s, want %s", c.uri, c.tenant, got, c.want)
		}
	}
	if _, err := New(Options{Roots: map[Root]string{{"", "in"}: filepath.Join(t.TempDir(),
		"none")}}); !fixture.IsInput(err) || !strings.Contains(err.Error(), "open folder") {
		t.Errorf("New: %v, want an error of the input and %q in its text", err, "open folder")
	}
	if plain, err := New(Options{}); err != nil || plain.scratch != os.TempDir() || plain.unpacked != 64<<30 {
		t.Errorf("%+v, error %v; want the temporary folder and 64 GiB", plain, err)
	}
	if set, err := New(Options{Scratch: "/x", Unpacked: 7}); err != nil || set.scratch != "/x" || set.unpacked != 7 {
		t.Errorf("%+v, error %v; want the folder /x and 7 bytes", set, err)
	}
	if err := f.Close(); err != nil {
		t.Fatalf("f.Close: %v, want no error", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if r, err := f.Open(t.Context(), "file:in/x"); err == nil {
		_ = r.Close()
		t.Error("a folder is open behind Close")
	}
}

// TestURIs: what is no file or object of this agent is refused with the reason.
func TestURIs(t *testing.T) {
	dir := t.TempDir()
	fixture.Write(t, filepath.Join(dir, "x"), "text")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatalf("syscall.Mkfifo: %v, want no error", err)
	}
	f := rootOf(t, "in", dir)
	with, err := New(Options{Objects: shelf{}, Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	for uri, want := range map[string]string{
		"object:x": "this agent has no object store", "object:": "this agent has no object store", "": "a source or " +
			"sink is file:ROOT/PATH or object:NAME", "http://x/": "a source or sink is", "file": "knows no folder",
		"file:in":   "knows no folder",
		"file:in/.": "it is not a regular file", "file:in/pipe": "open pipe: it is not a regular file",
		"file:in/y": "there is no such file",
	} {
		if r, err := f.Open(t.Context(), uri); err == nil || !fixture.IsInput(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", uri, r, err, want)
		}
	}
	if _, err := with.Open(t.Context(), "object:"); err == nil || !strings.Contains(err.Error(), "no object store") {
		t.Errorf("with.Open: %v, want %q in its text", err, "no object store")
	}
}

// shelf is an Objects in memory; an object called "fails" breaks in its middle.
type shelf map[string]string

func (s shelf) PutObject(_ context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	data, err := io.ReadAll(r)
	if name == "fails" {
		err = jobs.ErrUnavailable
	}
	s[of.Tenant+"/"+name] = string(data)
	return int64(len(data)), err
}

func (s shelf) Object(_ context.Context, name string, of jobs.Owner) (io.ReadCloser, error) {
	text, ok := s[of.Tenant+"/"+name]
	switch {
	case name == "away":
		return nil, jobs.ErrUnavailable
	case !ok:
		return nil, fmt.Errorf("%s: %w", name, jobs.ErrNotFound)
	case name == "cut":
		return io.NopCloser(io.MultiReader(strings.NewReader(text), iotest.ErrReader(jobs.ErrUnavailable))), nil
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// TestObjectFiles: an object is fetched whole before it is read and stored whole with commit, under
// its owner, and nothing is left of it in the scratch folder. What the queue cannot do now is tried
// again.
func TestObjectFiles(t *testing.T) {
	s, dir := shelf{"acme/a": "contents", "/a": "another's", "acme/cut": "conte"}, t.TempDir()
	f, err := New(Options{Objects: s, Scratch: dir})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	f = f.For(jobs.Owner{Tenant: "acme"})
	left := func() int {
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatalf("os.ReadDir: %v, want no error", err)
		}
		return len(all)
	}
	r, err := f.Open(t.Context(), "object:a")
	if err != nil {
		t.Fatalf("f.Open: %v, want no error", err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "contents" || left() != 0 {
		t.Errorf("%q, %v, %d files in scratch", text, err, left())
	}
	_ = r.Close()
	if _, err := f.Open(t.Context(), "object:none"); !fixture.IsInput(err) ||
		!strings.Contains(err.Error(), "object:none: there is no such object") {
		t.Errorf("f.Open: %v, want an error of the input and %q in its text", err,
			"object:none: there is no such object")
	}
	for _, name := range []string{"away", "cut"} {
		if _, err := f.Open(t.Context(), "object:"+name); !jobs.Retryable(err) || !errors.Is(err, jobs.ErrUnavailable) {
			t.Errorf("%s: f.Open: %v, want an error to retry and %v", name, err, jobs.ErrUnavailable)
		}
	}
	for _, commit := range []bool{false, true} {
		o, err := f.Create(t.Context(), "object:new")
		if err != nil {
			t.Fatalf("f.Create: %v, want no error", err)
		}
		if _, err := io.WriteString(o, "new contents"); err != nil {
			t.Fatalf("io.WriteString: %v, want no error", err)
		}
		if left() != 1 {
			t.Errorf("%d files in scratch", left())
		}
		if commit {
			if err := o.Commit(); err != nil {
				t.Errorf("o.Commit: %v, want no error", err)
			}
		}
		o.Abort()
		if got := s["acme/new"]; got != map[bool]string{true: "new contents"}[commit] || left() != 0 {
			t.Errorf("commit %v: %q, %d files in scratch", commit, got, left())
		}
	}
	o, err := f.Create(t.Context(), "object:fails")
	if err != nil {
		t.Fatalf("f.Create: %v, want no error", err)
	}
	if err := o.Commit(); !errors.Is(err, jobs.ErrUnavailable) || left() != 0 {
		t.Errorf("%v, %d files in scratch", err, left())
	}
	// A scratch folder that is gone is no fault of the job.
	if err := os.Remove(dir); err != nil {
		t.Fatalf("os.Remove: %v, want no error", err)
	}
	if _, err := f.Open(t.Context(), "object:a"); !errors.Is(err, jobs.ErrUnfit) ||
		!strings.Contains(err.Error(), "create a temporary file in") {
		t.Errorf("f.Open: %v, want %v and %q in its text", err, jobs.ErrUnfit, "create a temporary file in")
	}
	if _, err := f.Create(t.Context(), "object:a"); !errors.Is(err, jobs.ErrUnfit) {
		t.Errorf("f.Create: %v, want %v", err, jobs.ErrUnfit)
	}
}

// TestSpoolFails: a full disk is an error of the scratch folder, in whatever step it shows.
func TestSpoolFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("os.OpenFile: %v, want no error", err)
	}
	defer full.Close()
	if n, err := (writeOnly{full, "/scratch"}).Write([]byte("x")); !errors.Is(err, jobs.ErrUnfit) ||
		!strings.Contains(err.Error(), "write a temporary file in /scratch") || n != 0 {
		t.Errorf("Write: %d, %v, want 0 and a %v that names the folder", n, err, jobs.ErrUnfit)
	}
	f, err := New(Options{Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	tmp, err := f.Spool()
	if err != nil {
		t.Fatalf("f.Spool: %v, want no error", err)
	}
	if all, err := os.ReadDir(f.scratch); err != nil || len(all) != 0 {
		t.Errorf("a spool is left behind by a kill: %v, %v", all, err)
	}
	_ = tmp.Close()
}

// TestPartsOfAttempts: what earlier attempts have left of a file is removed, and nothing else, in a
// folder of any size.
func TestPartsOfAttempts(t *testing.T) {
	dir := t.TempDir()
	keep := []string{".d.x.part", ".d.1.par", "d.1.part", ".e.1.part", ".d.-1.part", ".d.1", ".d..part", ".dd.1.part"}
	for _, name := range append([]string{".d.1.part", ".d.18446744073709551615.part", ".d.0.part"}, keep...) {
		fixture.Write(t, filepath.Join(dir, "sub", name), "")
	}
	for i := range 1500 { // more than one read of the folder
		fixture.Write(t, filepath.Join(dir, "sub", fmt.Sprintf(".d.%d.part", 1000+i)), "")
	}
	f := rootOf(t, "out", dir)
	o, err := f.Create(t.Context(), "file:out/sub/d")
	if err != nil {
		t.Fatalf("f.Create: %v, want no error", err)
	}
	all, err := os.ReadDir(filepath.Join(dir, "sub"))
	if err != nil || len(all) != len(keep)+1 {
		t.Errorf("%d files, want those %d of others and the new one, %v", len(all), len(keep), err)
	}
	o.Abort()
	o.Abort()
	for _, name := range keep {
		if _, err := os.Lstat(filepath.Join(dir, "sub", name)); err != nil {
			t.Errorf("os.Lstat: %v, want no error", err)
		}
	}
	if all, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(all) != len(keep) {
		t.Errorf("behind abort: %d files, %v", len(all), err)
	}
	if _, err := f.Create(t.Context(), "file:out/none/d"); !fixture.IsInput(err) ||
		!strings.Contains(err.Error(), "write none/d") {
		t.Errorf("f.Create: %v, want an error of the input and %q in its text", err, "write none/d")
	}
	// Its place cannot be taken.
	o, err = f.Create(t.Context(), "file:out/taken")
	if err != nil {
		t.Fatalf("f.Create: %v, want no error", err)
	}
	fixture.Write(t, filepath.Join(dir, "taken", "x"), "")
	if err := o.Commit(); err == nil || errors.Is(err, jobs.ErrFenced) ||
		!strings.Contains(err.Error(), "write taken") {
		t.Errorf("%v, want an error with %q that is not %v", err, "write taken", jobs.ErrFenced)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".taken.*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLinks: links are followed below the root, 39 of them at most before a file, and each that is
// not followed has its reason.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	link := func(name, to string) {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatalf("os.Symlink: %v, want no error", err)
		}
	}
	link("to0", "sub/new")
	for i := range 40 {
		link(fmt.Sprintf("to%d", i+1), fmt.Sprintf("to%d", i))
	}
	link("sub/up", "../old")
	link("abs", filepath.Join(dir, "old"))
	link("out", "../out")
	link("folder", "sub")
	fixture.Write(t, filepath.Join(dir, "old"), "old")
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatalf("syscall.Mkfifo: %v, want no error", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatalf("os.OpenRoot: %v, want no error", err)
	}
	defer root.Close()
	for name, want := range map[string]string{
		"new": "new", "old": "old", "to0": "sub/new", "to38": "sub/new", "to39": "too many symbolic links",
		"to40": "too many symbolic links", "sub/up": "old",
		"abs": "out of the agent's folder", "out": "escapes", "folder": "it is a folder: name a file",
		"sub": "it is a folder: name a file", "pipe": "it is not a regular file, and is not replaced",
	} {
		got, err := target(root, name)
		if err != nil {
			if got = err.Error(); !strings.Contains(got, "write ") {
				t.Errorf("%v, want an error with %q", err, "write ")
			}
		}
		if !strings.Contains(got, want) || err == nil && got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestWalkFiles: the files of a folder whose extension is a format, except hidden files and lists
// of rejects; a file by itself whatever its name, and nothing else.
func TestWalkFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"a.csv", ".b.csv", "c.csv.rejects.ndjson", "d.ndjson", "e.csv.gz", "f.parquet",
		"sub/g.arrow", "h.txt", "i", ".sub/j.csv",
	} {
		fixture.Write(t, filepath.Join(dir, name), "")
	}
	if err := os.Symlink("a.csv", filepath.Join(dir, "k.csv")); err != nil {
		t.Fatalf("os.Symlink: %v, want no error", err)
	}
	files, err := Walk(dir)
	var got []string
	for _, f := range files {
		got = append(got, f.Name+" "+string(f.Format))
		if f.Path != filepath.Join(dir, filepath.FromSlash(f.Name)) {
			t.Errorf("%+v, want its path below %s", f, dir)
		}
	}
	if want := ".sub/j.csv csv, a.csv csv, d.ndjson ndjson, e.csv.gz csv.gz, f.parquet parquet, " +
		"sub/g.arrow arrow"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%s, error %v; want %s", strings.Join(got, ", "), err, want)
	}
	for name, want := range map[string]string{
		"h.txt": "csv", "i": "csv", "f.parquet": "parquet", ".b.csv": "csv",
		"c.csv.rejects.ndjson": "ndjson", "e.csv.gz": "csv.gz",
	} {
		if f, err := Walk(filepath.Join(dir, name)); err != nil || len(f) != 1 || f[0].Name != name ||
			string(f[0].Format) != want || f[0].Path != filepath.Join(dir, name) {
			t.Errorf("%s: %v, error %v; want that file alone, with format %s", name, f, err, want)
		}
	}
	fixture.Write(t, filepath.Join(dir, "bad", "x.parquet.gz"), "")
	fixture.Write(t, filepath.Join(dir, "none", "x.txt"), "")
	if err := syscall.Mkfifo(filepath.Join(dir, "none", "pipe.csv"), 0o600); err != nil {
		t.Fatalf("syscall.Mkfifo: %v, want no error", err)
	}
	for name, want := range map[string]string{
		"bad": "x.parquet.gz: format", "bad/x.parquet.gz": "x.parquet.gz: format", "none": "no .csv, .ndjson",
		"none/pipe.csv": "it is neither a file nor a folder", "nothing": "there is no such file or folder",
	} {
		if f, err := Walk(filepath.Join(dir, name)); err == nil || !fixture.IsInput(err) ||
			!strings.Contains(err.Error(), want) || len(f) != 0 {
			t.Errorf("%s: %v, %v, want %s", name, f, err, want)
		}
	}
}
