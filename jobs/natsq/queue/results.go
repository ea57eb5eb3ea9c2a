package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Results reads and writes the results of jobs. Its methods may be called from several goroutines.
type Results struct {
	conn    *natsconn.Conn
	askEach atomic.Int64 // until this Unix time in nanoseconds NoneAtOnce reports false
}

// NewResults returns the results that a connection reaches. The connection stays the caller's.
func NewResults(c *natsconn.Conn) *Results { return &Results{conn: c} }

// AskEach makes NoneAtOnce report false until a time. Tests use it to choose a path.
func (rs *Results) AskEach(until time.Time) { rs.askEach.Store(until.UnixNano()) }

// Lookup returns the result of a job, or jobs.ErrNotFound while it has none.
func (rs *Results) Lookup(ctx context.Context, id string) (jobs.Result, error) {
	r, _, err := rs.readResult(ctx, id)
	return r, err
}

// readResult is result, with the headers of its message.
func (rs *Results) readResult(ctx context.Context, id string) (r jobs.Result, h nats.Header, err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return r, nil, err
	}
	m, err := rs.conn.Last(ctx, wire.ResultStream, wire.ResultSubject(id))
	if errors.Is(err, jobs.ErrNotFound) {
		return r, nil, fmt.Errorf("job %s has no result: %w", id, jobs.ErrNotFound)
	}
	if err != nil {
		return r, nil, err
	}
	r, err = jobs.DecodeResult(m.Data)
	return r, m.Header, err
}

// MinTogether is the fewest jobs that are asked for together: fewer concurrent questions take less
// time than the three requests of one batch.
const MinTogether = 4

// NoneAtOnce is true when it is sure that none of up to jobs.MaxBatch jobs has a result; when it is
// false, each has to be asked for. Of a batch of 1,000 those questions were a quarter of all
// processor time from its submission to its results; this is three.
//
// Any replica may answer the question for many subjects, and one that lags is no base for a
// decision. So it is also asked for the last result that the leader had a moment before: a replica
// that has this result has all earlier ones.
func (rs *Results) NoneAtOnce(ctx context.Context, batch []jobs.Job) bool {
	if len(batch) < MinTogether || time.Now().UnixNano() < rs.askEach.Load() {
		return false
	}
	leader, cancel := context.WithTimeout(ctx, natsconn.ShortTry) // of patience with a shortcut
	defer cancel()
	s, err := rs.conn.JS.Stream(leader, wire.ResultStream)
	if err != nil {
		return false
	}
	last, err := rs.conn.GetOnce(leader, wire.ResultStream, map[string]any{"seq": s.CachedInfo().State.LastSeq})
	if err != nil {
		return false
	}
	subjects := []string{last.Subject}
	for _, j := range batch {
		subjects = append(subjects, wire.ResultSubject(j.ID))
	}
	req, err := json.Marshal(map[string]any{"multi_last": subjects, "batch": 1})
	if err != nil {
		return false
	}
	ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answered := rs.conn.Timed(natsconn.OpGet)
	m, err := rs.conn.NC.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+wire.ResultStream, req)
	answered(err)
	// the stream was made by an earlier version, or this user may not ask, which the server says by
	// silence
	if err != nil {
		rs.askEach.Store(time.Now().Add(time.Minute).UnixNano())
		return false
	}
	// The one message of the answer is the leader's last, no more would follow, and it is of none
	// of the jobs.
	return m.Header.Get(jetstream.SequenceHeader) == strconv.FormatUint(last.Seq, 10) &&
		m.Header.Get(jetstream.SubjectHeader) == last.Subject &&
		m.Header.Get("Nats-Num-Pending") == "0" && !slices.Contains(subjects[1:], last.Subject)
}

// Result waits until the job has a result. A result that says failed is returned with a nil error:
// it is an answer.
func (rs *Results) Result(ctx context.Context, id string) (jobs.Result, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Result{}, err
	}
	// Usually a push brings the result. A periodic read finds it if the push was lost with a
	// connection. The push itself is not believed: anybody may publish it.
	wake := make(chan struct{}, 1)
	sub, err := rs.conn.NC.Subscribe(wire.DoneSubject(id), func(*nats.Msg) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return jobs.Result{}, fmt.Errorf("wait for job %s: %w", id, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The server has the subscription before the first question, so a result that it does not have
	// then is pushed. What gets lost on the way, or comes from a stream of an earlier version,
	// which pushes nothing, is found by looking, ever more rarely.
	const soonest, latest = 10 * time.Millisecond, 2 * time.Second
	pause := soonest
	look := time.NewTimer(pause)
	defer look.Stop()
	began := time.Now()
	for {
		r, h, err := rs.readResult(ctx, id)
		if !errors.Is(err, jobs.ErrNotFound) {
			rs.received(ctx, r, h, began)
			return r, err
		}
		select {
		case <-wake:
			pause = soonest
		case <-look.C:
			pause = min(2*pause, latest)
		case <-ctx.Done():
			return jobs.Result{}, fmt.Errorf("wait for job %s: %w", id, context.Cause(ctx))
		}
		look.Reset(pause)
	}
}

// ResultMessage makes the message of a result, which the server forgets after ttl seconds.
func ResultMessage(r jobs.Result, ttl int) (*nats.Msg, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if ttl <= 0 {
		ttl = natsconn.ResultTTL
	}
	return &nats.Msg{
		Subject: wire.ResultSubject(r.JobID), Data: data,
		Header: nats.Header{jetstream.MsgTTLHeader: {strconv.Itoa(ttl) + "s"}},
	}, nil
}

// Put stores a result unless there is one; first is false then.
func (rs *Results) Put(ctx context.Context, r jobs.Result, ttl int) (first bool, err error) {
	return rs.Store(ctx, rs.conn.RetryIdempotent, r, ttl)
}

// Store is putResult that is tried as t says.
func (rs *Results) Store(ctx context.Context, t natsconn.RetryFunc, r jobs.Result, ttl int) (first bool, err error) {
	m, err := ResultMessage(r, ttl)
	if err != nil {
		return false, err
	}
	ctx, span := rs.conn.StartSend(ctx, "publish", wire.ResultStream)
	rs.conn.Inject(ctx, m)
	err = rs.conn.PublishMsg(ctx, t, "store the result of job "+r.JobID, m)
	if exists, _ := natsconn.Rejected(err); exists {
		span.AddEvent("refused: the job has a result")
		span.End()
		return false, nil
	}
	natsconn.EndSpan(span, err)
	return err == nil, err
}

// Progress calls fn with every progress message of a job, as JSON, until stop is called. Messages
// may be lost.
func (rs *Results) Progress(id string, fn func(json.RawMessage)) (stop func(), err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	sub, err := rs.conn.NC.Subscribe("exo.progress."+id, func(m *nats.Msg) { fn(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("watch job %s: %w", id, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Rows answers every message that a job of kind stream sends to its submitter, until stop is
// called: rows, and requests for input. answer is called in a new goroutine, several at a time, and
// may take a second. A message whose answer is lost comes again. Calls that run when stop is called
// continue.
func (rs *Results) Rows(id string, answer func(rows []byte) []byte) (stop func(), err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	free := make(chan struct{}, rowsAtOnce)
	sub, err := rs.conn.NC.Subscribe(rowsSubject+id, func(m *nats.Msg) {
		free <- struct{}{}
		go func() {
			defer func() { <-free }()
			_ = m.Respond(answer(m.Data)) // it asks again
		}()
	})
	if err != nil {
		return nil, fmt.Errorf("take the rows of job %s: %w", id, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// rowsAtOnce bounds the messages of a job that are answered at a time: it sends one of rows and one
// request.
const rowsAtOnce = 4

const rowsSubject = "exo.rows."

// SendRows hands rows to the submitter of a job and returns its answer. No stream keeps them.
func (rs *Results) SendRows(ctx context.Context, job string, rows []byte) (answer []byte, err error) {
	m, err := rs.conn.NC.RequestWithContext(ctx, rowsSubject+job, rows)
	if err != nil {
		return nil, fmt.Errorf("send rows of job %s: %w", job, err)
	}
	return m.Data, nil
}

// received makes the span of a wait for a result: of the waiter's trace, or else of the job's.
func (rs *Results) received(ctx context.Context, r jobs.Result, h nats.Header, began time.Time) {
	if rs.conn.Tracer == nil {
		return
	}
	from := trace.SpanContextFromContext(rs.conn.Extract(context.Background(), h))
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	o := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began)}
	if from.IsValid() {
		o = append(o, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	_, span := rs.conn.StartSpan(ctx, "receive", "receive", wire.ResultStream, o...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String(natsconn.AttrMessage, r.JobID))
	}
	span.End()
}
