// Package files opens the files and objects that jobs name, and the temporary files of an agent.
//
// A job names a file below a folder that the operator has given (file:ROOT/PATH), or an object of
// the queue's store (object:NAME). Each tenant has folders and objects of its own. Outputs appear
// complete or not at all.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs"
)

// Objects is the queue's store of objects. Each owner has objects of its own. The methods may be
// called concurrently. PutObject stores all of r under a name, and returns its size in bytes. It
// replaces an object of that name as a whole, or fails and leaves it. Object returns
// jobs.ErrNotFound for a missing object; the caller closes the reader.
type Objects interface {
	PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error)
	Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error)
}

// Files opens what jobs name by URI, and nothing else:
//
//	file:ROOT/PATH     PATH below the folder that this agent knows as ROOT
//	object:NAME        an object in the queue's store
//
// A job never has a path of a machine: ROOT is the name that the agent's operator gave to a folder,
// and no PATH leads out of the folder, neither by .. nor by a link.
//
// For returns a view for the jobs of one owner. The methods may be called concurrently.
type Files struct {
	of       jobs.Owner // of the jobs that use this view
	roots    map[Root]*os.Root
	objects  Objects
	scratch  string
	unpacked int64
	memory   *access.Memory
	state    *scratchState // shared by all views
}

// Options configure NewFiles.
type Options struct {
	// Roots are the folders that jobs may read and write.
	Roots map[Root]string
	// Objects is the queue's store; nil for an agent without one.
	Objects Objects
	// Scratch is the folder for temporary files; os.TempDir when empty.
	Scratch string
	// Unpacked bounds the contents of one packed file in bytes; 0 means 64 GiB.
	Unpacked int64
	// Memory bounds what sources take while they are decoded; nil for no limit.
	Memory *access.Memory
}

// defaultUnpacked is ten times a day of a thousand rows a second. A larger file is more likely an
// attack than a source. It is in bytes.
const defaultUnpacked = 64 << 30

// For returns the view for the jobs of an owner. It shares the folders with the original; only the
// original is closed.
func (f *Files) For(of jobs.Owner) *Files {
	own := *f
	own.of = of
	return &own
}

// root returns the folder of a name: the folder of the owner's tenant, else the folder of all
// tenants, else nil. The result belongs to Files.
func (f *Files) root(name string) *os.Root {
	tenant := f.of.Tenant
	if f.of.Shared() {
		tenant = ""
	}
	if r := f.roots[Root{tenant, name}]; r != nil {
		return r
	}
	return f.roots[Root{access.Every, name}]
}

// New opens the folders. The caller closes the result.
func New(o Options) (*Files, error) {
	f := &Files{
		roots:    map[Root]*os.Root{},
		objects:  o.Objects,
		scratch:  o.Scratch,
		unpacked: o.Unpacked,
		memory:   o.Memory,
		state:    &scratchState{},
	}
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
			return nil, access.IOError("open folder", dir, err)
		}
		f.roots[name] = r
	}
	return f, nil
}

// Close closes the folders, for all views. Files that are open remain usable; outputs must be
// committed before. A second call does nothing.
func (f *Files) Close() error {
	var errs []error
	for _, r := range f.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// Resolve returns the root and the path below it of file:ROOT/PATH, or the name of object:NAME, for
// which root is nil. A root or a store that the owner does not have is an error of class
// jobs.CodeInput.
func (f *Files) Resolve(uri string) (root *os.Root, name, object string, err error) {
	scheme, rest, _ := strings.Cut(uri, ":")
	switch scheme {
	case "object":
		if f.objects == nil || rest == "" {
			return nil, "", "", access.InputError("%s: this agent has no object store", uri)
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
			return nil, "", "", access.InputError(
				"%s: this agent knows no folder by that name for this job: start it with --root %s", uri, flag,
			)
		}
		return root, p, "", nil
	}
	return nil, "", "", access.InputError("%s: a source or sink is file:ROOT/PATH or object:NAME", uri)
}

// Open opens a file or an object for reading. The caller closes the file. The file can seek: an
// object is copied to the scratch folder first. An error has a class: a missing file is one of the
// input, a failing queue is marked with jobs.Retry.
func (f *Files) Open(ctx context.Context, uri string) (*os.File, error) {
	root, name, object, err := f.Resolve(uri)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return f.fetch(ctx, uri, object)
	}
	file, err := OpenFile(root, name)
	if err != nil {
		return nil, access.IOError("open", name, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = file.Close()
		return nil, access.InputError("open %s: it is not a regular file", name)
	}
	return file, nil
}

// RealPath returns the path on this machine of a regular file at file:ROOT/PATH, for a library that
// opens files by itself. The file is opened with flags through its root, so no link leads out of
// it, and the path names the file that was found.
func (f *Files) RealPath(uri string, flags int) (string, error) {
	root, name, _, err := f.Resolve(uri)
	if err != nil {
		return "", err
	}
	file, err := root.OpenFile(name, flags|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return "", access.IOError("open", name, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", access.InputError("open %s: it is not a regular file", name)
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return "", fmt.Errorf("find the database: %w", err)
	}
	return real, nil
}

// OpenFile opens a file below a root for reading. It never blocks, also not on a named pipe without
// a writer. The caller checks the kind of the file, and closes it.
func OpenFile(root *os.Root, name string) (*os.File, error) {
	return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// fetch copies an object into a temporary file and opens that. The reader of an object on the queue
// does not wait for a slow consumer, so the object is read as fast as it arrives.
func (f *Files) fetch(ctx context.Context, uri, object string) (_ *os.File, err error) {
	r, err := f.objects.Object(ctx, object, f.of)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, access.InputError(
			"%s: there is no such object: if it went with its job, submit the work again",
			uri,
		)
	}
	if err != nil {
		return nil, jobs.Retry(err)
	}
	defer r.Close()
	tmp, err := f.Spool()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
		}
	}()
	if _, err = io.Copy(writeOnly{tmp, f.scratch}, r); err != nil {
		if access.Classified(err) {
			return nil, err
		}
		return nil, jobs.Retry(fmt.Errorf("fetch %s: %w", uri, err))
	}
	if _, err = tmp.Seek(0, io.SeekStart); err != nil {
		return nil, ScratchError("read back a temporary file in", f.scratch, err)
	}
	return tmp, nil
}
