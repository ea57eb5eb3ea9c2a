// Package joblog stores what the handlers of jobs log, and reads it.
package joblog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Logs reads the logs of jobs. Its methods may be called from several goroutines.
type Logs struct {
	conn    *natsconn.Conn
	jobs    Jobs
	results Results
}

// Jobs tells whether anything of a job is known. It is a *queue.Queue.
type Jobs interface {
	Known(ctx context.Context, id string) (bool, error)
}

// Results looks up the result of a job. It is a *results.Results.
type Results interface {
	Lookup(ctx context.Context, id string) (jobs.Result, error)
}

// New returns the logs that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn, j Jobs, r Results) *Logs { return &Logs{c, j, r} }

// How fast a worker stores what its handlers log. One batch, and so one sync of the server's disk,
// a turn: five in a second, whatever the handlers do.
const (
	logTurn     = 200 * time.Millisecond
	logMessages = 256     // of a turn
	logBytes    = 1 << 20 // of a turn
	logPending  = 32 << 10
	// logHeld bounds what a worker holds for all its jobs while the server is away or slow.
	logHeld = 8 << 20
	// logPatience is what one turn, and the last one, may take.
	logPatience = 5 * time.Second
)

// Writer stores what the handlers of a worker log. One goroutine writes, so that no handler waits
// for the server.
type Writer struct {
	c   *natsconn.Conn
	log *slog.Logger

	mu     sync.Mutex
	dirty  []*Lines // have something to say, in the order of their turns
	held   int      // bytes pending in all of them
	closed bool

	now *logBatch // under way; the loop's alone

	wake  chan struct{}
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// Lines are the lines of one attempt at a job. The logbook's mutex guards what follows the fixed
// part.
type Lines struct {
	book    *Writer
	id      string
	attempt int
	worker  string
	ttl     string // of its messages

	pending []json.RawMessage
	size    int // bytes of pending
	lines   int // so far
	bytes   int
	dropped int
	said    int // dropped, when it was last stored
	dirty   bool
}

// NewWriter returns a logbook and starts its goroutine. The caller closes it before the connection.
func NewWriter(c *natsconn.Conn, log *slog.Logger) *Writer {
	b := &Writer{c: c, log: log, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	b.ended.Go(b.loop)
	return b
}

// Lines returns the place for the lines of one attempt. Messages stay for ttl seconds, 0 for the
// default, and natsconn.LogSlack.
func (b *Writer) Lines(id string, attempt int, worker string, ttl int) *Lines {
	if ttl <= 0 {
		ttl = natsconn.ResultTTL
	}
	return &Lines{
		book: b, id: id, attempt: attempt, worker: worker,
		ttl: strconv.Itoa(ttl+int(natsconn.LogSlack.Seconds())) + "s",
	}
}

// End has the number of dropped lines stored, if it grew since the last message.
func (l *Lines) End() {
	b := l.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.dropped > l.said && l.lines > 0 {
		b.touch(l)
	}
}

// Write takes one line of JSON. It never fails.
func (l *Lines) Write(p []byte) (int, error) {
	line := bytes.TrimSpace(p)
	if len(line) > jobs.MaxLogLine {
		line = shorten(line)
	}
	b := l.book
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(line)
	if l.lines == jobs.MaxLogLines || l.bytes+n > jobs.MaxLogBytes || l.size+n > logPending || b.held+n > logHeld ||
		b.closed {
		// a job of which nothing is kept has no turn: they could be any number
		if l.dropped++; l.dropped == 1 && l.lines > 0 && !b.closed {
			b.touch(l)
		}
		return len(p), nil
	}
	l.pending = append(l.pending, bytes.Clone(line))
	l.lines++
	l.bytes += n
	l.size += n
	b.held += n
	b.touch(l)
	return len(p), nil
}

// shorten makes a line of at most jobs.MaxLogLine bytes of one that is longer: the fields of the
// handler go, and then the end of its message.
func shorten(line []byte) []byte {
	var one struct {
		jobs.LogLine
		Cut bool `json:"cut"`
	}
	_ = json.Unmarshal(line, &one) // slog has made it
	one.Cut = true
	for room := jobs.MaxLogLine - 256; ; room /= 2 { // escapes may be six times as long as what they stand for
		if len(one.Message) > room {
			one.Message = strings.ToValidUTF8(one.Message[:room], "")
		}
		out, err := json.Marshal(one)
		if err == nil && len(out) <= jobs.MaxLogLine {
			return out
		}
		if room == 0 {
			return []byte(`{"level":"ERROR","msg":"","cut":true}`)
		}
	}
}

// touch gives l a turn. It must be called with mu held.
func (b *Writer) touch(l *Lines) {
	if l.dirty {
		return
	}
	l.dirty = true
	if b.dirty = append(b.dirty, l); len(b.dirty) == 1 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (b *Writer) loop() {
	turn := time.NewTimer(time.Hour)
	defer turn.Stop()
	for {
		select {
		case <-b.wake:
			turn.Reset(logTurn)
		case <-turn.C:
			ctx, cancel := context.WithTimeout(context.Background(), logPatience)
			if b.store(ctx) {
				turn.Reset(logTurn)
			}
			cancel()
		case <-b.stop:
			ctx, cancel := context.WithTimeout(context.Background(), logPatience)
			defer cancel()
			for b.c.NC.IsConnected() && ctx.Err() == nil && b.store(ctx) {
			}
			return
		}
	}
}

// logBatch is what one turn stores. It is sent again as it is until the server has said something
// about it.
type logBatch struct {
	msgs  []*nats.Msg
	of    []*Lines
	lines []int // in each message
	size  int   // bytes of all lines
}

// take makes the batch of a turn; nil when nothing is pending.
func (b *Writer) take() *logBatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &logBatch{}
	for len(b.dirty) > 0 && len(t.msgs) < logMessages && t.size < logBytes {
		l := b.dirty[0]
		b.dirty = b.dirty[1:]
		var data bytes.Buffer
		enc := json.NewEncoder(&data)
		enc.SetEscapeHTML(false) // else a message could be six times as long as its lines
		err := enc.Encode(jobs.LogLines{
			Version: jobs.Version, JobID: l.id, Attempt: l.attempt, Worker: l.worker,
			Lines: l.pending, Dropped: l.dropped,
		})
		n, size := len(l.pending), l.size
		l.pending, l.size, l.said, l.dirty = nil, 0, l.dropped, false
		if err != nil { // slog writes JSON
			b.log.Error("log of a job not stored", "job", l.id, "error", err)
			l.dropped += n
			b.held -= size
			continue
		}
		t.of, t.lines, t.size = append(t.of, l), append(t.lines, n), t.size+size
		t.msgs = append(t.msgs, &nats.Msg{Subject: wire.JobLogSubject(l.id), Data: data.Bytes(), Header: nats.Header{
			jetstream.MsgTTLHeader: {l.ttl}, jetstream.MsgIDHeader: {natsconn.NewID()},
		}})
	}
	if len(t.msgs) == 0 {
		return nil
	}
	return t
}

// errCodeBatchTwice is what the server says of a batch with a message id that it knows: an earlier
// try was stored.
const errCodeBatchTwice = 10201

// store stores what is pending, as much as goes into one turn. more says that something is left.
func (b *Writer) store(ctx context.Context) (more bool) {
	if !b.c.NC.IsConnected() { // it must not fill the client's buffer, which others need
		return true
	}
	if b.now == nil {
		if b.now = b.take(); b.now == nil {
			return false
		}
	}
	err := b.c.PublishBatchOnce(ctx, b.now.msgs)
	if natsconn.IsTransient(err) {
		b.log.Warn("logs of jobs not stored yet", "jobs", len(b.now.msgs), "error", err)
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var api *jetstream.APIError
	if err != nil && (!errors.As(err, &api) || api.ErrorCode != errCodeBatchTwice) {
		b.log.Warn("logs of jobs not stored", "jobs", len(b.now.msgs), "error", err)
		for i, l := range b.now.of {
			l.dropped += b.now.lines[i]
		}
	}
	b.held -= b.now.size
	b.now = nil
	return len(b.dirty) > 0
}

// Close stores what is left, for a while. A second call does nothing.
func (b *Writer) Close() {
	b.once.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		close(b.stop)
	})
	b.ended.Wait()
}

// followGrace is how long a follower waits for lines of a job that is over: they are stored some
// turns behind it.
const followGrace = 5 * logTurn

// Logs calls fn with what handlers have logged while they worked on a job, in the order in which it
// was stored, until fn returns an error, which it returns. With follow it goes on until the job is
// over. jobs.ErrNotFound when nothing is known of such a job. A message that is no log is given as
// a line that says so.
func (lg *Logs) Logs(ctx context.Context, id string, follow bool, fn func(jobs.LogLines) error) error {
	return lg.LogsFrom(ctx, id, 1, follow, func(_ uint64, l jobs.LogLines) error { return fn(l) })
}

// LogsFrom is Logs from a place in the stream on; fn is told the place behind each message.
func (lg *Logs) LogsFrom(ctx context.Context, id string, seq uint64, follow bool,
	fn func(next uint64, l jobs.LogLines) error,
) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	news := make(chan struct{}, 1)
	if follow { // each message is a push too, and the job's end; a look now and then in case one was lost
		for _, subject := range []string{wire.JobLogSubject(id), wire.DoneSubject(id)} {
			sub, err := lg.conn.NC.Subscribe(subject, func(*nats.Msg) {
				select {
				case news <- struct{}{}:
				default:
				}
			})
			if err != nil {
				return fmt.Errorf("follow job %s: %w", id, err)
			}
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	if there, err := lg.jobs.Known(ctx, id); err != nil {
		return err
	} else if !there {
		if _, err := lg.conn.Next(ctx, wire.JobLogStream, wire.JobLogSubject(id), 1); err != nil {
			return fmt.Errorf("logs of job %s: check the id, or its result has expired: %w", id, err)
		}
		follow = false
	}
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	over := false
	for {
		m, err := lg.conn.Next(ctx, wire.JobLogStream, wire.JobLogSubject(id), seq)
		if err == nil {
			seq = m.Seq + 1
			if err := fn(seq, readLines(id, m)); err != nil {
				return err
			}
			continue
		}
		if !errors.Is(err, jobs.ErrNotFound) || !follow || over {
			if errors.Is(err, jobs.ErrNotFound) {
				err = nil
			}
			return err
		}
		pause := 2 * time.Second
		if _, err := lg.results.Lookup(ctx, id); err == nil {
			over, pause = true, followGrace
		} else if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
		look.Reset(pause)
		for waiting := true; waiting; {
			select {
			case <-news:
				waiting = over // the grace is waited for to its end
			case <-look.C:
				waiting = false
			case <-ctx.Done():
				return fmt.Errorf("follow job %s: %w", id, context.Cause(ctx))
			}
		}
	}
}

// readLines reads a message of a job's log.
func readLines(id string, m *natsconn.Message) jobs.LogLines {
	l, err := jobs.DecodeLogLines(m.Data)
	if err == nil && l.JobID != id {
		err = jobs.Errorf(jobs.CodeInvalid, "it is of job %.100q", l.JobID)
	}
	if err != nil {
		line, _ := json.Marshal(jobs.LogLine{
			Time: m.Time, Level: slog.LevelError.String(),
			Message: fmt.Sprintf("message %d of the log cannot be read: %v", m.Seq,
				err),
		}) //nolint:errchkjson // a time and two strings
		return jobs.LogLines{Version: jobs.Version, JobID: id, Lines: []json.RawMessage{line}}
	}
	return l
}
