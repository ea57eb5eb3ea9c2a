package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/dialect"
)

// liveInput hands standard input or a FIFO to the CPU agent of a run while it is being written. A
// document is the complete records that have come since the last request, so the delay of a row is
// that of a request when rows are rare, and documents are large when they are not.
type liveInput struct {
	source source.Series
	name   string // as the user wrote it, for errors
	from   io.Closer

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when what follows changes
	records records
	pending []byte // not handed out yet; records says how much of it is complete
	head    []byte // the header of a CSV file, which begins every document
	first   bool   // the next document is the first
	ended   bool
	err     error
	number  uint64 // of doc
	doc     []byte // the last answer with a document
}

// liveInputAnswer is how long a request waits for a record before the answer is source.InputWait.
const liveInputAnswer = time.Second

// mostPending bounds the bytes that are read ahead of the requests.
const mostPending = 4 * source.MaxInputDocument

// openLiveInput returns the input of a run that is one stream of plain CSV or NDJSON. Otherwise it
// returns nil and what spool is to read: the first bytes of standard input are read to learn its
// format. The caller closes the result.
func openLiveInput(ctx context.Context, paths []string, stdin io.Reader,
	csv dialect.CSV,
) (l *liveInput, rest io.Reader, err error) {
	if len(paths) != 1 {
		return nil, stdin, nil
	}
	path := paths[0]
	std := path == "-" || path == "/dev/stdin" || path == "/dev/fd/0"
	from, name := stdin, "stdin"
	if !std {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeNamedPipe == 0 || isDescriptor(path) {
			return nil, stdin, nil
		}
		f, err := openSource(ctx, path)
		if err != nil {
			return nil, stdin, err
		}
		from, name = f, filepath.Base(path)
	}
	in := bufio.NewReaderSize(from, 64<<10)
	head, err := peek(ctx, in)
	if err != nil {
		return nil, stdin, err
	}
	format, known := rows.FormatOf(name, "")
	if !known {
		ext := sniff(head)
		name += ext
		format, _ = rows.FormatOf(name, "")
	}
	closer, _ := from.(io.Closer)
	if format != "csv" && format != "ndjson" {
		if std {
			return nil, in, nil
		}
		return nil, stdin, errors.Join(closer.Close(), command.Usage("input %s: a FIFO holds CSV or NDJSON here, "+
			"and this one begins as %s: send it to standard input", path, format))
	}
	l = &liveInput{
		source: source.Series{Name: name, URI: source.SubmitterURI, Format: format}, name: path, from: closer,
		changed: make(chan struct{}), first: true,
	}
	if format == "csv" {
		l.records = records{csv: true, comma: byte(csv.Comma()), header: csv.HasHeader()}
	}
	go l.read(in) // it ends with its source, or with the process
	return l, nil, nil
}

// peek waits for the first bytes of a stream, or for ctx.
func peek(ctx context.Context, in *bufio.Reader) ([]byte, error) {
	done := make(chan []byte, 1)
	go func() { // it ends with its source, or with the process
		head, _ := in.Peek(1)
		if n := in.Buffered(); n > 0 {
			head, _ = in.Peek(min(n, 8))
		}
		done <- head
	}()
	select {
	case head := <-done:
		return head, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// read moves the stream into pending.
func (l *liveInput) read(in io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		l.mu.Lock()
		l.pending = append(l.pending, buf[:n]...)
		l.records.scan(buf[:n])
		if err != nil {
			l.ended = true
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
				l.err = err
			}
		}
		l.change()
		for !l.ended && len(l.pending) >= mostPending {
			changed := l.changed
			l.mu.Unlock()
			<-changed
			l.mu.Lock()
		}
		ended := l.ended
		l.mu.Unlock()
		if ended {
			return
		}
	}
}

// change tells those who wait for changed. l.mu is held.
func (l *liveInput) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// answer answers the request for document number n.
func (l *liveInput) answer(n uint64) []byte {
	wait := time.NewTimer(liveInputAnswer)
	defer wait.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case n == l.number:
			return l.doc
		case n != l.number+1:
			return []byte(source.InputEnd) // of another run
		case l.cut():
			l.number = n
			l.change()
			return l.doc
		case l.ended:
			return []byte(source.InputEnd)
		}
		changed := l.changed
		l.mu.Unlock()
		expired := false
		select {
		case <-changed:
		case <-wait.C:
			expired = true
		}
		l.mu.Lock()
		if expired {
			return []byte(source.InputWait)
		}
	}
}

// cut makes the next document of the complete records. It reports whether there are any. A record
// that is too long for a document is cut where the document ends, and rejected as two. l.mu is
// held.
func (l *liveInput) cut() bool {
	if l.first && l.records.header && l.head == nil {
		n := l.records.firstEnd
		if n == 0 && l.ended {
			n = len(l.pending)
		}
		if n == 0 && len(l.pending) < source.MaxInputDocument {
			return false
		}
		l.head = bytes.Clone(l.pending[:min(n, source.MaxInputDocument/2)])
	}
	most := source.MaxInputDocument
	if !l.first {
		most -= len(l.head)
	}
	n := l.records.before(most)
	switch {
	case n == 0 && len(l.pending) >= most:
		n = most
	case n == 0 && l.ended:
		n = min(len(l.pending), most)
	}
	if n == 0 {
		return false
	}
	l.doc = append(l.doc[:0:0], source.InputDocument...)
	if !l.first {
		l.doc = append(l.doc, l.head...)
	}
	l.doc = append(l.doc, l.pending[:n]...)
	l.pending = append(l.pending[:0], l.pending[n:]...)
	l.records.drop(n)
	l.first = false
	return true
}

// close ends the reading, and returns the error of the source. The goroutine that reads ends when
// its read returns.
func (l *liveInput) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.ended = true
	l.change()
	err := l.err
	l.mu.Unlock()
	if l.from != nil && l.from != io.Closer(os.Stdin) {
		_ = l.from.Close()
	}
	return err
}

// records finds the ends of records in a stream. The zero value is for lines.
type records struct {
	csv    bool // a field in quotes may hold line ends
	comma  byte
	header bool // the first record is a header

	state    recordState
	read     int   // bytes scanned and not dropped
	ends     []int // of the records among them, in order; one in endEvery bytes and the last are kept
	firstEnd int   // of the first record of the stream, while nothing was dropped
}

type recordState byte

const (
	fieldBegins recordState = iota
	inField
	inQuotes
	quoteInQuotes
)

// endEvery is how many bytes apart the ends of records are kept.
const endEvery = 4 << 10

// scan goes on with the next bytes of the stream.
func (r *records) scan(data []byte) {
	for _, c := range data {
		r.read++
		if r.csv {
			switch {
			case r.state == inQuotes:
				if c == '"' {
					r.state = quoteInQuotes
				}
				continue
			case c == '"' && r.state == quoteInQuotes:
				r.state = inQuotes
				continue
			case c == '"' && r.state == fieldBegins:
				r.state = inQuotes
				continue
			case c == r.comma || c == '\n':
				r.state = fieldBegins
			default:
				r.state = inField
			}
		}
		if c == '\n' {
			r.end()
		}
	}
}

func (r *records) end() {
	if r.firstEnd == 0 {
		r.firstEnd = r.read
	}
	if n := len(r.ends); n > 1 && r.read-r.ends[n-2] < endEvery {
		r.ends[n-1] = r.read
		return
	}
	r.ends = append(r.ends, r.read)
}

// before returns the last kept end that is at most n bytes behind the begin, or 0.
func (r *records) before(n int) (at int) {
	for _, e := range r.ends {
		if e <= n {
			at = e
		}
	}
	return at
}

// drop forgets the first n bytes.
func (r *records) drop(n int) {
	r.read -= n
	keep := r.ends[:0]
	for _, e := range r.ends {
		if e > n {
			keep = append(keep, e-n)
		}
	}
	r.ends = keep
}
