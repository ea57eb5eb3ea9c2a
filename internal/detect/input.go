package detect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/dialect"
	"github.com/exoswarm/exoswarm/internal/runinput"
)

// fileID identifies a file across processes and renames.
type fileID struct {
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
	// Head is the SHA-256 of the first HeadBytes bytes, so that a file with the inode of one that
	// was removed is another one.
	Head      string `json:"head,omitempty"`
	HeadBytes int    `json:"head_bytes,omitempty"`
}

// headBytes is the most bytes of a file that identify it.
const headBytes = 1 << 10

// identify returns the identity of a file by its first n bytes.
func identify(f *os.File, n int) (id fileID, err error) {
	info, err := f.Stat()
	if err != nil {
		return id, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, errors.New("this system does not identify files")
	}
	head := make([]byte, n)
	if _, err := f.ReadAt(head, 0); err != nil {
		return id, fmt.Errorf("read the begin of %s: %w", f.Name(), err)
	}
	sum := sha256.Sum256(head)
	return fileID{Device: stat.Dev, Inode: stat.Ino, Head: hex.EncodeToString(sum[:]), HeadBytes: n}, nil
}

// is reports whether a file is the one with an identity.
func (id fileID) is(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Size() < int64(id.HeadBytes) || id.HeadBytes == 0 {
		return false
	}
	now, err := identify(f, id.HeadBytes)
	return err == nil && now == id
}

// position is a place in the input: in a file behind the document at Offset and Skip records after
// that. The zero position is the begin of a file.
type position struct {
	File    fileID `json:"file,omitzero"`
	Header  int    `json:"header,omitempty"` // bytes of the header of a CSV file
	Offset  int64  `json:"offset"`           // bytes
	Skip    int    `json:"skip,omitempty"`   // records, rejected ones too
	Records uint64 `json:"records"`          // of the file up to here
	Local   string `json:"local,omitempty"`  // what rows.LocalTimes knew at Offset
}

// tail reads a file from an offset. With follow it waits at the end of the file for more, until the
// name of the file belongs to another file, or the file is cut off.
type tail struct {
	ctx    context.Context //nolint:containedctx // Read has none, and the tail lives as long as the context
	f      *os.File
	path   string
	follow bool
	at     int64
	moved  bool // the name belongs to another file
}

// pollEvery is the time between two looks at a file that may grow.
const pollEvery = 5 * time.Millisecond

// Read implements io.Reader. io.EOF is the end of the file, or of ctx.
func (t *tail) Read(p []byte) (int, error) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	<-wait.C
	for {
		if t.ctx.Err() != nil {
			return 0, io.EOF
		}
		n, err := t.f.ReadAt(p, t.at)
		if n > 0 {
			t.at += int64(n)
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if !t.follow || t.moved {
			return 0, io.EOF
		}
		own, err := t.f.Stat()
		if err != nil {
			return 0, err
		}
		if own.Size() < t.at { // it was cut off, and begins again
			return 0, io.EOF
		}
		// A writer may add to a file that it has renamed, so the end is looked at once more.
		if now, err := os.Stat(t.path); err == nil && !os.SameFile(own, now) {
			t.moved = true
		}
		wait.Reset(pollEvery)
		select {
		case <-wait.C:
		case <-t.ctx.Done():
		}
	}
}

// input yields the documents of a stream, a file, or a file with its successors. One goroutine uses
// it, and closes it.
type input struct {
	o    *Options
	csv  dialect.CSV
	path string   // of a file that is followed; empty for a stream
	file *os.File // nil for a stream, which has no positions
	name string
	live *runinput.Live
	at   position // behind the last document
	any  bool     // a document of the file was read

	arrivals []runinput.Arrival // of the last document
}

// document is a piece of the input of whole records, with the header of its file.
type document struct {
	text   []byte
	name   string
	format rows.Format
	begin  position // without Skip: of its first record
	end    position
	header bool // text begins with the header of its file
	// arrivals say when its parts were read, in order.
	arrivals []runinput.Arrival
}

// clock tells when the records of a document arrived.
type clock struct {
	text     []byte
	at       int // byte behind the last record
	arrivals []runinput.Arrival
}

// next returns when the next line arrived. A record with line ends in quotes counts as several
// lines, so the times of the records behind it are those of earlier ones.
func (c *clock) next() time.Time {
	if n := bytes.IndexByte(c.text[c.at:], '\n'); n >= 0 {
		c.at += n + 1
	}
	for len(c.arrivals) > 1 && c.arrivals[0].End < c.at {
		c.arrivals = c.arrivals[1:]
	}
	if len(c.arrivals) == 0 {
		return time.Now()
	}
	return c.arrivals[0].At
}

// openInput opens the input at a position: standard input, or the file to follow. A regular file
// goes on behind the position if it is the file of the position. A file that is followed may have
// another name now, in the same folder.
func openInput(ctx context.Context, o *Options, csv dialect.CSV, at position) (in *input, err error) {
	in = &input{o: o, csv: csv, path: o.Follow, name: "stdin"}
	if in.path == "" {
		f, ok := o.In.(*os.File)
		if info, err := fileInfo(f, ok); err != nil || !info.Mode().IsRegular() {
			live, _, err := runinput.OpenLive(ctx, []string{"-"}, o.In, csv)
			if err == nil && live == nil {
				err = command.Usage("detect: standard input is neither plain CSV nor NDJSON: use exoswarm run for it")
			}
			in.live = live
			return in, err
		}
		return in, in.begin(ctx, f, at)
	}
	in.name = filepath.Base(in.path)
	f, err := os.Open(in.path)
	if err != nil {
		return nil, command.Usage("detect: --follow: %v", err)
	}
	if at.File.HeadBytes > 0 && !at.File.is(f) {
		if old := in.renamed(at.File); old != nil {
			_ = f.Close()
			f = old
		}
	}
	return in, in.begin(ctx, f, at)
}

// fileInfo returns the information of a file, if there is one.
func fileInfo(f *os.File, ok bool) (os.FileInfo, error) {
	if !ok || f == nil {
		return nil, os.ErrInvalid
	}
	return f.Stat()
}

// renamed returns the open file with an identity in the folder of the file that is followed, or
// nil.
func (in *input) renamed(id fileID) *os.File {
	entries, _ := os.ReadDir(filepath.Dir(in.path))
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if f, err := os.Open(filepath.Join(filepath.Dir(in.path), e.Name())); err == nil {
			if id.is(f) {
				return f
			}
			_ = f.Close()
		}
	}
	return nil
}

// begin begins to read a file, at a position if that is of this file. It owns the file.
func (in *input) begin(ctx context.Context, f *os.File, at position) error {
	in.file, in.at, in.any = f, position{}, false
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	if at.File.is(f) && info.Size() >= at.Offset {
		in.at = at
	}
	t := &tail{ctx: ctx, f: f, path: in.path, follow: in.path != "", at: in.at.Offset}
	head := make([]byte, max(in.at.Header, 8))
	var n int
	for {
		if n, err = f.ReadAt(head, 0); n > 0 || !t.follow || ctx.Err() != nil {
			break
		}
		select { // a file that is empty so far
		case <-time.After(pollEvery):
		case <-ctx.Done():
		}
	}
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	if rows.IsUTF16(head[:n]) {
		return command.Usage("detect: %s is UTF-16, which is not read as it grows: save it as UTF-8", in.name)
	}
	format, known := rows.FormatOf(in.name, "")
	if !known {
		format = runinput.Format(head[:n])
	}
	if format != "csv" && format != "ndjson" {
		return command.Usage("detect: %s is %s: only plain CSV and NDJSON are read as they grow: use exoswarm run "+
			"for it", in.name, format)
	}
	var from io.Reader = t
	if in.at.Offset > 0 {
		from = io.MultiReader(bytes.NewReader(head[:in.at.Header]), t)
	}
	in.live = runinput.Cut(in.name, format, in.csv, from)
	return nil
}

// next returns the next document; io.EOF at the end of the input, or of ctx. n is the number of the
// document in its file, from 1.
func (in *input) next(ctx context.Context, n *uint64) (document, error) {
	for {
		if ctx.Err() != nil {
			return document{}, io.EOF
		}
		answer := in.live.Answer(*n)
		if ctx.Err() != nil { // the last record may be half of one
			return document{}, io.EOF
		}
		switch string(answer[:min(len(answer), len(source.InputDocument))]) {
		case source.InputWait:
			continue
		case source.InputEnd:
			if err := in.live.Close(); err != nil {
				return document{}, fmt.Errorf("read %s: %w", in.name, err)
			}
			if in.path == "" {
				return document{}, io.EOF
			}
			if err := in.successor(ctx); err != nil {
				return document{}, err
			}
			*n = 1
			continue
		}
		doc := document{
			text: answer[len(source.InputDocument):], name: in.name, format: in.live.Source().Format, begin: in.at,
		}
		in.arrivals = in.live.Arrivals(in.arrivals[:0])
		doc.arrivals = in.arrivals
		header := in.live.Header()
		doc.header = header > 0
		size := len(doc.text)
		if *n > 1 || in.at.Offset > 0 {
			size -= header
		}
		*n++
		if in.file == nil {
			return doc, nil
		}
		in.at.Offset += int64(size)
		in.at.Header = in.live.Header()
		in.at.Skip = 0
		if in.at.File.HeadBytes < headBytes {
			var err error
			if in.at.File, err = identify(in.file, int(min(in.at.Offset, headBytes))); err != nil {
				return doc, err
			}
		}
		doc.begin.File, doc.begin.Header = in.at.File, in.at.Header
		doc.end = in.at
		return doc, nil
	}
}

// successor opens the file that has the name of the one that is followed.
func (in *input) successor(ctx context.Context) error {
	_ = in.file.Close()
	for {
		f, err := os.Open(in.path)
		if err == nil {
			return in.begin(ctx, f, position{})
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("follow %s: %w", in.path, err)
		}
		select { // between two files
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return io.EOF
		}
	}
}

// close ends the reading.
func (in *input) close() {
	_ = in.live.Close()
	if in.path != "" && in.file != nil {
		_ = in.file.Close()
	}
}
