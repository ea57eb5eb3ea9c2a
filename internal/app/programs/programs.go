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
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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
	maxBodies   = 256 << 20 // bytes of the bodies in memory at a time
	maxBody     = 64 << 20  // bytes of a body
	maxUnpacked = 256 << 20 // bytes of the arrays in a body
	maxJSON     = 1 << 20   // bytes of a body of JSON
	// patience bounds a request. It is longer than the timeout of a swarm, so that its error says
	// what is missing.
	patience = 5 * time.Minute
	// A body comes without a pause of bodyPause, and at bodyRate bytes a second after the first one.
	bodyPause = 10 * time.Second
	bodyRate  = 64 << 10
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
	places chan struct{}       // has an element for each request
	memory *semaphore.Weighted // bytes of bodies
	pause  time.Duration       // bodyPause

	mu    sync.Mutex
	feeds map[string]*feeder // by the id of the swarm

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
		o: o, client: client, places: make(chan struct{}, maxRequests),
		memory: semaphore.NewWeighted(maxBodies), pause: bodyPause,
		feeds: map[string]*feeder{}, workers: newWorkers(o),
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
	// The deadlines of the connection are for short requests.
	c := http.NewResponseController(w)
	until := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	most := int64(maxJSON)
	if name == "feedRows" || name == "observeAgents" {
		most = maxBody
	}
	// The place comes after the body: clients that send slowly take nothing from the others.
	body, free, err := s.receive(ctx, w, r, most)
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	defer free()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		return ErrBusy
	}
	_, _ = c.SetReadDeadline(until), c.SetWriteDeadline(until) // of a test's recorder they do not count
	r.Body = &received{bytes.NewReader(body), body}
	return do(s, ctx, w, r)
}

// Status returns the status of HTTP for an error of Serve.
func Status(err error) int {
	var e *jobs.Error
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long), errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrSlow):
		return http.StatusRequestTimeout
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

// received is a body in memory.
type received struct {
	*bytes.Reader
	data []byte
}

// Close implements io.Closer.
func (*received) Close() error { return nil }

// body returns the whole body of a request that Serve has received.
func body(r *http.Request) []byte { return r.Body.(*received).data }

// receive reads a body of at most most bytes. Its memory is part of maxBodies as the bytes come. A
// body for which there is none for bodyPause is ErrBusy, and one that comes too slowly is ErrSlow. The
// caller calls free after its last use.
func (s *Server) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, most int64) (
	data []byte, free func(), err error,
) {
	held := int64(0)
	defer func() {
		if free = func() { s.memory.Release(held) }; err != nil {
			free()
		}
	}()
	if r.ContentLength > most {
		return nil, nil, &http.MaxBytesError{Limit: most}
	}
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	c := http.NewResponseController(w)
	from, began := http.MaxBytesReader(w, r.Body, most), time.Now()
	for {
		if len(data) == cap(data) {
			size := min(max(2*held, 64<<10), most+1)
			wait, cancel := context.WithTimeout(ctx, s.pause)
			err := s.memory.Acquire(wait, size-held)
			cancel()
			if err != nil {
				return nil, nil, ErrBusy
			}
			held = size
			data = append(make([]byte, 0, size), data...)
		}
		now := time.Now()
		slowest := began.Add(s.pause + time.Duration(len(data))*time.Second/bodyRate)
		if slowest.After(now.Add(s.pause)) {
			slowest = now.Add(s.pause)
		}
		_ = c.SetReadDeadline(slowest)
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil, nil
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && time.Now().After(slowest):
			return nil, nil, ErrSlow
		case err != nil:
			return nil, nil, err
		}
	}
}

// decode reads a body of JSON. A field that the operation does not have is an error, because a client
// of a later version relies on it.
func decode(r *http.Request, v any) error {
	if m := media(r); m != mediaJSON {
		return fmt.Errorf("%w %q: this operation takes %s", ErrMedia, m, mediaJSON)
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	switch {
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
