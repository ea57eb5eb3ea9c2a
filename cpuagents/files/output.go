package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs"
)

// Output is a file or object that is being written. It appears complete or not at all: Commit makes
// it visible. One goroutine uses it. Write, Commit and Abort are called in this order; Abort may be
// deferred.
type Output struct {
	io.Writer
	commit func() error
	abort  func()
}

// Commit makes the output visible under its name, after a file is synced to its disk. It is called
// once. After an error the former content of that name is unchanged. jobs.ErrFenced means that a
// later attempt writes the output.
func (o *Output) Commit() error { return o.commit() }

// Abort discards the output. After Commit it does nothing. A file leaves no part behind.
func (o *Output) Abort() { o.abort() }

// partOf returns the name under which a file is written until it is complete. Each call has a new
// name, since an attempt of a job that was given up for lost may still write. The parts of earlier
// attempts are removed, so that they never replace the file.
func partOf(root *os.Root, name string) (string, error) {
	dir, prefix := path.Dir(name), "."+path.Base(name)+"."
	folder, err := root.Open(dir)
	if err != nil {
		return "", access.IOError("write", name, err)
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
			return "", access.IOError("write", name, err)
		}
	}
	return path.Join(dir, prefix+strconv.FormatInt(time.Now().UnixNano(), 10)+".part"), nil
}

// target returns the file to write for a name: the name itself, or the file that a link of that
// name leads to, below the root. Anything but a regular file or a missing one is refused, since it
// would be replaced.
func target(root *os.Root, name string) (string, error) {
	for range maxLinks {
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", access.IOError("write", name, err)
		case info.Mode().IsRegular():
			return name, nil
		case info.IsDir():
			return "", access.InputError("write %s: it is a folder: name a file", name)
		case info.Mode()&fs.ModeSymlink == 0:
			return "", access.InputError("write %s: it is not a regular file, and is not replaced: name another", name)
		}
		to, err := root.Readlink(name)
		if err != nil {
			return "", access.IOError("write", name, err)
		}
		if path.IsAbs(to) {
			return "", access.InputError(
				"write %s: it is a link to %s, out of the agent's folder: name another",
				name,
				to,
			)
		}
		name = path.Join(path.Dir(name), to)
	}
	return "", access.InputError("write %s: too many symbolic links: name another file", name)
}

// maxLinks is the number of symbolic links that are followed, as by Linux.
const maxLinks = 40

// Create begins an output at a URI. A file is written under a temporary name and renamed by Commit.
// An object is collected in a temporary file first, because the store takes it as a whole. The
// caller calls Abort after Commit too. ctx must live until Commit has returned. One attempt of a
// job writes an output at a time; a later attempt takes the name from an earlier one.
func (f *Files) Create(ctx context.Context, uri string) (*Output, error) {
	root, name, object, err := f.Resolve(uri)
	if err != nil {
		return nil, err
	}
	if root == nil {
		tmp, err := os.CreateTemp(f.scratch, "exoswarm-*")
		if err != nil {
			return nil, ScratchError("create a temporary file in", f.scratch, err)
		}
		done := func() { _ = tmp.Close(); _ = os.Remove(tmp.Name()) }
		return &Output{Writer: writeOnly{tmp, f.scratch}, abort: done, commit: func() error {
			defer done()
			if _, err := tmp.Seek(0, io.SeekStart); err != nil {
				return access.IOError("read back", tmp.Name(), err)
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
		return nil, access.IOError("write", name, err)
	}
	closed := false
	return &Output{
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
				return access.IOError("write", name, err)
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
