package queue

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

// A handler must never wait for its log. So its lines go into memory, and one goroutine per worker
// stores the lines of all jobs in one atomic batch at a time. Memory, rate and size are bounded;
// lines beyond the bounds are dropped and counted, and the count is stored with the log.

// Logs reads the logs of jobs. Its methods may be called from several goroutines.
type Logs struct {
	conn    *natsconn.Conn
	queue   known
	results lookup
}

// known reports whether the queue has anything of a job. It is a *Queue.
type known interface {
	Known(ctx context.Context, id string) (bool, error)
}

// lookup looks up the result of a job. It is a *Results.
type lookup interface {
	Lookup(ctx context.Context, id string) (jobs.Result, error)
}

// NewLogs returns the logs that a connection reaches. The connection stays the caller's.
func NewLogs(c *natsconn.Conn, j known, r lookup) *Logs { return &Logs{c, j, r} }

// Bounds of a writer. It stores one batch per period, so the server syncs its disk for logs five
// times per second at most, whatever the handlers do.
const (
	logPeriod   = 200 * time.Millisecond
	logMessages = 256      // of one batch, each of one job
	logBytes    = 1 << 20  // of the lines of one batch
	logPending  = 32 << 10 // bytes in memory for one job
	// logHeld bounds the memory for all jobs of a worker while the server is away or slow.
	logHeld = 8 << 20
	// logPatience bounds the time for one batch, and the time of Close.
	logPatience = 5 * time.Second
)

// LogWriter stores the lines of the jobs of one worker. Its methods, and the methods of its
// LogLines, may be called from several goroutines, and none but Close waits for the server.
type LogWriter struct {
	c       *natsconn.Conn
	log     *slog.Logger
	written func(dropped bool) // may be nil

	mu     sync.Mutex
	dirty  []*LogLines // those with something to store, in the order of their turns
	held   int         // bytes in memory of all jobs, including now
	closed bool

	now *logBatch // the batch that is being stored; for the loop alone

	wake  chan struct{}
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// LogLines is an io.Writer for the lines of one attempt at a job. The mutex of its LogWriter guards
// the fields from pending on.
type LogLines struct {
	writer  *LogWriter
	id      string
	attempt int
	worker  string
	ttl     string // of its messages

	pending []json.RawMessage
	size    int // bytes of pending
	lines   int // accepted so far
	bytes   int // accepted so far
	dropped int
	said    int  // the number of dropped lines that was last stored
	dirty   bool // it is in writer.dirty
	keep    bool // the next line has room, see KeepNext
}

// NewLogWriter returns a writer and starts its goroutine. The caller closes it before the
// connection. written is called for each line of a job, with the mutex of the writer held; nil for
// none.
func NewLogWriter(c *natsconn.Conn, log *slog.Logger, written func(dropped bool)) *LogWriter {
	b := &LogWriter{c: c, log: log, written: written, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	b.ended.Go(b.loop)
	return b
}

// Lines returns a writer for the lines of one attempt. The server keeps them for ttl seconds, or
// for the default with 0, and natsconn.LogSlack longer. The caller calls End after the last line.
func (b *LogWriter) Lines(id string, attempt int, worker string, ttl int) *LogLines {
	if ttl <= 0 {
		ttl = natsconn.ResultTTL
	}
	return &LogLines{
		writer: b, id: id, attempt: attempt, worker: worker,
		ttl: strconv.Itoa(ttl+int(natsconn.LogSlack.Seconds())) + "s",
	}
}

// End stores the number of dropped lines, if it grew since the last message.
func (l *LogLines) End() {
	b := l.writer
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.dropped > l.said && l.lines > 0 {
		b.touch(l)
	}
}

// KeepNext makes room for the next line beyond the bounds of the job, for the worker's own line at
// the end of an attempt. The caller calls it once in an attempt.
func (l *LogLines) KeepNext() {
	l.writer.mu.Lock()
	defer l.writer.mu.Unlock()
	l.keep = true
}

// Write accepts one line of JSON, and copies it. It never fails: a line beyond the bounds is
// dropped and counted.
func (l *LogLines) Write(p []byte) (int, error) {
	line := bytes.TrimSpace(p)
	if len(line) > jobs.MaxLogLine {
		line = shorten(line)
	}
	b := l.writer
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(line)
	full := l.lines >= jobs.MaxLogLines || l.bytes+n > jobs.MaxLogBytes || l.size+n > logPending
	keep := l.keep
	l.keep = false
	dropped := full && !keep || b.held+n > logHeld || b.closed
	if b.written != nil {
		b.written(dropped)
	}
	if dropped {
		// A job without an accepted line stores no count, because such jobs have no bound.
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

// shorten cuts a line to at most jobs.MaxLogLine bytes: it removes the fields of the handler, and
// then the end of the message.
func shorten(line []byte) []byte {
	var one struct {
		jobs.LogLine
		Cut bool `json:"cut"`
	}
	_ = json.Unmarshal(line, &one) // slog has written it, so it is valid
	one.Cut = true
	for room := jobs.MaxLogLine - 256; ; room /= 2 { // an escape has up to six bytes per byte
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

// touch puts l among those with something to store. It must be called with mu held.
func (b *LogWriter) touch(l *LogLines) {
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

// loop stores one batch per period while something is pending, until Close. Then it stores the
// rest, unless the server is away.
func (b *LogWriter) loop() {
	turn := time.NewTimer(time.Hour)
	defer turn.Stop()
	for {
		select {
		case <-b.wake:
			turn.Reset(logPeriod)
		case <-turn.C:
			ctx, cancel := context.WithTimeout(context.Background(), logPatience)
			if b.store(ctx) {
				turn.Reset(logPeriod)
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

// logBatch is one batch. It is sent again unchanged until the server has answered, so that its
// message ids prevent a second copy.
type logBatch struct {
	msgs  []*nats.Msg
	of    []*LogLines // the job of each message
	lines []int       // the number of lines in each message
	size  int         // bytes of all lines
}

// take removes pending lines from memory and returns them as a batch, or nil if there are none.
func (b *LogWriter) take() *logBatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &logBatch{}
	for len(b.dirty) > 0 && len(t.msgs) < logMessages && t.size < logBytes {
		l := b.dirty[0]
		b.dirty = b.dirty[1:]
		var data bytes.Buffer
		enc := json.NewEncoder(&data)
		enc.SetEscapeHTML(false) // otherwise a message could be six times as long as its lines
		err := enc.Encode(jobs.LogLines{
			Version: jobs.Version, JobID: l.id, Attempt: l.attempt, Worker: l.worker,
			Lines: l.pending, Dropped: l.dropped,
		})
		n, size := len(l.pending), l.size
		l.pending, l.size, l.said, l.dirty = nil, 0, l.dropped, false
		if err != nil { // not expected, because slog writes JSON
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

// errCodeBatchTwice is the error of the server for a batch with a known message id: an earlier try
// was stored.
const errCodeBatchTwice = 10201

// store stores one batch of pending lines. more reports whether there are others, or the batch must
// be sent again. A batch that the server refuses counts as dropped.
func (b *LogWriter) store(ctx context.Context) (more bool) {
	if !b.c.NC.IsConnected() { // logs must not fill the buffer of the client, which other calls need
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

// Close stores the rest, for at most logPatience, and ends the goroutine. Later lines are dropped.
// A second call waits too.
func (b *LogWriter) Close() {
	b.once.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		close(b.stop)
	})
	b.ended.Wait()
}

// followGrace is how long a follower waits for lines after the job has ended, because they are
// stored some periods later.
const followGrace = 5 * logPeriod

// Logs calls fn with the log lines of a job, of all attempts, in the order in which they were
// stored. It ends with the last line, with follow when the job has ended, or with the first error
// of fn, which it returns. It fails with jobs.ErrNotFound if the job is not known. A message that
// cannot be decoded becomes a line that says so.
func (lg *Logs) Logs(ctx context.Context, id string, follow bool, fn func(jobs.LogLines) error) error {
	return lg.LogsFrom(ctx, id, 1, follow, func(_ uint64, l jobs.LogLines) error { return fn(l) })
}

// LogsFrom is Logs from a sequence number of the stream on. fn gets the number after each message,
// from which a later call continues.
func (lg *Logs) LogsFrom(ctx context.Context, id string, seq uint64, follow bool,
	fn func(next uint64, l jobs.LogLines) error,
) error {
	if err := jobs.CheckID("job id", id); err != nil {
		return err
	}
	news := make(chan struct{}, 1)
	if follow { // subscriptions announce lines and the end; a periodic read finds what lost messages announced
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
	if there, err := lg.queue.Known(ctx, id); err != nil {
		return err
	} else if !there {
		if err := lg.conn.Sure(ctx, wire.JobLogStream, func() error {
			_, err := lg.conn.Next(ctx, wire.JobLogStream, wire.JobLogSubject(id), 1)
			return err
		}); err != nil {
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

// readLines decodes a message of the log of a job.
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
