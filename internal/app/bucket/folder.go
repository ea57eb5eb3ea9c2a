package bucket

// This file keeps named objects in a folder of this machine. It is apart from package bucket, so
// that a program or a test with such objects alone has no client of an object store.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// Folder is a bucket on this machine's file systems, for snapshots too. An object is written under
// a temporary name, synced and renamed, and its folder is synced. The file driver of gocloud.dev
// syncs neither, and sums up every byte a second time.
type Folder struct{ root *os.Root }

// partial ends the names of objects that are being written.
const partial = ".partial"

// OpenFolder opens a folder, which is made if it is missing. The caller closes it.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of objects: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of objects: %w", err)
	}
	return &Folder{root}, nil
}

// Create implements snapshot.Store.
func (d *Folder) Create(ctx context.Context, name string) (snapshot.Object, error) {
	dir := path.Dir(name)
	if err := d.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	for {
		o := &object{
			ended: func() error { return context.Cause(ctx) }, in: d, name: name,
			beside: name + "." + rand.Text() + partial,
		}
		var err error
		if o.f, err = d.root.OpenFile(o.beside, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err != nil {
			return nil, err
		}
		// The lock marks a file that is being written, and ends with the process. A faster sweep
		// has the lock, and removes the file.
		err = lock(o.f)
		if err == nil {
			return o, nil
		}
		o.Abort()
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("lock %s: %w", o.beside, err)
		}
	}
}

// errLocked says that a file is being written, or swept away.
var errLocked = errors.New("it is locked")

// lock locks a file until it is closed, and does not wait for that.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// sync makes the names in a folder durable.
func (d *Folder) sync(dir string) error {
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type object struct {
	ended        func() error // why writing ends, by the context of Create; nil: it continues
	in           *Folder
	f            *os.File // nil: it has ended
	name, beside string
}

func (o *object) Write(p []byte) (int, error) {
	if err := o.ended(); err != nil {
		return 0, err
	}
	return o.f.Write(p)
}

func (o *object) Commit() error {
	err := o.ended()
	if err == nil {
		err = o.f.Sync()
	}
	err = errors.Join(err, o.f.Close())
	o.f = nil
	if err == nil {
		err = o.in.root.Rename(o.beside, o.name)
	}
	if err != nil {
		_ = o.in.root.Remove(o.beside) // the first error is the one to report
		return err
	}
	return errors.Join(o.in.sync(path.Dir(o.name)), o.in.sync(".")) // the folder may be new
}

func (o *object) Abort() {
	if o.f != nil {
		_ = o.f.Close()
		_ = o.in.root.Remove(o.beside)
		o.f = nil
	}
}

// Open implements snapshot.Store.
func (d *Folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return d.root.Open(name)
}

// Sweep implements snapshot.Store.
func (d *Folder) Sweep(_ context.Context, dir string) error {
	entries, err := d.list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partial) {
			if rerr := d.sweep(path.Join(dir, e.Name())); !errors.Is(rerr, fs.ErrNotExist) &&
				!errors.Is(rerr, errLocked) {
				err = errors.Join(err, rerr)
			}
		}
	}
	return err
}

// sweep removes a file that nobody writes. errLocked means that a writer has it.
func (d *Folder) sweep(name string) error {
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	return d.root.Remove(name)
}

// Folders implements snapshot.Store.
func (d *Folder) Folders(context.Context) (all []string, err error) {
	entries, err := d.list(".")
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all, err
}

func (d *Folder) list(dir string) ([]fs.DirEntry, error) {
	f, err := d.root.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(-1)
	return entries, errors.Join(err, f.Close())
}

// Remove implements bucket.Bucket.
func (d *Folder) Remove(_ context.Context, name string) error {
	err := d.root.Remove(name + "/" + snapshot.ManifestName)
	if err == nil {
		err = d.sync(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	if err := d.root.RemoveAll(name); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Names implements bucket.Bucket. Objects that are being written are not there yet.
func (d *Folder) Names(_ context.Context, dir string) (all []string, err error) {
	entries, err := d.list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() && !strings.HasSuffix(e.Name(), partial) {
			all = append(all, e.Name())
		}
	}
	return all, err
}

// Drop implements bucket.Bucket.
func (d *Folder) Drop(_ context.Context, name string) error {
	err := d.root.Remove(name)
	if err == nil {
		err = d.sync(path.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Close implements bucket.Bucket.
func (d *Folder) Close() error { return d.root.Close() }
