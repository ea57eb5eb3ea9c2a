package userfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// place is a file or stream that a user named for output: a regular file, which appears complete or
// not at all, or a stream (standard output, a FIFO, a device), which is written to. Nothing but a
// regular file is ever replaced.
type place struct {
	name string // as the user wrote it
	file string // the regular file, after symbolic links; empty for a stream
}

// maxLinks bounds the symbolic links that newPlace follows, as Linux does.
const maxLinks = 40

// newPlace returns the place that the value of a flag names. It follows symbolic links, also one to
// a file that does not exist yet, and checks that the folder of a file takes new files.
func newPlace(flag, name string) (p place, err error) {
	p.name = name
	if p.stdout() || IsDescriptor(name) {
		return p, nil
	}
	path := name
	for range maxLinks {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return place{name, path}, writable(flag, name, path)
		case err != nil:
			return p, command.Usage("%s %s: %v: choose another place", flag, name, errors.Unwrap(err))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return p, command.Usage("%s %s: %v: choose another place", flag, name, err)
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(path), to)
			}
			if path = to; IsStdout(path) || IsDescriptor(path) {
				return place{name: path}, nil
			}
			continue
		case info.IsDir():
			return p, command.Usage("%s %s: it is a folder: name a file", flag, name)
		case info.Mode().IsRegular():
			return place{name, path}, writable(flag, name, path)
		case info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice) != 0:
			return place{name: path}, nil
		}
		return p, command.Usage("%s %s: it is neither a file, nor a FIFO, nor a device: choose another place", flag,
			name)
	}
	return p, command.Usage("%s %s: too many symbolic links: choose another place", flag, name)
}

// writable returns an error when the folder of a file does not take new files.
func writable(flag, name, path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return command.Usage("%s %s: folder %s does not exist: make it first", flag, name, dir)
	case !info.IsDir():
		return command.Usage("%s %s: %s is not a folder", flag, name, dir)
	}
	// Permissions alone do not say it: a file system may be mounted read-only.
	probe, err := os.CreateTemp(dir, ".exoswarm-*")
	if err != nil {
		return command.Usage("%s %s: %v: choose another place", flag, name, errors.Unwrap(err))
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	return nil
}

// stream reports whether the place is a stream, which is written to and never replaced.
func (p place) stream() bool { return p.file == "" }

func (p place) stdout() bool { return IsStdout(p.name) }

func (p place) title() string {
	if p.stdout() {
		return "standard output"
	}
	return p.name
}

// fill calls write with a writer to the place. ctx bounds the wait for the reader of a FIFO. A
// reader that closes its end early is no error.
func (p place) fill(ctx context.Context, stdout io.Writer, write func(io.Writer) error) error {
	if !p.stream() {
		return WriteFile(p.file, write)
	}
	w, done := stdout, func() error { return nil }
	if !p.stdout() {
		f, err := openStream(ctx, p.name)
		if err != nil {
			return err
		}
		w, done = f, f.Close
	}
	err := write(w)
	if cerr := done(); err == nil {
		err = cerr
	}
	if errors.Is(err, syscall.EPIPE) { // the reader has closed its end
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.name, err)
	}
	return nil
}

// openStream opens a FIFO, device or descriptor for writing. It tries a FIFO again until it has a
// reader, or ctx ends.
func openStream(ctx context.Context, name string) (*os.File, error) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.ENXIO) {
			return nil, command.Usage("write %s: %v: choose another place", name, errors.Unwrap(err))
		}
		select {
		case <-ctx.Done():
			return nil, command.Usage("write %s: nobody reads this FIFO: start its reader first", name)
		case <-again.C:
		}
	}
}

// WriteFile writes a regular file, which appears complete and durable when fill has succeeded, or
// not at all. Other errors name the path.
func WriteFile(path string, fill func(io.Writer) error) (err error) {
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	f, err := os.Create(part)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(part)
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err = fill(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(part, path)
}
