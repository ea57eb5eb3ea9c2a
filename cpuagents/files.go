package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/binding"
	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// Objects is the store for bytes that travel through the queue.
type Objects interface {
	PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
	Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error)
}

// Files opens what jobs name by URI, and nothing else:
//
//	file:ROOT/PATH     PATH below the folder that this agent knows as ROOT
//	object:NAME        an object in the queue's store
//
// A job never carries a path of a machine: ROOT is a name that the agent's operator gave a folder, and no PATH leads out
// of it, not by .. and not by a link.
//
// Folders and objects are a tenant's own: For returns what the jobs of one may open.
type Files struct {
	of       jobs.Owner // whose they are
	roots    map[Root]*os.Root
	objects  Objects
	scratch  string
	unpacked int64
	memory   *inputmem.Memory
	state    *scratchState // shared by the Files of all owners
}

// FilesOptions configure NewFiles.
type FilesOptions struct {
	// Roots are the folders that jobs may read and write.
	Roots map[Root]string
	// Objects is the queue's store; nil for an agent without one.
	Objects Objects
	// Scratch is the folder for temporary files; os.TempDir when empty.
	Scratch string
	// Unpacked bounds the contents of one packed file in bytes; 0 means 64 GiB.
	Unpacked int64
	// Memory bounds what sources take while they are decoded; nil for no limit.
	Memory *inputmem.Memory
}

// defaultUnpacked is a day of a thousand rows a second, ten times over: more is rather a bomb than a source.
const defaultUnpacked = 64 << 30

// Root is the name of a folder, for the jobs of a tenant. Without a tenant it is for jobs without one, with EveryTenant for all jobs.
type Root struct{ Tenant, Name string }

// ParseRoots reads NAME=DIR or tenant=TENANT,name=NAME,path=DIR, as operators write the folders that jobs may read and write.
func ParseRoots(list []string) (map[Root]string, error) {
	roots := map[Root]string{}
	bad := func(text string) error {
		return jobs.Errorf(jobs.CodeInvalid, "--root %q: write NAME=DIR, or tenant=TENANT,name=NAME,path=DIR for the jobs of a tenant, with a name of letters, digits, '-' and '_'", text)
	}
	for _, text := range list {
		root, dir := Root{}, ""
		if b, rest, ok := binding.Cut(text); ok {
			name, path, is := strings.Cut(rest, ",path=")
			if name, is2 := strings.CutPrefix(name, "name="); is && is2 {
				root, dir = Root{b, name}, path
			}
		} else {
			root.Name, dir, _ = strings.Cut(text, "=")
		}
		if root.Tenant != "" && binding.Check(root.Tenant) != nil || jobs.CheckID("root", root.Name) != nil || dir == "" {
			return nil, bad(text)
		}
		roots[root] = dir
	}
	return roots, nil
}

// For returns what the jobs of an owner may open. It shares the folders: only the original is closed.
func (f *Files) For(of jobs.Owner) *Files {
	own := *f
	own.of = of
	return &own
}

// root finds the folder that the owner's jobs know by a name: that of its tenant before that of all.
func (f *Files) root(name string) *os.Root {
	tenant := f.of.Tenant
	if f.of.Shared() {
		tenant = ""
	}
	if r := f.roots[Root{tenant, name}]; r != nil {
		return r
	}
	return f.roots[Root{binding.Every, name}]
}

// NewFiles opens the folders. The caller closes the result.
func NewFiles(o FilesOptions) (*Files, error) {
	f := &Files{roots: map[Root]*os.Root{}, objects: o.Objects, scratch: o.Scratch, unpacked: o.Unpacked, memory: o.Memory, state: &scratchState{}}
	if f.scratch == "" {
		f.scratch = os.TempDir()
	}
	if f.unpacked == 0 {
		f.unpacked = defaultUnpacked
	}
	for name, dir := range o.Roots {
		r, err := os.OpenRoot(dir)
		if err != nil {
			_ = f.Close()
			return nil, fault.IO("open folder", dir, err)
		}
		f.roots[name] = r
	}
	return f, nil
}

// Close closes the folders. A second call does nothing.
func (f *Files) Close() error {
	var errs []error
	for _, r := range f.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

func (f *Files) resolve(uri string) (root *os.Root, name, object string, err error) {
	scheme, rest, _ := strings.Cut(uri, ":")
	switch scheme {
	case "object":
		if f.objects == nil || rest == "" {
			return nil, "", "", fault.Input("%s: this agent has no object store", uri)
		}
		return nil, "", rest, nil
	case "file":
		name, p, ok := strings.Cut(rest, "/")
		root := f.root(name)
		if !ok || root == nil {
			flag := name + "=DIR"
			if !f.of.Shared() {
				flag = "tenant=" + f.of.Tenant + ",name=" + name + ",path=DIR"
			}
			return nil, "", "", fault.Input("%s: this agent knows no folder by that name for this job: start it with --root %s", uri, flag)
		}
		return root, p, "", nil
	}
	return nil, "", "", fault.Input("%s: a source or sink is file:ROOT/PATH or object:NAME", uri)
}

// open opens a source for reading.
func (f *Files) open(ctx context.Context, uri string) (*os.File, error) {
	root, name, object, err := f.resolve(uri)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return f.fetch(ctx, uri, object)
	}
	file, err := openBelow(root, name)
	if err != nil {
		return nil, fault.IO("open", name, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, fault.Input("open %s: it is not a regular file", name)
	}
	return file, nil
}

// openBelow opens a file for reading. It does not wait: not even for somebody to write into a named pipe.
func openBelow(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// fetch copies an object into a temporary file and opens that: an object is read as fast as it comes, because its reader
// on the queue does not wait for a consumer that has to.
func (f *Files) fetch(ctx context.Context, uri, object string) (_ *os.File, err error) {
	r, err := f.objects.Object(ctx, object, f.of)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, fault.Input("%s: there is no such object", uri)
	}
	if err != nil {
		return nil, jobs.Retry(err)
	}
	defer r.Close()
	tmp, err := f.spool()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
		}
	}()
	if _, err = io.Copy(writeOnly{tmp, f.scratch}, r); err != nil {
		if fault.Classified(err) {
			return nil, err
		}
		return nil, jobs.Retry(fmt.Errorf("fetch %s: %w", uri, err))
	}
	if _, err = tmp.Seek(0, io.SeekStart); err != nil {
		return nil, scratchError("read back a temporary file in", f.scratch, err)
	}
	return tmp, nil
}

// writeOnly tells a failure to write from a failure to read in a copy.
type writeOnly struct {
	w   io.Writer
	dir string
}

func (w writeOnly) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		err = scratchError("write a temporary file in", w.dir, err)
	}
	return n, err
}

// output is a sink that appears complete or not at all: what is written becomes visible under its name with commit.
type output struct {
	io.Writer
	commit func() error
	abort  func() // after commit it does nothing
}

// partOf is where a file is written until it is complete: a name of its own, since an attempt of a job that was given up for lost may still write. Those
// of earlier attempts are removed, so that they never take its place.
func partOf(root *os.Root, name string) (string, error) {
	dir, prefix := path.Dir(name), "."+path.Base(name)+"."
	folder, err := root.Open(dir)
	if err != nil {
		return "", fault.IO("write", name, err)
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(1000)
		for _, n := range names {
			stamp, is := strings.CutSuffix(strings.TrimPrefix(n, prefix), ".part")
			if _, err := strconv.ParseUint(stamp, 10, 64); is && err == nil && strings.HasPrefix(n, prefix) {
				_ = root.Remove(path.Join(dir, n))
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fault.IO("write", name, err)
		}
	}
	return path.Join(dir, prefix+strconv.FormatInt(time.Now().UnixNano(), 10)+".part"), nil
}

// target returns the file that is to be written where a name may be a link: what is behind it, below the root. What is neither a
// regular file nor missing is refused, since it would be replaced.
func target(root *os.Root, name string) (string, error) {
	for range maxLinks {
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", fault.IO("write", name, err)
		case info.Mode().IsRegular():
			return name, nil
		case info.IsDir():
			return "", fault.Input("write %s: it is a folder: name a file", name)
		case info.Mode()&fs.ModeSymlink == 0:
			return "", fault.Input("write %s: it is not a regular file, and is not replaced: name another", name)
		}
		to, err := root.Readlink(name)
		if err != nil {
			return "", fault.IO("write", name, err)
		}
		if path.IsAbs(to) {
			return "", fault.Input("write %s: it is a link to %s, out of the agent's folder: name another", name, to)
		}
		name = path.Join(path.Dir(name), to)
	}
	return "", fault.Input("write %s: too many symbolic links: name another file", name)
}

// maxLinks is how many symbolic links are followed, as by Linux.
const maxLinks = 40

// create opens a sink for writing. A file is written beside its place and renamed, also where a link leads to it; an object is collected in a temporary
// file first, because the store takes it in one go.
func (f *Files) create(ctx context.Context, uri string) (*output, error) {
	root, name, object, err := f.resolve(uri)
	if err != nil {
		return nil, err
	}
	if root == nil {
		tmp, err := os.CreateTemp(f.scratch, "exoswarm-*")
		if err != nil {
			return nil, scratchError("create a temporary file in", f.scratch, err)
		}
		done := func() { _ = tmp.Close(); _ = os.Remove(tmp.Name()) }
		return &output{Writer: writeOnly{tmp, f.scratch}, abort: done, commit: func() error {
			defer done()
			if _, err := tmp.Seek(0, io.SeekStart); err != nil {
				return fault.IO("read back", tmp.Name(), err)
			}
			_, err := f.objects.PutObject(ctx, object, f.of, tmp)
			return err
		}}, nil
	}
	if name, err = target(root, name); err != nil {
		return nil, err
	}
	part, err := partOf(root, name)
	if err != nil {
		return nil, err
	}
	file, err := root.Create(part)
	if err != nil {
		return nil, fault.IO("write", name, err)
	}
	closed := false
	return &output{
		Writer: file,
		commit: func() error {
			closed = true
			err := file.Sync()
			if cerr := file.Close(); err == nil {
				err = cerr
			}
			if err == nil {
				err = root.Rename(part, name)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("write %s: a later attempt of the job writes it: %w", name, jobs.ErrFenced)
			}
			if err != nil {
				_ = root.Remove(part)
				return fault.IO("write", name, err)
			}
			return nil
		},
		abort: func() {
			if !closed {
				closed = true
				_ = file.Close()
				_ = root.Remove(part)
			}
		},
	}, nil
}

// spool opens a temporary file that is gone when it is closed.
func (f *Files) spool() (*os.File, error) {
	tmp, err := os.CreateTemp(f.scratch, "exoswarm-spool-*")
	if err != nil {
		return nil, scratchError("create a temporary file in", f.scratch, err)
	}
	if err := os.Remove(tmp.Name()); err != nil { // unlinked now, so that not even a kill -9 leaves it behind
		_ = tmp.Close()
		return nil, scratchError("create a temporary file in", f.scratch, err)
	}
	return tmp, nil
}

// RejectsSuffix ends the name of a list of rejects that a run has left beside its output.
const RejectsSuffix = ".rejects.ndjson"

// Walk finds the files that a user's path means: the file itself under its own name, or every file below a folder whose
// extension stands for a format, under its path from there, in order. The names use slashes. A file whose name begins with a
// dot is not one of them: so are called those that are being written. Nor is one that ends with RejectsSuffix.
func Walk(p string) (files []Found, err error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, fault.IO("input", p, err)
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, fault.Input("input %s: it is neither a file nor a folder", p)
		}
		format, _ := rows.FormatOf(p, "csv")
		if err := format.Check(); err != nil {
			return nil, fault.Input("input %s: %v", p, err)
		}
		return []Found{{Name: filepath.Base(p), Path: p, Format: format}}, nil
	}
	err = filepath.WalkDir(p, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return fault.IO("input", file, err)
		}
		format, known := rows.FormatOf(file, "")
		if !d.Type().IsRegular() || !known || strings.HasPrefix(d.Name(), ".") || strings.HasSuffix(d.Name(), RejectsSuffix) {
			return nil
		}
		if err := format.Check(); err != nil {
			return fault.Input("input %s: %v", file, err)
		}
		rel, err := filepath.Rel(p, file)
		if err != nil {
			return fmt.Errorf("input %s: %w", file, err)
		}
		files = append(files, Found{Name: filepath.ToSlash(rel), Path: file, Format: format})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fault.Input("input %s: no .csv, .ndjson, .jsonl, .parquet, .pq, .arrow, .arrows or .feather file, also with .gz or .zst behind it, in this folder or below it", p)
	}
	return files, err
}

// Found is a file that Walk found.
type Found struct {
	Name   string // the series
	Path   string
	Format rows.Format
}
