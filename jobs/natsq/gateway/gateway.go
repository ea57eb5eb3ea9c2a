package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Subjects of requests. A client without a tenant publishes below apiPrefix. A client with an
// account of a tenant does so too, and the server maps its subjects below tenantPrefix and the name
// of the tenant. The last token is the id of a job or the name of a schedule, unless it is a verb.
const (
	apiPrefix    = "exo.api."
	tenantPrefix = "exo.tenant."
	apiSubmit    = "submit"
	apiResult    = "result.*"
	apiFind      = "find.*"
	apiCancel    = "cancel.*"
	apiCron      = "cron.>" // add, list, remove.NAME, pause.NAME, resume.NAME
	apiList      = "list.*" // of a pool
	apiLogs      = "logs.*"
	apiRetry     = "retry.*"
	apiReact     = "react" // below apiPrefix alone: it is for GPU agents, not for tenants
)

// Gateway answers requests: submit, result, find, list, logs, cancel, retry, schedules, react. Its
// clients speak only NATS and JSON, or have no permission for more.
type Gateway struct {
	conn      *natsconn.Conn
	jobs      *queue.Queue
	results   *queue.Results
	letters   *queue.DeadLetters
	schedules *queue.Schedules
	jobLogs   *queue.Logs
	rules     *Submissions

	log  *slog.Logger
	subs []*nats.Subscription
	line *requestLine

	metrics *metrics

	stop context.CancelFunc
	once sync.Once
}

const longestWait = 5 * time.Minute

// apiReply is the answer to every request. The fields that are set depend on the request; Error
// excludes all others but Job.
type apiReply struct {
	Version int              `json:"v"`
	Job     string           `json:"job,omitempty"`
	Jobs    []string         `json:"jobs,omitempty"` // of an array of submissions, in its order
	Result  *jobs.Result     `json:"result,omitempty"`
	Queued  *queue.ListedJob `json:"queued,omitempty"`

	Progress json.RawMessage    `json:"progress,omitempty"` // while there is no result
	Listed   *[]queue.ListedJob `json:"listed,omitempty"`
	Ended    *[]jobs.Result     `json:"ended,omitempty"` // without their outputs
	Logs     *[]jobs.LogLines   `json:"logs,omitempty"`
	Next     string             `json:"next,omitempty"` // where the next page begins; empty on the last page
	Over     bool               `json:"over,omitempty"` // the job whose log this is has ended

	Schedule  string                `json:"schedule,omitempty"`
	Schedules *[]jobs.ScheduleState `json:"schedules,omitempty"`

	Error *apiError `json:"error,omitempty"`
}

type apiError struct {
	Code    string `json:"code"`            // a jobs.Code, or exists, full, not_found, unavailable
	Message string `json:"message"`         // a sentence for people
	Field   string `json:"field,omitempty"` // of a request that is not valid: the field, as a JSON pointer
	Value   string `json:"value,omitempty"` // the value of the field
	Cure    string `json:"cure,omitempty"`  // what to write instead

	RetryAfter float64 `json:"retry_after_s,omitempty"` // seconds until the same request may succeed
}

// Serve starts a gateway, which offers the queue to its clients until Close. When Serve returns the
// gateway answers requests. It submits jobs of the rules of swarms. The connection stays the
// caller's, and must not be closed before the gateway.
func Serve(c *natsconn.Conn, q *queue.Queue, s Swarms, log *slog.Logger) (*Gateway, error) {
	run, stop := context.WithCancel(context.Background())
	r := queue.NewResults(c)
	g := &Gateway{
		conn: c, jobs: q, results: r, letters: queue.NewDeadLetters(c, q), schedules: queue.NewSchedules(c, q),
		jobLogs: queue.NewLogs(c, q, r), rules: NewSubmissions(c, q, s), log: log, stop: stop,
	}
	g.line = newRequestLine(func(m *nats.Msg, from owner) {
		at := &requestPlace{l: g.line, from: from}
		defer at.leave()
		began := time.Now()
		r := g.answer(run, m, at)
		g.metrics.answered(m.Subject, r, began)
		g.reply(m, r)
	})
	g.metrics = newMetrics(g.line)
	var subjects []string
	for _, what := range []string{apiSubmit, apiResult, apiFind, apiCancel, apiCron, apiList, apiLogs, apiRetry} {
		subjects = append(subjects, apiPrefix+what, tenantPrefix+"*."+what)
	}
	subjects = append(subjects, apiPrefix+apiReact)
	for _, subject := range subjects {
		sub, err := c.NC.QueueSubscribe(subject, "exo-gateway", func(m *nats.Msg) {
			if from, _ := caller(m.Subject); !g.line.add(m, from) {
				g.reply(m, apiReply{Error: &apiError{Code: "unavailable", Message: "too many requests at once: ask " +
					"again later"}})
			}
		})
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("serve %s: %w", subject, err)
		}
		g.subs = append(g.subs, sub)
	}
	// After the flush the server has the subscriptions. A server that is away gets them later.
	if err := c.NC.FlushTimeout(5 * time.Second); err != nil {
		log.Warn("requests are answered when the server is back", "error", err)
	}
	return g, nil
}

// Close ends the subscriptions, refuses the waiting requests, and waits for the running ones, whose
// contexts end. A second call waits too.
func (g *Gateway) Close() {
	g.once.Do(func() {
		for _, s := range g.subs {
			_ = s.Unsubscribe()
		}
		g.stop()
	})
	for _, m := range g.line.close() {
		g.reply(m, apiReply{Error: &apiError{Code: "unavailable", Message: "this agent ends: ask again"}})
	}
	g.line.ended.Wait()
}

// reply sends an answer. An answer that is too large for a message becomes an error, which names
// where the result is stored.
func (g *Gateway) reply(m *nats.Msg, r apiReply) {
	if m.Reply == "" {
		return // the sender has published, and expects no answer
	}
	r.Version = jobs.Version
	data, err := r.encode()
	if err == nil && len(data) > jobs.MaxMessage {
		data, err = apiReply{Version: jobs.Version, Job: r.Job, Error: &apiError{
			Code: string(jobs.CodeInternal), Message: "the answer does not fit a message; a result is exo.res." +
				r.Job + " of stream " + wire.ResultStream,
		}}.encode()
	}
	if err != nil {
		g.log.Error("answering a request", "subject", m.Subject, "error", err)
		return
	}
	if err := m.Respond(data); err != nil {
		g.log.Warn("answering a request", "subject", m.Subject, "error", err)
	}
}

// encode returns the answer as JSON. It does not escape < > & with six letters each, because a
// result that fits into a message must fit into an answer.
func (r apiReply) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// answer executes a request and returns its answer. at is the place of the request in the line,
// which is parked before a wait.
func (g *Gateway) answer(ctx context.Context, m *nats.Msg, at *requestPlace) apiReply {
	ctx, cancel := context.WithTimeout(ctx, longestWait+time.Minute)
	defer cancel()
	ctx = g.conn.Extract(ctx, m.Header)
	from, what := caller(m.Subject)
	verb, id, _ := strings.Cut(what, ".")
	var r apiReply
	var err error
	switch {
	case verb == "submit" && bytes.HasPrefix(bytes.TrimLeft(m.Data, " \t\r\n"), []byte("[")):
		r.Jobs, err = g.submitAll(ctx, from, m.Data)
	case verb == "submit":
		r.Job, err = g.submit(ctx, from, m.Data)
	case what == apiReact:
		err = g.react(ctx, m.Data)
	case verb == "cron":
		err = g.cron(ctx, from, id, m, &r)
	case verb == "list":
		err = g.list(ctx, from, jobs.Pool(id), m.Data, &r)
	default:
		r.Job = from.own(id)
		switch verb {
		case "result":
			r.Result, r.Progress, err = g.result(ctx, r.Job, m.Data, at)
		case "find":
			r.Queued, err = g.find(ctx, from, r.Job)
		case "logs":
			err = g.logs(ctx, r.Job, m.Data, &r, at)
		case "retry":
			err = g.retry(ctx, from, r.Job)
		default:
			err = g.cancel(ctx, from, r.Job, m.Data)
		}
	}
	if err != nil {
		r.Error = apiFailure(err)
	}
	return r
}

// apiFailure returns err as the error of an answer. Client turns it back into an error of the same
// class.
func apiFailure(err error) *apiError {
	e := &apiError{Message: err.Error(), RetryAfter: jobs.RetryAfter(err).Seconds()}
	var s *schema.Error
	switch {
	case errors.As(err, &s):
		e.Code, e.Field, e.Value, e.Cure = string(jobs.CodeInvalid), s.Field, s.Value, s.Cure
	case errors.Is(err, jobs.ErrExists):
		e.Code = "exists"
	case errors.Is(err, jobs.ErrFull):
		e.Code = "full"
	case errors.Is(err, jobs.ErrNotFound):
		e.Code = "not_found"
	case errors.Is(err, jobs.ErrUnavailable), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, context.Canceled):
		e.Code = "unavailable"
	default:
		e.Code = string(jobs.AsError(err).Code)
	}
	return e
}

// ParseSubmission decodes a request to submit: a job that may omit version, id and time of
// submission. The error is a *schema.Error for a field, or a *jobs.Error for a rule between two
// fields.
func ParseSubmission(data []byte) (jobs.Job, error) {
	j, _, err := parseSubmission(data)
	return j, err
}

// parseSubmission is ParseSubmission. made reports that the id was omitted, so no other job has it.
func parseSubmission(data []byte) (j jobs.Job, made bool, err error) {
	if err := schema.Validate(schema.Submission, data); err != nil {
		return j, false, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&j); err != nil {
		return jobs.Job{}, false, jobs.Errorf(jobs.CodeInvalid, "submission: %v", err)
	}
	j.Version = jobs.Version
	if made = j.ID == ""; made {
		j.ID = natsconn.NewID()
	}
	if j.Submitted.IsZero() {
		j.Submitted = time.Now().UTC()
	}
	j = j.WithDefaults()
	if err := j.Validate(); err != nil {
		return j, made, err
	}
	return j, made, schema.CheckSpec(j)
}

// submit submits one job and returns its id, also with an error.
func (g *Gateway) submit(ctx context.Context, from owner, data []byte) (string, error) {
	j, made, err := parseSubmission(data)
	if err == nil {
		j, err = from.admit(j)
	}
	if err != nil {
		return j.ID, err
	}
	return j.ID, g.jobs.SubmitNew(ctx, j, made)
}

// submitAll submits an array of jobs, all or none, and returns their ids in the order of the array.
func (g *Gateway) submitAll(ctx context.Context, from owner, data []byte) (ids []string, err error) {
	if err := jobs.CheckJSON(data); err != nil {
		return nil, err
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "submission: %v", err)
	}
	if len(all) == 0 || len(all) > jobs.MaxBatch {
		return nil, jobs.Errorf(jobs.CodeInvalid, "an array of %d jobs: use 1 to %d", len(all), jobs.MaxBatch)
	}
	batch := make([]jobs.Job, len(all))
	for i, one := range all {
		j, err := ParseSubmission(one)
		if err == nil {
			j, err = from.admit(j)
		}
		if err != nil {
			return nil, fmt.Errorf("job %d of the array: %w", i+1, err)
		}
		batch[i], ids = j, append(ids, j.ID)
	}
	if err := g.jobs.SubmitBatch(ctx, batch); err != nil {
		return nil, err
	}
	return ids, nil
}

// errProgressed is the cause with which a wait for a result ends because of progress.
var errProgressed = errors.New("there is progress")

// result returns the result of a job, or its next progress if the request asks for that. It parks
// the request before it waits. Without a result at the end of the wait it fails with
// jobs.ErrNotFound.
func (g *Gateway) result(ctx context.Context, id string, data []byte,
	at *requestPlace,
) (*jobs.Result, json.RawMessage, error) {
	var o struct {
		Wait     float64 `json:"wait_s"`
		Progress bool    `json:"progress"`
	}
	if err := readRequest(data, &o); err != nil || o.Wait < 0 || o.Wait > longestWait.Seconds() {
		return nil, nil, jobs.Errorf(jobs.CodeInvalid,
			`a request for a result is empty or {"wait_s": N} with N from 0 to %v, and "progress": true for news `+
				`meanwhile`, longestWait.Seconds())
	}
	if now, err := g.results.Lookup(ctx, id); err == nil {
		return &now, nil, nil
	} else if o.Wait == 0 || !errors.Is(err, jobs.ErrNotFound) {
		return nil, nil, err
	}
	if err := at.park(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, seconds(o.Wait),
		fmt.Errorf("it has no result yet: %w", jobs.ErrNotFound))
	defer cancel()
	news := make(chan json.RawMessage, 1)
	if o.Progress {
		told, end := context.WithCancelCause(ctx)
		defer end(nil)
		stop, err := g.results.Progress(id, func(data json.RawMessage) {
			select {
			case news <- data:
				end(errProgressed)
			default: // the client asks again for later progress
			}
		})
		if err != nil {
			return nil, nil, err
		}
		defer stop()
		ctx = told
	}
	r, err := g.results.Result(ctx, id)
	if errors.Is(err, errProgressed) || err != nil && errors.Is(context.Cause(ctx), errProgressed) {
		return nil, <-news, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return &r, nil, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// readRequest decodes the body of a request into o. An empty body leaves o as it is.
func readRequest(data []byte, o any) error {
	if len(data) == 0 {
		return nil
	}
	if err := jobs.CheckJSON(data); err != nil {
		return err
	}
	return json.Unmarshal(data, o)
}

func (g *Gateway) find(ctx context.Context, from owner, id string) (*queue.ListedJob, error) {
	l, err := g.jobs.Locate(ctx, id)
	if err == nil {
		err = from.check(l.Job)
	}
	if err != nil {
		return nil, err
	}
	return &l, nil
}

// cancel cancels a job. For a job that has ended it does nothing.
func (g *Gateway) cancel(ctx context.Context, from owner, id string, data []byte) error {
	var o struct {
		Finish bool `json:"finish"`
	}
	if err := readRequest(data, &o); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, `a request to cancel is empty or {"finish": true}`)
	}
	j, err := g.jobs.Find(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		if _, lerr := g.results.Lookup(ctx, id); lerr == nil {
			return nil // it has ended
		}
	}
	if err == nil {
		err = from.check(j)
	}
	if err != nil {
		return err
	}
	return g.jobs.Cancel(ctx, j, o.Finish)
}
