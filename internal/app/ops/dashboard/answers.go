package dashboard

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
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
// get the same bytes, and one that is being computed is computed once. So the number of questions
// to the cluster depends on what is asked, not on the number of browsers.
//
// mu guards known and the start of goroutines, so that close does not miss one. It is never held
// while a question is asked.
type answers struct {
	mu     sync.Mutex
	known  map[string]*answer // by the key of route.read
	asking chan struct{}      // one element for each question that is being asked
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
	body   []byte
	zipped []byte
	tag    string // ETag
}

func newAnswers() *answers {
	a := &answers{known: map[string]*answer{}, asking: make(chan struct{}, maxAsking)}
	a.ended, a.end = context.WithCancel(context.Background())
	return a
}

// close cancels questions and waits for them.
func (a *answers) close() {
	a.mu.Lock()
	a.end()
	a.mu.Unlock()
	a.running.Wait()
}

// get returns the answer of a key. ask computes it unless one that is younger than lasts is there.
// ask does not end with ctx, because others may wait for the same answer; it ends with close, and
// after askFor. get fails with jobs.ErrUnavailable when maxAnswers are alive, and with the cause of
// ctx when that ends first.
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

// fill asks the cluster and completes an answer. A failure is an answer too: it is shared as long,
// so that a cluster in trouble is not asked more often than a healthy one.
func (a *answers) fill(got *answer, lasts time.Duration, ask func(context.Context) (any, error)) {
	defer a.running.Done()
	ctx, cancel := context.WithTimeout(a.ended, askFor)
	defer cancel()
	var v any
	var err error
	select {
	case a.asking <- struct{}{}:
		v, err = ask(ctx)
		<-a.asking
	case <-ctx.Done():
		err = ctx.Err()
	}
	got.status = http.StatusOK
	if err == nil {
		got.body, err = json.Marshal(v)
	}
	if err != nil {
		got.status = statusOf(err)
		got.body, _ = json.Marshal(Failure{Error: err.Error()}) // a string
	}
	if len(got.body) > 1000 {
		got.zipped = zipped(got.body, gzip.BestSpeed)
	}
	sum := sha256.Sum256(got.body)
	got.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	a.mu.Lock()
	got.until = time.Now().Add(lasts)
	a.mu.Unlock()
	close(got.done)
}

// Failure is the body of an answer that is not 2xx.
type Failure struct {
	Error string `json:"error"`
}

// statusOf returns the HTTP status of an error of the cluster.
func statusOf(err error) int {
	var e *jobs.Error
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, jobs.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.As(err, &e) && e.Code == jobs.CodeInvalid:
		return http.StatusBadRequest
	case errors.Is(err, travel.ErrTrimmed):
		return http.StatusGone
	case errors.Is(err, travel.ErrTooLarge), errors.Is(err, travel.ErrTooFar):
		return http.StatusUnprocessableEntity
	case errors.Is(err, context.Canceled), errors.Is(err, jobs.ErrUnavailable), errors.Is(err, travel.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

// write sends an answer, or only that it has not changed. Browsers ask again with the ETag that
// they have, so a page that polls an answer without changes receives headers only.
func (got *answer) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", got.tag)
	if got.status == http.StatusOK && r.Header.Get("If-None-Match") == got.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := got.body
	if got.zipped != nil && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = got.zipped
	}
	w.WriteHeader(got.status)
	_, _ = w.Write(body)
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Failure{Error: message})
}
