package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// batchBytes is the size at which a document of several messages is stored, in bytes.
const batchBytes = 8 << 20

// endlessBatch is the default of BatchSeconds of a source without an end: a decision must come
// soon.
const endlessBatch = 0.1

// errOver ends the collection of a document, or of all documents.
var errOver = errors.New("the time of a source is over")

// progress is the part of the state of a source of messages that its bounds need.
type progress struct {
	Count uint64    `json:"count,omitempty"` // of messages, or of rows that were pushed
	Until time.Time `json:"until,omitzero"`  // the end of the reading
}

// collector has the bounds of a source of messages, which are collected into documents, and its
// times. Fetchers embed it. One goroutine uses it.
type collector struct {
	passive
	where  string
	format rows.Format
	bounds SubjectSpec
	until  time.Time // of this attempt, when no document holds it
	first  time.Time // when the first message of the last document came
}

// newCollector returns a collector with the defaults of its bounds, or an error of class
// jobs.CodeInvalid. The parameter counted names what Messages counts. Unless endless is set, a
// source without an end is refused, because the job would never finish.
func newCollector(uri string, format rows.Format, counted string, bounds SubjectSpec, endless bool) (collector, error) {
	bad := badSource(uri)
	bounds.BatchMessages = cmp.Or(bounds.BatchMessages, 1000)
	if bounds.BatchSeconds == 0 {
		if bounds.BatchSeconds = 1; endless {
			bounds.BatchSeconds = endlessBatch
		}
	}
	switch s := bounds; {
	case s.Messages == 0 && s.For == 0 && !endless:
		return collector{}, bad("it has no end: set %s, for_s, or both", counted)
	case s.Messages > 1e9:
		return collector{}, bad("%s %d: use 1 to 1000000000", counted, s.Messages)
	case s.For != 0 && !(s.For >= 0.1 && s.For <= 31_536_000):
		return collector{}, bad("for_s %v: use 0.1 to 31536000", s.For)
	case s.BatchMessages < 1 || s.BatchMessages > 10_000:
		return collector{}, bad("batch_messages %d: use 1 to 10000", s.BatchMessages)
	case !(s.BatchSeconds >= 0.001 && s.BatchSeconds <= 60):
		return collector{}, bad("batch_s %v: use 0.001 to 60", s.BatchSeconds)
	}
	return collector{where: uri, format: cmp.Or(format, "ndjson"), bounds: bounds}, nil
}

func (c *collector) arrived() time.Time { return c.first }

// restore decodes the state of a position into st, which includes p, and sets the end of the
// reading in the first attempt.
func (c *collector) restore(at position, st any, p *progress) error {
	if err := at.decode(c.where, st); err != nil {
		return err
	}
	if c.bounds.For > 0 && p.Until.IsZero() {
		if c.until.IsZero() {
			c.until = time.Now().Add(time.Duration(c.bounds.For * float64(time.Second))).UTC()
		}
		p.Until = c.until
	}
	return nil
}

// position returns the position with a state, which includes p. It is the last one if the messages
// or the time are over.
func (c *collector) position(st any, p progress, format rows.Format, gaps []skipped) (position, error) {
	return position{
		Format: format, Exact: true, Skipped: gaps,
		Done: c.bounds.Messages > 0 && p.Count >= c.bounds.Messages ||
			!p.Until.IsZero() && !time.Now().Before(p.Until),
	}.with(c.where, st)
}

// classOf returns an error of a broker with its class. A refusal is an error of the input, with a
// cure; any other error may pass.
func (c *collector) classOf(err error, cure string, refused bool) error {
	var typed *jobs.Error
	switch {
	case errors.As(err, &typed), errors.Is(err, context.Canceled):
		return err
	case refused:
		return access.InputError("source %s: %v%s", c.where, err, cure)
	}
	return jobs.Retry(fmt.Errorf("source %s: %w", c.where, err))
}

// collection is the collection of one document.
type collection struct {
	c        *collector
	p        *progress
	messages int
	bytes    int
	end      func(cause error)
	timers   []*time.Timer
}

// collect begins a document. wait ends with errOver when the document must be stored: at the end of
// the reading, or BatchSeconds after its first message. The caller calls close.
func (c *collector) collect(ctx context.Context, p *progress) (wait context.Context, d *collection) {
	wait, end := context.WithCancelCause(ctx)
	d = &collection{c: c, p: p, end: end}
	if !p.Until.IsZero() {
		d.endIn(time.Until(p.Until))
	}
	return wait, d
}

func (d *collection) endIn(after time.Duration) {
	if after <= 0 {
		d.end(errOver)
		return
	}
	d.timers = append(d.timers, time.AfterFunc(after, func() { d.end(errOver) }))
}

// full reports whether the document takes no more messages.
func (d *collection) full() bool {
	b := &d.c.bounds
	return d.messages >= b.BatchMessages || d.bytes >= batchBytes || b.Messages > 0 && d.p.Count >= b.Messages
}

// add counts a message of the document, which has count of what Messages counts. What has come
// does not wait for long.
func (d *collection) add(bytes int, count uint64) {
	d.bytes += bytes
	d.p.Count += count
	if d.messages++; d.messages == 1 {
		d.c.first = time.Now()
		d.endIn(time.Duration(d.c.bounds.BatchSeconds * float64(time.Second)))
	}
}

func (d *collection) close() {
	d.end(nil)
	for _, t := range d.timers {
		t.Stop()
	}
}
