package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// position is a place in the input: Skip records after the document at Offset of a file. The zero
// position is the start of a file.
type position struct {
	// File marks what was read of the file, which ends at Offset or behind it.
	File   fileMark    `json:"file,omitzero"`
	Format rows.Format `json:"format,omitempty"`
	Header int         `json:"header,omitempty"` // bytes of the header of a CSV file
	// Carried reports that the file has no header: the header of an earlier file counts, see
	// headerFile.
	Carried bool `json:"carried,omitempty"`
	// Copy reports that the file is a copy of one that its writer went on to write after it was
	// truncated.
	Copy    bool   `json:"copy,omitempty"`
	Offset  int64  `json:"offset"`          // bytes
	Skip    int    `json:"skip,omitempty"`  // records, rejected ones too
	Records uint64 `json:"records"`         // of the file up to here
	Local   string `json:"local,omitempty"` // what rows.LocalTimes knew at Offset
}

// input yields the documents of a stream, a file, or a file with its successors. One goroutine uses
// it, and closes it.
type input struct {
	o         *detectOptions
	csv       dialect.CSV
	timestamp string   // name of the column
	path      string   // of a file that is followed; empty for a stream
	file      *os.File // nil for a stream, which has no positions
	name      string
	format    rows.Format
	live      *userfile.Live
	tail      *tail
	id        fileMark  // of the file, for its inode
	at        position  // behind the last document
	window    window    // before at.Offset
	header    []byte    // of the last CSV file that had one
	prefixed  bool      // the stream of live begins with a header that is not at its place in the file
	static    bool      // the file is the contents of a packed one
	fresh     bool      // no document of the file was read
	found     bool      // the file holds the position at which it was opened
	cut       []byte    // the first part of a record that begins in a file before
	split     int       // bytes of it in the first document, before the bytes of the file
	before    position  // of that record
	queued    *document // is returned before the documents of live
	taken     bool      // the last record has no end, and was taken

	arrivals []userfile.Arrival // of the last document
}

// document is a piece of the input of whole records, with the header of its file.
type document struct {
	text   []byte
	name   string
	format rows.Format
	begin  position // without Skip: of its first record
	end    position
	first  bool // of its file
	header bool // text begins with the header of its file
	// arrivals say when its parts were read, in order.
	arrivals []userfile.Arrival
}

// empty reports whether the document has empty lines alone, which are no file of a dialect without
// a header.
func (d *document) empty() bool { return len(bytes.TrimSpace(d.text)) == 0 }

// headerFile is the file in the folder of the detector with the last header of a CSV file, for a
// file that has none: of a file that was copied and truncated, the writer writes the header to the
// copy alone.
const headerFile = "header"

// openInput opens the input at a position: standard input, or the file to follow. A regular file
// continues behind the position if it is the file of the position. A file that is followed may have
// another name now, in the same folder.
func openInput(
	ctx context.Context,
	o *detectOptions,
	csv dialect.CSV,
	timestamp string,
	at position,
) (in *input, err error) {
	in = &input{o: o, csv: csv, timestamp: timestamp, path: o.Follow, name: "stdin", at: at}
	if at.File.Digest == "" && at.File != (fileMark{}) { // of an earlier program
		in.at.File.Bytes = at.Offset
	}
	f, ok := o.In.(*os.File)
	if info, err := fileInfo(f, ok); in.path == "" && (err != nil || !info.Mode().IsRegular()) {
		in.at = position{}
		live, _, err := userfile.OpenLive(ctx, []string{"-"}, o.In, csv)
		if err == nil && live == nil {
			err = command.Usage("detect: standard input is neither plain CSV nor NDJSON: use exoswarm run for it")
		}
		if in.live = live; err == nil {
			live.HoldBack()
			in.format = live.Source().Format
		}
		return in, err
	}
	in.header, err = os.ReadFile(filepath.Join(o.DataDir, headerFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the last header: %w", err)
	}
	if in.path != "" {
		in.name = filepath.Base(in.path)
		if _, err := os.Stat(in.path); err != nil && in.at.File == (fileMark{}) {
			return nil, command.Usage("detect: --follow: %v", err)
		}
		return in, in.advance(ctx, false, nil)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	if in.id, err = statFile(info); err != nil {
		return nil, err
	}
	if in.found = in.at.File != (fileMark{}) && in.at.File.in(f, in.id); !in.found && in.at.File != (fileMark{}) {
		in.note("stdin is another file than the one that was read before, or was truncated: it is read from its start")
	}
	return in, in.begin(ctx, f, false, nil)
}

func (in *input) note(format string, args ...any) {
	if in.o.Err != nil {
		fmt.Fprintf(in.o.Err, "detect: "+format+"\n", args...)
	}
}

func fileInfo(f *os.File, ok bool) (os.FileInfo, error) {
	if !ok || f == nil {
		return nil, os.ErrInvalid
	}
	return f.Stat()
}

// advance opens the file with the rows behind in.at. It waits until there is one, or for ctx. ended
// reports that the file of in.at was read to its end, where rest is a record without an end.
func (in *input) advance(ctx context.Context, ended bool, rest []byte) error {
	if in.file != nil {
		_ = in.file.Close()
		in.file = nil
	}
	told := false
	for {
		files, found, err := chain(in.path, in.at.File, in.o.DataDir)
		if err != nil {
			return fmt.Errorf("follow %s: %w", in.path, err)
		}
		known := in.at.File != (fileMark{})
		truncated := false
		for i, c := range files {
			truncated = truncated || known && c.sameInode(in.at.File) && (i > 0 || !found)
		}
		if in.at.Copy = in.at.Copy || truncated; ended && found {
			// A copy in place of a file that is gone may have more.
			if ended = files[0].sameInode(in.id); ended {
				files = files[1:]
			}
		}
		if len(files) == 0 {
			if in.live == nil && !told {
				in.note("%s is not there: waiting for it", in.path)
				told = true
			}
			if err := sleep(ctx, pollEvery); err != nil { // between two files
				return io.EOF
			}
			continue
		}
		c := files[0]
		f, err := c.open(in.o.DataDir)
		if errors.Is(err, os.ErrNotExist) { // it was renamed just now
			continue
		}
		if err != nil {
			return fmt.Errorf("follow %s: %w", in.path, err)
		}
		info, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return fmt.Errorf("follow %s: %w", c.path, err)
		}
		if !c.packed() {
			if c.fileMark, err = statFile(info); err != nil {
				return err
			}
		}
		in.id = c.fileMark
		if in.found = known && found && !ended; in.found && !in.at.File.in(f, c.fileMark) { // it was changed just now
			_ = f.Close()
			continue
		}
		if in.found {
			rest = in.cut[:in.split]
		}
		switch {
		case in.found && c.path != in.path:
			in.note("%s: it goes on in %s", in.path, c.path)
		case known && !found && !ended:
			in.note("%s was truncated or replaced, and no file beside it has the rows that were read before: %s is "+
				"read from its start, and rows that were removed before they were read are lost", in.path, c.path)
		}
		in.tail = &tail{}
		if in.static = c.packed(); !in.static {
			in.tail.path = in.path
		}
		return in.begin(ctx, f, c.path != in.path, rest)
	}
}

// begin begins to read a file: behind in.at if that is found, and otherwise at its start, behind
// the end of another file. There rest is the beginning of a record, and the file may have the end of
// the record. It owns the file.
func (in *input) begin(ctx context.Context, f *os.File, sibling bool, rest []byte) (err error) {
	before := in.at
	if in.split > 0 { // the record goes through the whole file
		before = in.before
	}
	before.Copy = in.at.Copy
	in.file, in.fresh, in.split, in.taken = f, !in.found, 0, false
	if in.tail == nil {
		in.tail = &tail{}
	}
	t := in.tail
	t.ctx, t.f, t.id = ctx, f, in.id
	if !in.found {
		in.at = position{Copy: in.at.Copy && sibling, Format: in.at.Format}
		in.window = window{}
	} else if in.window, err = readWindow(f, in.at.Offset); err != nil {
		return fmt.Errorf("read %s: %w", in.name, err)
	}
	t.at = in.at.Offset
	t.window.add(in.window.last())
	var first []byte // of the file
	if in.at.Offset == 0 {
		if first, err = in.firstRecord(t, rest); err != nil {
			return fmt.Errorf("read %s: %w", in.name, err)
		}
	}
	if !in.found && len(first) == 0 { // what follows is looked for behind the file before
		in.at = before
		in.live = userfile.Cut(in.name, "ndjson", in.csv, t)
		return nil
	}
	if rows.IsUTF16(first) {
		return command.Usage("detect: %s is UTF-16, which is not read as it grows: save it as UTF-8", in.name)
	}
	if in.format = in.at.Format; in.format == "" {
		var known bool
		if in.format, known = rows.FormatOf(in.name, ""); !known {
			head := make([]byte, 8)
			n, _ := f.ReadAt(head, 0)
			in.format = userfile.Format(head[:n])
		}
	}
	if in.format != "csv" && in.format != "ndjson" {
		return command.Usage("detect: %s is %s: only plain CSV and NDJSON are read as they grow: use exoswarm run "+
			"for it", in.name, in.format)
	}
	in.at.Format = in.format
	starts, err := in.takeHeader(first)
	if err != nil {
		return err
	}
	if in.at.Offset == 0 && len(first) > 0 {
		w := window{first}
		in.at.File = in.mark(int64(len(first)), &w)
	}
	from := []io.Reader{bytes.NewReader(first), t}
	if starts && in.format == "ndjson" && json.Valid(rest) { // it lacks its line end alone
		rest, starts = append(rest, '\n'), false
	}
	switch {
	case len(bytes.TrimSpace(rest)) == 0 || ctx.Err() != nil:
	case !in.found && (starts || in.format == "csv" && !in.csv.HasHeader() && !before.Copy):
		in.note("%s: the last line of the file before has no line end, and is left out: %.80q", in.name, rest)
	default:
		in.cut, in.split, in.before = rest, len(rest), before
		from = append([]io.Reader{bytes.NewReader(rest)}, from...)
	}
	if in.prefixed = in.at.Carried || in.at.Header > 0 && in.at.Offset > 0; in.prefixed {
		from = append([]io.Reader{bytes.NewReader(in.header)}, from...)
	}
	in.live = userfile.Cut(in.name, in.format, in.csv, io.MultiReader(from...))
	in.live.HoldBack()
	return nil
}

// firstRecord reads the start of a file up to the end of its first record, which may start with
// rest. The record has no end if the file ends before it.
func (in *input) firstRecord(t *tail, rest []byte) (first []byte, err error) {
	buf := make([]byte, 4<<10)
	for len(first) < source.MaxInputDocument {
		n, err := t.Read(buf)
		first = append(first, buf[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if userfile.FirstRecord(first, "csv", in.csv) > 0 || len(rest) > 0 &&
			userfile.FirstRecord(slices.Concat(rest, first), "csv", in.csv) > 0 {
			break
		}
	}
	return first, nil
}

// takeHeader finds the header that counts for the file, which begins with first. starts reports
// that a record begins where the file does.
func (in *input) takeHeader(first []byte) (starts bool, err error) {
	if in.format != "csv" {
		return bytes.HasPrefix(bytes.TrimLeft(first, " \t"), []byte("{")), nil
	}
	if !in.csv.HasHeader() {
		return false, nil
	}
	if in.at.Offset > 0 && !in.at.Carried {
		head := make([]byte, in.at.Header)
		if _, err := in.file.ReadAt(head, 0); err != nil {
			return false, fmt.Errorf("read the header of %s: %w", in.name, err)
		}
		in.header = head
		return true, nil
	}
	if in.at.Offset > 0 {
		return false, nil
	}
	n := len(in.header)
	if n == 0 || !bytes.HasPrefix(first, in.header) {
		// A header has the name of the column of the time, and a row has not.
		line, _, _ := bytes.Cut(first, []byte("\n"))
		n = userfile.FirstRecord(first, "csv", in.csv)
		switch named := bytes.Contains(line, []byte(in.timestamp)); {
		case len(in.header) > 0 && !named && !bytes.HasPrefix(in.header, first):
			in.at.Carried = true
			return false, nil
		case n == 0: // the header has no end yet
			return true, nil
		}
		in.header = bytes.Clone(first[:n])
		err = in.storeHeader()
	}
	in.at.Header = n
	return true, err
}

func (in *input) storeHeader() error {
	path := filepath.Join(in.o.DataDir, headerFile)
	err := os.WriteFile(path+".new", in.header, 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("store the header: %w", err)
	}
	return nil
}

// next returns the next document; io.EOF at the end of the input, or of ctx. n is the number of the
// document in its file, from 1.
func (in *input) next(ctx context.Context, n *uint64) (document, error) {
	for {
		if ctx.Err() != nil {
			return document{}, io.EOF
		}
		if doc := in.queued; doc != nil {
			in.queued = nil
			return in.place(*doc, doc.text[in.live.Header():]), nil
		}
		answer := in.live.Answer(*n)
		if ctx.Err() != nil {
			return document{}, io.EOF
		}
		switch string(answer[:min(len(answer), len(source.InputDocument))]) {
		case source.InputWait:
			continue
		case source.InputEnd:
			if err := in.live.Close(); err != nil {
				return document{}, fmt.Errorf("read %s: %w", in.name, err)
			}
			rest := in.live.Rest()
			if in.taken {
				rest = nil
			}
			if doc, ok := in.last(rest); ok {
				return doc, nil
			}
			if in.path == "" {
				in.unfinished(rest)
				return document{}, io.EOF
			}
			if err := in.advance(ctx, !in.tail.cut, rest); err != nil {
				return document{}, err
			}
			*n = 1
			continue
		}
		doc := document{text: answer[len(source.InputDocument):], name: in.name, format: in.live.Source().Format}
		in.arrivals = in.live.Arrivals(in.arrivals[:0])
		doc.arrivals = in.arrivals
		header := in.live.Header()
		doc.header = header > 0
		raw := doc.text
		if *n > 1 || in.prefixed {
			raw = raw[header:]
		} else if header > 0 {
			in.header = bytes.Clone(raw[:header])
		}
		*n++
		if in.split == 0 {
			return in.place(doc, raw), nil
		}
		if len(raw) == 0 { // the header of another file alone
			continue
		}
		// The record that the end of the file before has cut is a separate document, so that no
		// position is inside of it.
		if end := userfile.FirstRecord(raw, in.format, in.csv); end < len(raw) {
			behind := doc
			behind.text = slices.Concat(doc.text[:header], raw[end:])
			in.queued = &behind
			doc.text, raw = doc.text[:header+end], raw[:end]
		}
		raw, in.split = raw[in.split:], 0
		doc = in.place(doc, raw)
		doc.begin = in.before
		return doc, nil
	}
}

// place gives a document its positions. raw are its bytes in the file.
func (in *input) place(doc document, raw []byte) document {
	doc.first, in.fresh = in.fresh, false
	if in.file == nil {
		return doc
	}
	doc.begin = in.at
	in.window.add(raw)
	in.at.Offset += int64(len(raw))
	in.at.Header = 0
	if !in.at.Carried {
		in.at.Header = len(in.headerOf())
	}
	in.at.Skip = 0
	in.at.File = in.mark(in.at.Offset, &in.window)
	doc.begin.File, doc.begin.Header = in.at.File, in.at.Header
	doc.end = in.at
	return doc
}

// headerOf returns the header of a CSV file that has one.
func (in *input) headerOf() []byte {
	if in.format == "csv" && in.csv.HasHeader() {
		return in.header
	}
	return nil
}

// mark returns a mark of the file up to a byte, before which it has a window.
func (in *input) mark(end int64, w *window) fileMark {
	m := in.id
	m.Bytes, m.Digest = end, w.digest()
	if at := in.tail.modified.Load(); at > 0 && !in.static {
		m.Modified = at
	}
	return m
}

// last returns the record without an end at the end of a file or stream, if it is to be taken.
func (in *input) last(rest []byte) (doc document, ok bool) {
	if !in.o.TakeLastLine || len(bytes.TrimSpace(rest)) == 0 || in.at.Copy || in.tail != nil && in.tail.cut {
		return doc, false
	}
	in.taken = true
	doc = document{text: slices.Concat(in.headerOf(), rest), name: in.name, format: in.live.Source().Format}
	doc.header = len(doc.text) > len(rest)
	return in.place(doc, rest), true
}

// unfinished tells of a record without an end at the end of the input.
func (in *input) unfinished(rest []byte) {
	switch {
	case len(bytes.TrimSpace(rest)) == 0 || in.tail != nil && in.tail.cut:
	case in.file == nil:
		in.note("the last line has no line end and is left out: %.80q: end it, or take it with --take-last-line", rest)
	default:
		in.note("the last line has no line end and waits for the next call: %.80q: --take-last-line takes it", rest)
	}
}

func (in *input) close() {
	_ = in.live.Close()
	if in.path != "" && in.file != nil {
		_ = in.file.Close()
	}
}

// clock tells when the records of a document arrived.
type clock struct {
	text     []byte
	at       int // byte behind the last record
	arrivals []userfile.Arrival
}

// next returns when the next line arrived. A record with line ends in quotes counts as several
// lines, so the records behind it have the times of earlier ones.
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
