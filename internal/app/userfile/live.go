package userfile

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
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Live hands standard input or a FIFO to the CPU agent of a run while it is being written. A
// document has the complete records since the last request: the delay of a row is the delay of a
// request when rows are rare, and documents are large when they are not. Its methods may be called
// from several goroutines.
type Live struct {
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
	hold    bool // a record without an end is none
	err     error
	number  uint64 // of doc
	doc     []byte // the last answer with a document

	arrivals []Arrival // of pending, in order
	came     []Arrival // of doc
}

// Arrival is the time at which a part of a document was read.
type Arrival struct {
	End int // of the part in the document, in bytes
	At  time.Time
}

// liveInputAnswer is how long a request waits for a record before the answer is source.InputWait.
const liveInputAnswer = time.Second

// mostPending bounds the bytes that are read before they are requested.
const mostPending = 4 * source.MaxInputDocument

// OpenLive returns the input of a run that is one stream of plain CSV or NDJSON. For other inputs
// it returns nil, and rest, which replaces stdin in the call of Spool: the first bytes of standard
// input were read to learn its format. The caller closes the result.
func OpenLive(ctx context.Context, paths []string, stdin io.Reader,
	csv dialect.CSV,
) (l *Live, rest io.Reader, err error) {
	if len(paths) != 1 {
		return nil, stdin, nil
	}
	path := paths[0]
	std := IsStdin(path)
	from, name := stdin, "stdin"
	if !std {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeNamedPipe == 0 || IsDescriptor(path) {
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
	l = newLiveInput(name, path, format, csv, closer)
	go l.read(rows.Text(in)) // it ends with its source, or with the process
	return l, nil, nil
}

func newLiveInput(name, path string, format rows.Format, csv dialect.CSV, from io.Closer) *Live {
	l := &Live{
		source: source.Series{Name: name, URI: source.SubmitterURI, Format: format}, name: path, from: from,
		changed: make(chan struct{}), first: true,
	}
	if format == "csv" {
		l.records = records{csv: true, comma: byte(csv.Comma()), header: csv.HasHeader()}
	}
	return l
}

// Cut cuts a stream of plain CSV or NDJSON into documents of whole records, as OpenLive does. The
// reading goroutine ends when in does. The caller closes the result.
func Cut(name string, format rows.Format, csv dialect.CSV, in io.Reader) *Live {
	l := newLiveInput(name, name, format, csv, nil)
	go l.read(in)
	return l
}

// HoldBack lets a record without an end wait in Rest. Otherwise it is a record at the end of the
// stream. It is called before the first call of Answer.
func (l *Live) HoldBack() { l.hold = true }

// Rest returns what is left of the stream behind the last document.
func (l *Live) Rest() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.pending)
}

// Header returns the bytes of the header that begins every document but the first; 0 before the
// first document, and for a format without one.
func (l *Live) Header() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.head)
}

// Format returns the format of a stream that begins with head: csv for text that begins no JSON
// object.
func Format(head []byte) rows.Format {
	f, _ := rows.FormatOf("x"+sniff(head), "")
	return f
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

func (l *Live) read(in io.Reader) {
	// It holds the mutex only between reads, so that answers do not wait for the stream.
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		l.mu.Lock()
		l.pending = append(l.pending, buf[:n]...)
		l.records.scan(buf[:n])
		if n > 0 {
			l.arrivals = append(l.arrivals, Arrival{End: len(l.pending), At: time.Now()})
		}
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

// change wakes the goroutines that wait for changed. l.mu is held.
func (l *Live) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Source returns the source that the job of the run has for this input.
func (l *Live) Source() source.Series { return l.source }

// Name returns the path as the user wrote it.
func (l *Live) Name() string { return l.name }

// Answer returns the answer to the request for document number n, from 1: the document, also when
// it is requested again, or a note that there is none yet or no more. It waits up to a second for a
// record. The slice must not be changed, and is valid until the next document is requested.
func (l *Live) Answer(n uint64) []byte {
	wait := time.NewTimer(liveInputAnswer)
	defer wait.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case n == l.number:
			return l.doc
		case n != l.number+1:
			return []byte(source.InputEnd) // a request of another run
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

// cut makes the next document from the complete records, and reports whether there are any. A
// record that is too long for a document is cut where the document ends, and rejected as two. l.mu
// is held.
func (l *Live) cut() bool {
	if l.first && l.records.header && l.head == nil {
		n := l.records.firstEnd
		if n == 0 && l.ended && !l.hold {
			n = len(l.pending)
		}
		if n == 0 && len(l.pending) < source.MaxInputDocument {
			return false
		}
		l.head = bytes.Clone(l.pending[:min(n, source.MaxInputDocument/2)])
	}
	// Every document but the first, which has it already, begins with the header.
	most := source.MaxInputDocument
	if !l.first {
		most -= len(l.head)
	}
	n := l.records.before(most)
	switch {
	case n == 0 && len(l.pending) >= most:
		n = most
	case n == 0 && l.ended && !l.hold:
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
	l.arrive(len(l.doc)-n-len(source.InputDocument), n)
	l.pending = append(l.pending[:0], l.pending[n:]...)
	l.records.drop(n)
	l.first = false
	return true
}

// arrive moves the arrivals of the next n bytes of pending to the document, where they begin behind
// head bytes. l.mu is held.
func (l *Live) arrive(head, n int) {
	l.came = l.came[:0]
	rest := 0 // of l.arrivals
	for i := range l.arrivals {
		a := l.arrivals[i]
		if len(l.came) == 0 || l.came[len(l.came)-1].End < head+n {
			l.came = append(l.came, Arrival{End: head + min(a.End, n), At: a.At})
		}
		if a.End > n {
			l.arrivals[rest] = Arrival{End: a.End - n, At: a.At}
			rest++
		}
	}
	l.arrivals = l.arrivals[:rest]
}

// Arrivals appends to all when the parts of the last document of Answer were read. The header of a
// CSV file that it repeats belongs to its first part.
func (l *Live) Arrivals(all []Arrival) []Arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(all, l.came...)
}

// Close ends the reading, and returns the error of the stream. The goroutine that reads ends when
// its read returns. Close of nil does nothing.
func (l *Live) Close() error {
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
