package run

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/exoswarm/exoswarm/internal/app/command"
)

// place is a file that grows, or a stream. The zero value takes nothing.
type place struct {
	flag   string
	w      io.Writer // nil for none
	file   *os.File  // nil for a stream
	own    bool      // the file is to be closed
	size   int64     // of the file
	window           // before size
	id     fileMark  // of the file, for its inode
}

// openPlace opens a file, or out for an empty path or -. A file that holds what was noted last is
// cut off there, and any other file is only added to.
func openPlace(flag, path string, out io.Writer, last fileMark) (p place, err error) {
	p = place{flag: flag, w: out}
	if path != "" && path != "-" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
		if err != nil {
			return p, command.Usage("detect: %s: %v", flag, err)
		}
		p.w, p.file, p.own = f, f, true
	} else if f, ok := out.(*os.File); ok {
		p.file = f
	}
	if p.file == nil {
		return p, nil
	}
	info, err := p.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		p.file = nil
		return p, nil //nolint:nilerr // it is written as a stream
	}
	if p.id, err = statFile(info); err != nil {
		return p, err
	}
	p.id.Modified = 0
	// Standard output may be for writing alone.
	read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()))
	if err != nil {
		read = p.file
	} else {
		defer read.Close()
	}
	if last != (fileMark{}) && last.sameInode(p.id) && info.Size() > last.Bytes && last.in(read, p.id) {
		if err := p.file.Truncate(last.Bytes); err != nil {
			return p, command.Usage("detect: %s: %v", flag, err)
		}
	}
	if p.size, err = p.file.Seek(0, io.SeekEnd); err != nil {
		return p, fmt.Errorf("detect: %s: %w", flag, err)
	}
	if p.window, err = readWindow(read, p.size); err != nil {
		return p, fmt.Errorf("detect: %s: %w", flag, err)
	}
	return p, nil
}

// Write implements io.Writer. It counts what a file takes.
func (p *place) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.size += int64(n)
	p.add(b[:n])
	if err != nil {
		err = fmt.Errorf("detect: %s: %w", p.flag, err)
	}
	return n, err
}

// mark marks what the file has; the zero mark for a stream.
func (p *place) mark() fileMark {
	if p.file == nil {
		return fileMark{}
	}
	m := p.id
	m.Bytes, m.Digest = p.size, p.digest()
	return m
}

func (p *place) sync() error {
	if p.file == nil {
		return nil
	}
	if err := p.file.Sync(); err != nil {
		return fmt.Errorf("detect: %s: %w", p.flag, err)
	}
	return nil
}

// close closes a file that openPlace has opened.
func (p *place) close() error {
	if f, ok := p.w.(*os.File); ok && p.own {
		return f.Close()
	}
	return nil
}

func incidentFormat(path string) (string, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".ndjson", ".jsonl":
		return "ndjson", nil
	case ".csv":
		return "csv", nil
	}
	return "", command.Usage("detect: --anomalies %s: incidents are NDJSON or CSV: name a file that ends with .ndjson "+
		"or .csv", path)
}

// skipFirst leaves the first write out: the header of a file that has one.
type skipFirst struct {
	w    io.Writer
	done bool
}

// Write implements io.Writer.
func (s *skipFirst) Write(b []byte) (int, error) {
	if !s.done {
		s.done = true
		return len(b), nil
	}
	return s.w.Write(b)
}
