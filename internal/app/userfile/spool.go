package userfile

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
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// Spooled has the paths of inputs after Spool: each stream is replaced by a file with its content.
type Spooled struct {
	Paths []string
	// Interrupted reports that the context ended before a stream did: its file has the bytes until
	// then.
	Interrupted bool
	dir         string // of the files; empty for none
}

// Close removes the files of Spool.
func (s *Spooled) Close() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Spool copies standard input (-), FIFOs and descriptors into files, because a second attempt at a
// job reads its sources again. When ctx ends, the bytes until then are the input. The caller closes
// the result, also when an error is returned.
func Spool(ctx context.Context, paths []string, stdin io.Reader) (s *Spooled, err error) {
	s = &Spooled{}
	for _, p := range paths {
		std := IsStdin(p)
		if !std && !isStream(p) {
			s.Paths = append(s.Paths, p)
			continue
		}
		// The folder is made for the first stream: most runs have none.
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
			stdin = nil // a second name of standard input is an error
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
		s.Paths = append(s.Paths, path)
	}
	return s, nil
}

// errTwice is the error for standard input as two inputs: the second would be empty.
var errTwice = errors.New("standard input is named twice")

// isStream reports whether a path is a FIFO, device or descriptor, which can be read only once.
func isStream(path string) bool {
	if IsDescriptor(path) {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// openSource opens a file, FIFO or descriptor. The open of a FIFO waits for its writer, or for ctx.
func openSource(ctx context.Context, path string) (*os.File, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	flags := os.O_RDONLY
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 && !IsDescriptor(path) {
		// Opening it for writing too would not wait, but then its end would never be seen.
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

// copy copies a stream to its end, or until ctx ends, into a file of the folder. The extension of
// the file names the format.
func (s *Spooled) copy(ctx context.Context, from io.Reader, name string) (string, error) {
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
	to := &gate{to: tmp}
	go func() { // it ends with its source, or with the process
		head, _ := in.Peek(8)
		ext := sniff(head)
		_, err := io.Copy(to, in)
		done <- result{ext, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		s.Interrupted = true
		if c, is := from.(io.Closer); is {
			_ = c.Close()
		}
		select {
		case <-done: // what was read is written
		case <-time.After(closeWait): // a terminal is read on
		}
		to.close()
		head := make([]byte, 8)
		n, _ := tmp.ReadAt(head, 0)
		r = result{ext: sniff(head[:n])}
		if err := cutLast(tmp, r.ext); err != nil {
			return "", err
		}
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

// closeWait bounds the wait for the end of a stream that was closed.
const closeWait = 200 * time.Millisecond

// gate is a writer until it is closed.
type gate struct {
	mu sync.Mutex
	to io.Writer // nil: closed
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to == nil {
		return 0, os.ErrClosed
	}
	return g.to.Write(p)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to = nil
}

// cutLast removes the last record of a file of CSV or NDJSON if it has no end: its writer was
// stopped in the middle of it.
func cutLast(f *os.File, ext string) error {
	if ext != ".csv" && ext != ".ndjson" {
		return nil
	}
	r := records{csv: ext == ".csv", comma: ','}
	end, buf := int64(0), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := f.ReadAt(buf, at)
		r.scan(buf[:n])
		if last := r.before(r.read); last > 0 {
			end = at - int64(r.read-n) + int64(last)
			r.drop(last)
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return f.Truncate(end)
		}
		if err != nil {
			return err
		}
	}
}

// sniff returns the extension for the first bytes of a stream. Text that begins no JSON object is
// CSV.
func sniff(head []byte) string {
	head, _ = io.ReadAll(rows.Text(bytes.NewReader(head)))
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
