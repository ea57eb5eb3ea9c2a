package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/internal/command"
)

// place is where a run puts a file for its user: a regular file, which appears complete or not at
// all, or a stream (standard output, a FIFO, a device), which is written to. Nothing that is not a
// regular file is ever replaced.
type place struct {
	name string // as the user wrote it
	file string // the regular file, behind links; empty for a stream
}

// stdoutNames are the names of standard output.
var stdoutNames = map[string]bool{"-": true, "/dev/stdout": true, "/dev/fd/1": true, "/proc/self/fd/1": true}

// isDescriptor reports whether a path names an open file of this process.
func isDescriptor(path string) bool {
	return path == "/dev/stdin" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") ||
		strings.HasPrefix(path, "/proc/self/fd/")
}

// mostLinks is how many symbolic links are followed, as by Linux.
const mostLinks = 40

// newPlace looks at what a flag names. It follows links, also one to a file that does not exist
// yet.
func newPlace(flag, name string) (p place, err error) {
	p.name = name
	if p.stdout() || isDescriptor(name) {
		return p, nil
	}
	path := name
	for range mostLinks {
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
			if path = to; stdoutNames[path] || isDescriptor(path) {
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

// writable checks that the folder of a file takes new files.
func writable(flag, name, path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return command.Usage("%s %s: folder %s does not exist: make it first", flag, name, dir)
	case !info.IsDir():
		return command.Usage("%s %s: %s is not a folder", flag, name, dir)
	}
	probe, err := os.CreateTemp(dir, ".exoswarm-*")
	if err != nil {
		return command.Usage("%s %s: %v: choose another place", flag, name, errors.Unwrap(err))
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	return nil
}

// stream reports whether the place is written to, in contrast to replaced.
func (p place) stream() bool { return p.file == "" }

func (p place) stdout() bool { return stdoutNames[p.name] }

// title is how messages name the place.
func (p place) title() string {
	if p.stdout() {
		return "standard output"
	}
	return p.name
}

// fill writes the place. ctx bounds the wait for a reader of a FIFO. A reader that has gone away
// has had enough: that is no error.
func (p place) fill(ctx context.Context, stdout io.Writer, write func(io.Writer) error) error {
	if !p.stream() {
		return writeFile(p.file, write)
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
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.name, err)
	}
	return nil
}

// openStream opens a FIFO, device or descriptor for writing. A FIFO has no reader at first: it
// tries until there is one.
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
