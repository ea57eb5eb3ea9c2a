package dashboard

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/jobs"
)

// Bounds of questions to the cluster. A browser with a login can ask for any number of jobs: these
// bounds keep it from filling the memory of the process or loading the NATS servers.
const (
	maxAnswers = 512              // alive at a time
	maxAsking  = 8                // questions at a time; others wait
	askFor     = 15 * time.Second // for the wait and the question together
)

// answers shares answers of the API: browsers that ask the same within the lifetime of an answer
// get the same bytes, and an answer in progress is computed once. So the number of questions to the
// cluster depends on what is asked, not on the number of browsers.
//
// mu guards known and the start of goroutines, so that close does not miss one. It is never held
// while a question is asked.
type answers struct {
	mu     sync.Mutex
	known  map[string]*answer // by httpapi.Request.Key
	asking httpapi.Gate       // of the questions that are being asked
	// ended ends with close; it is the parent of the contexts of all questions.
	ended   context.Context //nolint:containedctx // the questions outlive the requests
	end     context.CancelFunc
	running sync.WaitGroup // questions
}

// answer is one answer. Its other fields may be read when done is closed.
type answer struct {
	done   chan struct{}
	until  time.Time // guarded by answers.mu; zero: still being computed
	status int
	asset
}

func newAnswers() *answers {
	a := &answers{known: map[string]*answer{}, asking: httpapi.NewGate(maxAsking)}
	a.ended, a.end = context.WithCancel(context.Background())
	return a
}

func (a *answers) close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.running.Wait()
}

// get returns the answer of a key. ask computes it unless there is an answer younger than lasts.
// ask does not end with ctx, because other requests may wait for the same answer; it ends with
// close, and after askFor. get fails with jobs.ErrUnavailable when maxAnswers are alive, and with
// the cause of ctx when that ends first.
func (a *answers) get(ctx context.Context, key string, lasts time.Duration, ask func(context.Context) (any, error)) (
	*answer, error,
) {
	a.mu.Lock()
	now := time.Now()
	got := a.known[key]
	if got == nil || !got.until.IsZero() && now.After(got.until) {
		if a.ended.Err() != nil {
			a.mu.Unlock()
			return nil, context.Canceled
		}
		for k, old := range a.known {
			if !old.until.IsZero() && now.After(old.until) {
				delete(a.known, k)
			}
		}
		if len(a.known) >= maxAnswers {
			a.mu.Unlock()
			return nil, jobs.ErrUnavailable
		}
		got = &answer{done: make(chan struct{})}
		a.known[key] = got
		a.running.Add(1)
		go a.fill(got, lasts, ask)
	}
	a.mu.Unlock()
	select {
	case <-got.done:
		return got, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fill asks the cluster and completes an answer. A failure is an answer with the same lifetime, so
// that a cluster in trouble is not asked more often than a healthy one.
func (a *answers) fill(got *answer, lasts time.Duration, ask func(context.Context) (any, error)) {
	defer a.running.Done()
	ctx, cancel := context.WithTimeout(a.ended, askFor)
	defer cancel()
	var v any
	var err error
	select {
	case a.asking <- struct{}{}:
		v, err = ask(ctx)
		a.asking.Leave()
	case <-ctx.Done():
		err = ctx.Err()
	}
	got.status = http.StatusOK
	if err == nil {
		got.body, err = json.Marshal(v)
	}
	if err != nil {
		got.status = statusOf(err)
		got.body, _ = json.Marshal(httpapi.Failure{Error: err.Error()}) // a string
	}
	if len(got.body) > 1000 {
		got.zipped = zipped(got.body, gzip.BestSpeed)
	}
	got.media, got.tag = httpapi.JSON, tagOf(got.body)
	a.mu.Lock()
	got.until = time.Now().Add(lasts)
	a.mu.Unlock()
	close(got.done)
}

// classes are the statuses of errors of the cluster, in the order of precedence.
var classes = []httpapi.Class{
	{Status: http.StatusNotFound, Has: httpapi.Is(jobs.ErrNotFound)},
	{Status: http.StatusForbidden, Has: httpapi.Is(jobs.ErrDenied)},
	{Status: http.StatusGatewayTimeout, Has: httpapi.Is(context.DeadlineExceeded)},
	{Status: http.StatusBadRequest, Has: func(err error) bool {
		var e *jobs.Error
		return errors.As(err, &e) && e.Code == jobs.CodeInvalid
	}},
	{Status: http.StatusGone, Has: httpapi.Is(travel.ErrTrimmed)},
	{Status: http.StatusUnprocessableEntity, Has: httpapi.Is(travel.ErrTooLarge, travel.ErrTooFar)},
	{
		Status: http.StatusServiceUnavailable,
		Has:    httpapi.Is(context.Canceled, jobs.ErrUnavailable, travel.ErrClosed),
	},
}

func statusOf(err error) int { return httpapi.StatusOf(err, classes) }

func fail(w http.ResponseWriter, _ *http.Request, err error) {
	var e *httpapi.Error
	if !errors.As(err, &e) {
		e = &httpapi.Error{Status: statusOf(err), Text: err.Error()}
	}
	e.Write(w)
}

// ask answers a request by a question to the cluster, or by the answer that another request got
// within its lifetime.
func (s *Server) ask(w http.ResponseWriter, r *httpapi.Request, lasts time.Duration, ask question) error {
	got, err := s.answers.get(r.Context(), r.Key, lasts, func(ctx context.Context) (any, error) {
		return ask(ctx, &s.o, r.Params)
	})
	if err != nil {
		return httpapi.Errorf(http.StatusServiceUnavailable, "too many questions at a time: try again")
	}
	// A page that polls an answer without changes names its tag and receives headers only.
	w.Header().Set("Cache-Control", "no-cache")
	got.write(w, r.Request, got.status)
	return nil
}
