// Package sink sends the decisions of a job to other systems while they are made: to JetStream
// subjects, files, object stores, tables of databases, a webhook, Alertmanager, Slack, Prometheus,
// and the submitter of the job.
//
// Each sink keeps its position where it can be most exact: in a log of the queue, in the target
// database, or in the names of its objects. Sinks that tell people or monitoring systems of
// decisions never stop the job, see notifier.
package sink

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Spec names a sink. Its URI is nats:STREAM/SUBJECT, file:ROOT/FOLDER, s3://BUCKET/PREFIX,
// gs://BUCKET/PREFIX, sqlite:ROOT/PATH?table=TABLE, postgres://USER@HOST:PORT/DATABASE?table=TABLE,
// alertmanager:URL, slack:URL or prometheus:URL.
type Spec struct {
	URI string `json:"uri"`
	// Format of messages, files and objects; ndjson when empty. Not for tables.
	Format rows.Format `json:"format,omitempty"`
	// Anomalies sends only the decisions for the last candidate.
	Anomalies bool `json:"anomalies,omitempty"`
	// PartRows is the least number of decisions of a file or object, except the last one: 1 to
	// 1,000,000; 0 means 65,536.
	PartRows int `json:"part_rows,omitempty"`
	// Password and TLS are as for an SQL source, and Object as for a source of objects.
	Password string            `json:"password,omitempty"`
	TLS      string            `json:"tls,omitempty"`
	Object   *remote.StoreSpec `json:"object,omitempty"`
	// Timeout of a write, Tries and Backoff are as in remote.Limits.
	Timeout float64 `json:"timeout_s,omitempty"`
	Tries   int     `json:"tries,omitempty"`
	Backoff float64 `json:"backoff_s,omitempty"`
	// Headers are as in WebhookSpec, and Rate bounds the requests a second, for URIs that end with
	// a URL.
	Headers map[string]string `json:"headers,omitempty"`
	Rate    float64           `json:"rate,omitempty"`
	// Labels are added to the alerts of Alertmanager and the series of Prometheus.
	Labels map[string]string `json:"labels,omitempty"`
	// MaxSeries is the number of entities that have a series in Prometheus, 1 to 1,000,000; 0 means
	// 10,000.
	MaxSeries int `json:"max_series,omitempty"`
}

const (
	defaultPartRows = 65_536
	mostPartRows    = 1_000_000
)

// Sink takes the decisions of a job as they are made. One goroutine uses it: it calls open, send
// for each batch in order, and end; and close in any case. An attempt that continues a job sends
// every batch again from the first one, and the sink leaves out what it has.
type Sink interface {
	// Open finds the position that earlier attempts reached. The log belongs to this sink, and a
	// sink may keep its position there.
	Open(ctx context.Context, log swarms.Log) error
	// Send takes a batch of decisions. The numbers of the batches grow. It returns when the batch
	// is stored, or is held for end.
	Send(ctx context.Context, number uint64, d *batch.Decisions) error
	// End stores what is held.
	End(ctx context.Context) error
	// Close releases the connections. It stores nothing.
	Close()
}

// Holder is a sink that holds decisions in memory until End.
type Holder interface {
	// Held returns the number of the first batch whose decisions are held; 0 if there is none.
	Held() uint64
}

// Queue is what sinks need of the queue.
type Queue interface {
	// Publish stores a message in a stream that does not belong to the queue.
	Publish(ctx context.Context, p jobs.Publication) error
	// Published returns the id of the last message of a subject; empty if there is none.
	Published(ctx context.Context, stream, subject string) (id string, err error)
	// SendRows sends rows to the submitter of a job and returns its answer.
	SendRows(ctx context.Context, job string, rows []byte) (answer []byte, err error)
}

// Resources are what the sinks of a job may use. Sinks share them, and do not close them.
type Resources struct {
	Queue   Queue
	Files   *files.Files
	Egress  *access.Guard // nil for no network
	Secrets *access.Store // nil for the secrets of the environment
	// AllowStream returns an error if the job may not publish to a JetStream stream.
	AllowStream func(stream string) error
	// Name is the name of the swarm, for alerts and series.
	Name string
	// Resumes says that a later job sends what sinks hold at the end, so End waits for less.
	Resumes bool
	Logger  *slog.Logger // nil for none
	// Dropped counts decisions or messages that a sink of a kind has dropped; nil for nothing.
	Dropped func(kind, reason string, n int)
}

// positionLog keeps the position of a sink in a log of the queue: the number of the last batch that
// is stored.
type positionLog struct {
	log   swarms.Log
	after uint64 // last entry of log
	sent  uint64 // last batch that is stored
	state []byte // that was stored with the position, when the log was opened
}

// entrySent is the kind of an entry that marks all batches up to Ref as stored.
const entrySent = "sent"

// Open implements Sink: it reads the position from the log.
func (m *positionLog) Open(ctx context.Context, log swarms.Log) error {
	if err := log.Create(ctx); err != nil {
		return err
	}
	last, err := log.Last(ctx)
	if err != nil {
		return err
	}
	m.log, m.after, m.sent, m.state = log, last.Seq, last.Ref, last.Data
	return nil
}

// advance stores a position: all batches up to number are stored in the target. It is called after
// the target has acknowledged them. jobs.ErrFenced means that another attempt has the log.
func (m *positionLog) advance(ctx context.Context, number uint64) error {
	return m.advanceWith(ctx, number, nil)
}

// advanceWith is advance with a state that the next attempt finds with the position.
func (m *positionLog) advanceWith(ctx context.Context, number uint64, state []byte) error {
	if err := m.log.Append(ctx, m.after, swarms.Entry{Kind: entrySent, Ref: number, Data: state}); err != nil {
		return fmt.Errorf("keep the position of a sink: %w", err)
	}
	m.after++
	m.sent = number
	// Only the last position counts.
	return m.log.Trim(ctx, m.after)
}

// base is the common part of sinks. It does not change after New, so it is shared by the attempts
// of a write.
type base struct {
	where     string // for messages
	spec      Spec
	limits    remote.Limits
	anomaly   uint32 // the last candidate
	anomalies bool   // send the decisions for the last candidate alone
}

// wanted reports whether decision i goes to the sink. A dropped observation has no decision, so it
// is sent only if all decisions are.
func (b *base) wanted(d *batch.Decisions, i int) bool {
	return !b.anomalies || d.Decision[i] == b.anomaly
}

// try calls once until it succeeds, with the tries and the time of the specification. once must be
// safe to repeat, as a call that failed may have had its effect.
func (b *base) try(ctx context.Context, once func(ctx context.Context) error) error {
	return b.limits.Retry().Do(ctx, func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, b.limits.RequestTimeout())
		defer cancel()
		return 0, once(ctx)
	})
}

// bad returns an error of the specification, of class jobs.CodeInvalid, that names the sink without
// its secrets.
func (b *base) bad(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInvalid, "sink %s: %s", b.where, fmt.Sprintf(format, args...))
}

// New returns the sink of a specification, which is number i of a job. It makes no connection yet.
// The sink finds its position by job and number, so both must be the same in every attempt.
func (s Resources) New(job string, i int, spec Spec, l rows.Layout) (_ Sink, err error) {
	b := base{
		where:     remote.WithoutQuery(spec.URI),
		spec:      spec,
		anomaly:   uint32(len(l.Candidates) - 1),
		anomalies: spec.Anomalies,
	}
	if b.limits, err = (remote.Limits{
		Timeout: spec.Timeout, Tries: spec.Tries,
		Backoff: spec.Backoff,
	}).WithDefaults(); err != nil {
		return nil, b.bad("%v", err)
	}
	doc := rows.NewDocument(cmp.Or(spec.Format, "ndjson"), l)
	if _, _, err := rows.NewEncoder(doc.Format, l); err != nil {
		return nil, b.bad("%v", err)
	}
	key := fmt.Sprintf("%s/%d", job, i)
	scheme, _, _ := strings.Cut(spec.URI, ":")
	switch {
	case spec.Format != "" && (scheme == "sqlite" || scheme == "postgres"):
		return nil, b.bad("a table has no format: leave it out")
	case spec.PartRows < 0 || spec.PartRows > mostPartRows:
		return nil, b.bad("part_rows %d: use 1 to %d", spec.PartRows, mostPartRows)
	case !tells(scheme) && (len(spec.Headers) > 0 || spec.Rate != 0):
		return nil, b.bad("headers and rate are for alertmanager, slack and prometheus: leave them out")
	case len(spec.Labels) > 0 && scheme != "alertmanager" && scheme != "prometheus":
		return nil, b.bad("labels are for alertmanager and prometheus: leave them out")
	case spec.MaxSeries != 0 && scheme != "prometheus":
		return nil, b.bad("max_series is for prometheus: leave it out")
	case tells(scheme) && (spec.Format != "" || spec.Password != "" || spec.TLS != "" || spec.Object != nil):
		return nil, b.bad("format, password, tls and object are not for %s: leave them out", scheme)
	case spec.PartRows != 0 && scheme != "file" && !remote.IsObject(spec.URI):
		return nil, b.bad("part_rows is for files and objects: leave it out")
	}
	switch scheme {
	case "nats":
		return newSubject(b, key, doc, s)
	case "file", "s3", "gs":
		return newObject(b, doc, s)
	case "sqlite", "postgres":
		return newTable(b, key, l, s)
	case "alertmanager":
		return newAlertmanager(b, l, s)
	case "slack":
		return newSlack(b, l, s)
	case "prometheus":
		return newPrometheus(b, l, s)
	}
	return nil, b.bad(
		"write nats:STREAM/SUBJECT, file:ROOT/FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, " +
			"sqlite:ROOT/PATH?table=TABLE, postgres://USER@HOST:PORT/DATABASE?table=TABLE, alertmanager:URL, " +
			"slack:URL or prometheus:URL",
	)
}

// Notifiers returns the kinds of sinks that drop what their destination does not take in time.
func Notifiers() []string { return []string{"alertmanager", "slack", "prometheus"} }

// DropReasons returns the reasons for which Resources.Dropped is called.
func DropReasons() []string { return []string{DroppedFull, DroppedRefused, DroppedBound, DroppedOrder} }

func tells(scheme string) bool { return slices.Contains(Notifiers(), scheme) }
