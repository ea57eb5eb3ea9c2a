package userfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/sink"
)

// live writes the rows of a run to a stream as the CPU agent sends them. It answers when they are
// written, so a slow reader slows the run down. Rows come in pieces, and come again when an answer
// is lost or another agent continues the job.
type live struct {
	w      io.Writer
	closed func() // called once, when the reader has gone away

	calls sync.WaitGroup // of closed
	mu    sync.Mutex
	last  piece             // the piece that is written, or being written
	done  chan struct{}     // closed when it is written
	err   error             // of the first write that failed
	wrote map[string]uint64 // by series, as its rows begin: how many are written
}

// piece identifies the rows of a message: the number of the batch, and of the piece of it.
type piece struct{ batch, number uint64 }

func (p piece) after(q piece) bool {
	return p.batch > q.batch || p.batch == q.batch && p.number > q.number
}

// liveAnswer bounds the time of a write before the agent is told to wait.
const liveAnswer = time.Second

// newLiveOutput writes to w. closed is called once, in a goroutine of its own, when the reader
// closes its end.
func newLiveOutput(w io.Writer, closed func()) *live {
	done := make(chan struct{})
	close(done)
	return &live{w: w, closed: closed, done: done, wrote: map[string]uint64{}}
}

func (l *live) take(message []byte) []byte {
	head, rows, _ := bytes.Cut(message, []byte{'\n'})
	var at piece
	if _, err := fmt.Sscanf(string(head), "%d %d", &at.batch, &at.number); err != nil {
		return []byte(sink.RowsStop) // of another version
	}
	// One write runs at a time. A message that repeats the last piece waits for that write, and is
	// not written again.
	l.mu.Lock()
	idle := false
	select {
	case <-l.done:
		idle = true
	default:
	}
	if idle && l.err == nil && (l.last == piece{} || at.after(l.last)) {
		l.last, l.done = at, make(chan struct{})
		go l.write(bytes.Clone(rows), l.done)
	}
	done := l.done
	l.mu.Unlock()
	wait := time.NewTimer(liveAnswer)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		return []byte(sink.RowsWait)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
		return []byte(sink.RowsStop)
	case at.after(l.last): // another piece was being written
		return []byte(sink.RowsWait)
	}
	return []byte(sink.RowsTaken)
}

// write writes a piece, however long the reader takes.
func (l *live) write(rows []byte, done chan struct{}) {
	_, err := l.w.Write(rows)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(done)
	if err != nil {
		l.err = err
		l.calls.Go(l.closed)
		return
	}
	// rest leaves these rows out.
	for line := range bytes.Lines(rows) {
		l.wrote[seriesOf(line)]++
	}
}

// end waits for the call of closed.
func (l *live) end() { l.calls.Wait() }

// seriesOf returns the text of a row of NDJSON up to its number, which identifies the series.
func seriesOf(line []byte) string {
	head, _, _ := bytes.Cut(line, []byte(`,"row":`))
	return string(head)
}

// failed returns the error of the first write that failed. gone reports that the reader has closed
// its end.
func (l *live) failed() (gone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Is(l.err, syscall.EPIPE) || errors.Is(l.err, io.ErrClosedPipe), l.err
}

// rest copies the rows of an output that were not written live, as after a loss of the connection.
// The rows of a series are in the output in the order in which they were sent.
func (l *live) rest(w io.Writer, output io.Reader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := bufio.NewWriterSize(w, 64<<10)
	in := bufio.NewReaderSize(output, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if series := seriesOf(line); l.wrote[series] > 0 {
				l.wrote[series]--
			} else if _, err := out.Write(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return out.Flush()
		}
		if err != nil {
			return err
		}
	}
}
