// Package programs serves programs over HTTP: swarms that they create and feed, with the decisions in
// the answers, and jobs that they take and do. The package python has the client.
package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Version is the number of the protocol. A client of another number does not understand the answers.
const Version = 1

// Bounds of a server.
const (
	maxRequests = 64        // in progress; most of them wait for the cluster
	maxBodies   = 4         // large bodies in memory at a time
	maxBody     = 64 << 20  // bytes of a body
	maxUnpacked = 256 << 20 // bytes of the arrays in a body
	maxJSON     = 1 << 20   // bytes of a body of JSON
	// patience bounds a request. It is longer than the timeout of a swarm, so that its error says
	// what is missing.
	patience = 5 * time.Minute
)

// Media types of bodies and answers.
const (
	mediaJSON = "application/json"
	// MediaArrays is that of archives of arrays (.npz of NumPy).
	MediaArrays = "application/zip"
	// MediaNDJSON and MediaCSV are those of rows and decisions as text.
	MediaNDJSON = "application/x-ndjson"
	MediaCSV    = "text/csv"
)

// Options configure a Server. Conn is required.
type Options struct {
	// Conn is the connection to the cluster, which stays the caller's.
	Conn *natsq.Conn
	// Snapshots is the place of the snapshots of the cluster, which stays the caller's; nil: arrays of
	// snapshots cannot be read.
	Snapshots snapshot.Store
	// Log receives what programs create and delete; nil for none.
	Log *slog.Logger
	// WorkerTTL is the time without a call after which a worker is gone; 0 means 30 s.
	WorkerTTL time.Duration
}

// Server answers the requests of programs. Its methods may be called from several goroutines. The
// caller calls Close after the last request.
type Server struct {
	o      Options
	client *swarmclient.Client
	places chan struct{} // has an element for each request
	bodies chan struct{} // has an element for each large body

	mu    sync.Mutex
	feeds map[string]*feed // by the id of the swarm

	workers *workers
}

// New returns a server.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.WorkerTTL == 0 {
		o.WorkerTTL = 30 * time.Second
	}
	client, err := swarmclient.New(swarmclient.Options{
		Swarms: o.Conn.Swarms, Agents: o.Conn.Registry, Jobs: o.Conn.Queue,
	})
	if err != nil {
		return nil, err
	}
	return &Server{
		o: o, client: client, places: make(chan struct{}, maxRequests), bodies: make(chan struct{}, maxBodies),
		feeds: map[string]*feed{}, workers: newWorkers(o),
	}, nil
}

// Close ends the workers, whose jobs go back to the queue, and the readers of answers. A second call
// does nothing.
func (s *Server) Close() {
	s.workers.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, f := range s.feeds {
		f.close()
		delete(s.feeds, id)
	}
}

// operation answers a request. It writes nothing before it is sure to succeed.
type operation func(s *Server, ctx context.Context, w http.ResponseWriter, r *http.Request) error

// operations are the operations by the names in the description of the API.
var operations = map[string]operation{
	"createSwarm":      (*Server).create,
	"deleteSwarm":      (*Server).remove,
	"feedRows":         (*Server).rows,
	"observeAgents":    (*Server).observe,
	"tickSwarm":        (*Server).tick,
	"querySwarm":       (*Server).query,
	"voteSwarm":        (*Server).vote,
	"fuseSwarm":        (*Server).fuse,
	"teachSwarm":       (*Server).learn,
	"resetSwarm":       (*Server).reset,
	"snapshotSwarm":    (*Server).snapshot,
	"readSnapshot":     (*Server).readSnapshot,
	"beginWork":        (*Server).beginWork,
	"takeJob":          (*Server).takeJob,
	"extendJob":        (*Server).extendJob,
	"endJob":           (*Server).endJob,
	"endWork":          (*Server).endWork,
	"submitProgramJob": (*Server).submit,
	"awaitProgramJob":  (*Server).await,
}

// Knows reports whether there is an operation of a name.
func (s *Server) Knows(name string) bool { return operations[name] != nil }

// Serve answers a request for an operation, whose login the caller has checked. It returns an error
// if it has written nothing; Status has the status for it.
func (s *Server) Serve(name string, w http.ResponseWriter, r *http.Request) error {
	do := operations[name]
	if do == nil {
		return fmt.Errorf("operation %s: %w", name, jobs.ErrNotFound)
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return ErrBusy
	}
	// The deadlines of the connection are those of short requests.
	c := http.NewResponseController(w)
	until := time.Now().Add(patience)
	_, _ = c.SetReadDeadline(until), c.SetWriteDeadline(until) // of a test's recorder they do not count
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	return do(s, ctx, w, r)
}

// Status returns the status of HTTP for an error of Serve.
func Status(err error) int {
	var e *jobs.Error
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long), errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrMedia):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, jobs.ErrNotFound), errors.Is(err, snapshot.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, jobs.ErrExists), errors.Is(err, snapshot.ErrExists):
		return http.StatusConflict
	case errors.Is(err, ErrBusy), errors.Is(err, jobs.ErrFull), errors.Is(err, jobs.ErrUnavailable),
		errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	case errors.Is(err, jobs.ErrDenied):
		return http.StatusForbidden
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.As(err, &e):
		switch e.Code {
		case jobs.CodeInvalid, jobs.CodeInput:
			return http.StatusBadRequest
		case jobs.CodeRound:
			return http.StatusConflict
		case jobs.CodeDeadline:
			return http.StatusGatewayTimeout
		case jobs.CodeDevice:
			return http.StatusInsufficientStorage
		}
	}
	return http.StatusBadGateway
}

// media returns the media type of a body without its parameters.
func media(r *http.Request) string {
	m, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) //nolint:errcheck // empty then
	return m
}

// body reads a body of at most maxBody bytes. The caller calls free after its last use.
func (s *Server) body(
	ctx context.Context,
	w http.ResponseWriter,
	r *http.Request,
) (data []byte, free func(), err error) {
	select {
	case s.bodies <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ErrBusy
	}
	free = func() { <-s.bodies }
	var b bytes.Buffer
	if n := r.ContentLength; 0 < n && n <= maxBody {
		b.Grow(int(n) + bytes.MinRead)
	}
	if _, err = b.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		free()
		return nil, nil, fmt.Errorf("read the body: %w", err)
	}
	return b.Bytes(), free, nil
}

// decode reads a body of JSON. A field that the operation does not have is an error, because a client
// of a later version relies on it.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	if m := media(r); m != mediaJSON {
		return fmt.Errorf("%w %q: this operation takes %s", ErrMedia, m, mediaJSON)
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJSON))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return err
	case errors.Is(err, io.EOF):
		return jobs.Errorf(jobs.CodeInvalid, "the body is empty: it is a JSON object")
	case err != nil:
		return jobs.Errorf(jobs.CodeInvalid, "the body is not what this operation takes: %v", err)
	}
	return nil
}

// answer writes an answer of JSON.
func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", mediaJSON)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
	return nil
}
