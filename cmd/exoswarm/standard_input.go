package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/command"
)

// spooled are the inputs of a run with files in place of what can be read only once.
type spooled struct {
	paths       []string
	dir         string // of those files; empty for none
	interrupted bool   // ctx ended the reading
}

func (s *spooled) close() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// spool copies standard input (-), FIFOs and descriptors into files, because an attempt at a job
// that failed reads its sources again. When ctx ends, what was read until then is the input. The
// caller closes the result, also when an error is returned.
func spool(ctx context.Context, paths []string, stdin io.Reader) (s *spooled, err error) {
	s = &spooled{}
	for _, p := range paths {
		std := p == "-" || p == "/dev/stdin" || p == "/dev/fd/0"
		if !std && !once(p) {
			s.paths = append(s.paths, p)
			continue
		}
		if s.dir == "" {
			if s.dir, err = os.MkdirTemp("", "exoswarm-input-"); err != nil {
				return s, fmt.Errorf("temporary folder: %w", err)
			}
		}
		from, name := stdin, "stdin"
		if std {
			if stdin == nil {
				return s, command.Usage("--input %s: %v", p, errTwice)
			}
			stdin = nil
		} else {
			f, err := openSource(ctx, p)
			if err != nil {
				return s, err
			}
			defer f.Close()
			from, name = f, filepath.Base(p)
		}
		path, err := s.copy(ctx, from, name)
		if err != nil {
			return s, fmt.Errorf("read %s: %w", p, err)
		}
		s.paths = append(s.paths, path)
	}
	return s, nil
}

var errTwice = errors.New("standard input is named twice")

// once reports whether a path is a FIFO, device or descriptor.
func once(path string) bool {
	if isDescriptor(path) {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// openSource opens a FIFO without waiting for its writer in a call that ctx cannot end: reads wait
// for it.
func openSource(ctx context.Context, path string) (*os.File, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	flags := os.O_RDONLY
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && !isDescriptor(path) {
		// A FIFO that is open for writing, too, does not end while it has no writer yet. The
		// writer's end is known by its own close.
		type opened struct {
			f   *os.File
			err error
		}
		got := make(chan opened, 1)
		go func() {
			f, err := os.OpenFile(path, flags, 0)
			got <- opened{f, err}
		}()
		select {
		case o := <-got:
			if o.err != nil {
				return nil, command.Usage("input: %v", o.err)
			}
			return o.f, nil
		case <-ctx.Done():
			// A writer that comes and goes at once ends the open above.
			if w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = w.Close()
			}
			if o := <-got; o.f != nil {
				_ = o.f.Close()
			}
			return nil, context.Cause(ctx)
		}
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, command.Usage("input: %v", err)
	}
	return f, nil
}

// copy reads a source to its end, or until ctx ends, into a file whose extension says the format.
func (s *spooled) copy(ctx context.Context, from io.Reader, name string) (string, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	tmp, err := os.CreateTemp(s.dir, ".spool-*")
	if err != nil {
		return "", err
	}
	defer tmp.Close()
	type result struct {
		ext string
		err error
	}
	done := make(chan result, 1)
	go func() { // it ends with its source, or with the process
		head, _ := in.Peek(8)
		ext := sniff(head)
		_, err := io.Copy(tmp, in)
		done <- result{ext, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		s.interrupted = true
		if c, is := from.(io.Closer); is {
			_ = c.Close()
		}
		head := make([]byte, 8)
		n, _ := tmp.ReadAt(head, 0)
		r = result{ext: sniff(head[:n])}
	}
	if r.err != nil && !errors.Is(r.err, os.ErrClosed) {
		return "", r.err
	}
	if _, known := rows.FormatOf(name, ""); !known {
		name += r.ext
	}
	path := filepath.Join(s.dir, name)
	if _, err := os.Lstat(path); err == nil {
		return "", command.Usage("two inputs are called %s", name)
	}
	return path, os.Rename(tmp.Name(), path)
}

// sniff is the extension of what begins so. Text that is no JSON object is CSV.
func sniff(head []byte) string {
	for _, f := range []struct{ magic, ext string }{
		{"PAR1", ".parquet"},
		{"ARROW1", ".arrow"},
		{"\xff\xff\xff\xff", ".arrows"},
		{"\x1f\x8b", ".csv.gz"},
		{"\x28\xb5\x2f\xfd", ".csv.zst"},
		{"{", ".ndjson"},
	} {
		if bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte(f.magic)) {
			return f.ext
		}
	}
	return ".csv"
}
