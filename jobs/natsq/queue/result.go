package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Lookup returns the result of a job, or jobs.ErrNotFound while it has none.
func (q *Queue) Lookup(ctx context.Context, id string) (jobs.Result, error) {
	r, _, err := q.readResult(ctx, id)
	return r, err
}

// readResult is result, with the headers of its message.
func (q *Queue) readResult(ctx context.Context, id string) (r jobs.Result, h nats.Header, err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return r, nil, err
	}
	m, err := q.conn.Last(ctx, wire.ResultStream, wire.ResultSubject(id))
	if errors.Is(err, jobs.ErrNotFound) {
		return r, nil, fmt.Errorf("job %s has no result: %w", id, jobs.ErrNotFound)
	}
	if err != nil {
		return r, nil, err
	}
	r, err = jobs.DecodeResult(m.Data)
	return r, m.Header, err
}

// worthAsking is the fewest jobs that are asked for together: fewer questions side by side take less than three in turn.
const worthAsking = 4

// noneAtOnce is true when it is sure that none of up to jobs.MaxBatch jobs has a result; when it is false, each has to be asked for. Of a
// batch of 1,000 those questions were a quarter of all processor time from its submission to its results; this is three.
//
// Any replica may answer the question for many subjects, and one that lags is no base for a decision. So it is asked for the last result
// too that the leader had a moment before: a replica that has that one has all that came before it.
func (q *Queue) noneAtOnce(ctx context.Context, batch []jobs.Job) bool {
	if len(batch) < worthAsking || time.Now().UnixNano() < q.askEach.Load() {
		return false
	}
	leader, cancel := context.WithTimeout(ctx, natsconn.ShortTry) // of patience with a shortcut
	defer cancel()
	s, err := q.conn.JS.Stream(leader, wire.ResultStream)
	if err != nil {
		return false
	}
	last, err := q.conn.GetOnce(leader, wire.ResultStream, map[string]any{"seq": s.CachedInfo().State.LastSeq})
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
	m, err := q.conn.NC.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+wire.ResultStream, req)
	if err != nil { // the stream was made by an earlier version, or this user may not ask, which the server says by silence
		q.askEach.Store(time.Now().Add(time.Minute).UnixNano())
		return false
	}
	// The one message of the answer is the leader's last, no more would follow, and it is of none of the jobs.
	return m.Header.Get(jetstream.SequenceHeader) == strconv.FormatUint(last.Seq, 10) && m.Header.Get(jetstream.SubjectHeader) == last.Subject &&
		m.Header.Get("Nats-Num-Pending") == "0" && !slices.Contains(subjects[1:], last.Subject)
}

// Result waits until the job has a result. A result that says failed is returned with a nil error: it is an answer.
func (q *Queue) Result(ctx context.Context, id string) (jobs.Result, error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return jobs.Result{}, err
	}
	// A push as the usual case, and a look now and then in case the push was lost with a connection. The push itself is not
	// believed: anybody may publish it.
	wake := make(chan struct{}, 1)
	sub, err := q.conn.NC.Subscribe(wire.DoneSubject(id), func(*nats.Msg) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return jobs.Result{}, fmt.Errorf("wait for job %s: %w", id, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The server has the subscription before the first question, so a result that it does not have then is pushed. What gets lost on
	// the way, or comes from a stream of an earlier version, which pushes nothing, is found by looking, ever more rarely.
	const soonest, latest = 10 * time.Millisecond, 2 * time.Second
	pause := soonest
	look := time.NewTimer(pause)
	defer look.Stop()
	began := time.Now()
	for {
		r, h, err := q.readResult(ctx, id)
		if !errors.Is(err, jobs.ErrNotFound) {
			q.received(ctx, r, h, began)
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
	return &nats.Msg{Subject: wire.ResultSubject(r.JobID), Data: data, Header: nats.Header{jetstream.MsgTTLHeader: {strconv.Itoa(ttl) + "s"}}}, nil
}

// PutResult stores a result unless there is one; first is false then.
func (q *Queue) PutResult(ctx context.Context, r jobs.Result, ttl int) (first bool, err error) {
	return q.StoreResult(ctx, q.conn.RetryIdempotent, r, ttl)
}

// StoreResult is putResult that is tried as t says.
func (q *Queue) StoreResult(ctx context.Context, t natsconn.RetryFunc, r jobs.Result, ttl int) (first bool, err error) {
	m, err := ResultMessage(r, ttl)
	if err != nil {
		return false, err
	}
	ctx, span := q.conn.StartSend(ctx, "publish", wire.ResultStream)
	q.conn.Inject(ctx, m)
	err = q.conn.PublishMsg(ctx, t, "store the result of job "+r.JobID, m)
	if exists, _ := natsconn.Rejected(err); exists {
		span.AddEvent("refused: the job has a result")
		span.End()
		return false, nil
	}
	natsconn.EndSpan(span, err)
	return err == nil, err
}

// Progress calls fn with every progress message of a job, as JSON, until stop is called. Messages may be lost.
func (q *Queue) Progress(id string, fn func(json.RawMessage)) (stop func(), err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	sub, err := q.conn.NC.Subscribe("exo.progress."+id, func(m *nats.Msg) { fn(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("watch job %s: %w", id, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Rows answers every message that a job of kind stream sends to its submitter, until stop is called: rows, and requests for input. answer is
// called in a goroutine of its own, several at a time, and may take a second; a message whose answer is lost comes again. Calls that run when stop is called go on.
func (q *Queue) Rows(id string, answer func(rows []byte) []byte) (stop func(), err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	free := make(chan struct{}, rowsAtOnce)
	sub, err := q.conn.NC.Subscribe(rowsSubject+id, func(m *nats.Msg) {
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

// rowsAtOnce bounds the messages of a job that are answered at a time: it sends one of rows and one request.
const rowsAtOnce = 4

const rowsSubject = "exo.rows."

// SendRows hands rows to the submitter of a job and returns its answer. No stream keeps them.
func (q *Queue) SendRows(ctx context.Context, job string, rows []byte) (answer []byte, err error) {
	m, err := q.conn.NC.RequestWithContext(ctx, rowsSubject+job, rows)
	if err != nil {
		return nil, fmt.Errorf("send rows of job %s: %w", job, err)
	}
	return m.Data, nil
}
