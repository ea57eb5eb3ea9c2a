package cpuagents

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// SinkSpec says where decisions go as they are made, beside the output: nats:STREAM/SUBJECT, file:ROOT/FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
// sqlite:ROOT/PATH?table=TABLE or postgres://USER@HOST:PORT/DATABASE?table=TABLE.
type SinkSpec struct {
	URI string `json:"uri"`
	// Format of messages, files and objects; ndjson when empty. Not for tables.
	Format rows.Format `json:"format,omitempty"`
	// Anomalies sends the decisions for the last candidate alone.
	Anomalies bool `json:"anomalies,omitempty"`
	// PartRows is how many decisions a file or object has at least, but the last, 1 to 1,000,000; 0 means 65,536.
	PartRows int `json:"part_rows,omitempty"`
	// Password and TLS as those of SQLSpec, Object as those of ObjectSpec.
	Password string            `json:"password,omitempty"`
	TLS      string            `json:"tls,omitempty"`
	Object   *remote.StoreSpec `json:"object,omitempty"`
	// Timeout of a write, Tries and Backoff as those of HTTPSpec.
	Timeout float64 `json:"timeout_s,omitempty"`
	Tries   int     `json:"tries,omitempty"`
	Backoff float64 `json:"backoff_s,omitempty"`
}

const (
	// maxSinks bounds the sinks of a job beside its output and its webhook.
	maxSinks = 8
	// tapShard is the place of the journal of a webhook among the logs of a job, behind those of its sources; those of sinks follow.
	tapShard = maxRemote + 1

	defaultPartRows = 65_536
	mostPartRows    = 1_000_000
)

// tap takes decisions as they are made, beside the output. One goroutine uses it. A job that goes on elsewhere sends everything again from its first
// batch; what a tap has it leaves out.
type tap interface {
	// open finds how far earlier attempts came; log is the tap's own, for those that keep their position there.
	open(ctx context.Context, log jobs.Log) error
	// send takes a batch of decisions, whose numbers grow. It returns when the batch is kept, or held back for end.
	send(ctx context.Context, number uint64, d *batch.Decisions) error
	// end keeps what is held back.
	end(ctx context.Context) error
	close()
}

// mark is how far a tap has come, kept on the queue.
type mark struct {
	log   jobs.Log
	after uint64 // last entry of log
	sent  uint64 // last batch kept
}

// entrySent marks that everything up to a batch has been taken.
const entrySent = "sent"

func (m *mark) open(ctx context.Context, log jobs.Log) error {
	if err := log.Create(ctx); err != nil {
		return err
	}
	last, err := log.Last(ctx)
	if err != nil {
		return err
	}
	m.log, m.after, m.sent = log, last.Seq, last.Ref
	return nil
}

func (m *mark) set(ctx context.Context, number uint64) error {
	if err := m.log.Append(ctx, m.after, jobs.Entry{Kind: entrySent, Ref: number}); err != nil {
		return fmt.Errorf("keep the position of a sink: %w", err)
	}
	m.after++
	m.sent = number
	// Only the last mark counts.
	return m.log.Trim(ctx, m.after)
}

// sinkBase is what every sink has.
type sinkBase struct {
	where     string // for messages
	spec      SinkSpec
	limits    remote.Limits
	anomaly   uint32
	anomalies bool
}

// wanted says whether decision i goes to the sink.
func (b *sinkBase) wanted(d *batch.Decisions, i int) bool {
	return !b.anomalies || d.Decision[i] == b.anomaly
}

// try calls once as often as the spec says, each with the time that it says.
func (b *sinkBase) try(ctx context.Context, once func(ctx context.Context) error) error {
	return b.limits.Retry().Do(ctx, func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, b.limits.RequestTimeout())
		defer cancel()
		return 0, once(ctx)
	})
}

// bad is an error of the spec.
func (b *sinkBase) bad(format string, args ...any) error {
	return jobs.Errorf(jobs.CodeInvalid, "sink %s: %s", b.where, fmt.Sprintf(format, args...))
}

// newTap checks a sink, number i of a job, and opens nothing yet but what fails without a connection.
func (s *Streamer) newTap(job string, i int, spec SinkSpec, l encode.Layout) (_ tap, err error) {
	b := sinkBase{where: remote.WithoutQuery(spec.URI), spec: spec, anomaly: uint32(len(l.Candidates) - 1), anomalies: spec.Anomalies}
	if b.limits, err = (remote.Limits{Timeout: spec.Timeout, Tries: spec.Tries, Backoff: spec.Backoff}).WithDefaults(); err != nil {
		return nil, b.bad("%v", err)
	}
	doc := encode.NewDocument(cmp.Or(spec.Format, "ndjson"), l)
	if _, _, err := encode.New(doc.Format, l); err != nil {
		return nil, b.bad("%v", err)
	}
	key := fmt.Sprintf("%s/%d", job, i)
	scheme, _, _ := strings.Cut(spec.URI, ":")
	switch {
	case spec.Format != "" && (scheme == "sqlite" || scheme == "postgres"):
		return nil, b.bad("a table has no format: leave it out")
	case spec.PartRows < 0 || spec.PartRows > mostPartRows:
		return nil, b.bad("part_rows %d: use 1 to %d", spec.PartRows, mostPartRows)
	case spec.PartRows != 0 && scheme != "file" && !remote.IsObject(spec.URI):
		return nil, b.bad("part_rows is for files and objects: leave it out")
	}
	switch scheme {
	case "nats":
		return newSubjectTap(b, key, doc, s)
	case "file", "s3", "gs":
		return newObjectTap(b, doc, s)
	case "sqlite", "postgres":
		return newTableTap(b, key, l, s)
	}
	return nil, b.bad("write nats:STREAM/SUBJECT, file:ROOT/FOLDER, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, sqlite:ROOT/PATH?table=TABLE or postgres://USER@HOST:PORT/DATABASE?table=TABLE")
}
