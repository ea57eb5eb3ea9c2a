package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// operation answers a request with its whole body. It writes nothing before it is sure to succeed.
type operation func(ctx context.Context, w http.ResponseWriter, r *request) error

// request is a request whose body has arrived.
type request struct {
	*httpapi.Request
	body []byte
}

// archive fills an archive of arrays, the answer of an operation with many numbers.
type archive func(*numpy.ArchiveWriter)

// write answers with a value as JSON, with arrays, or with status 204 for nil.
func write(w http.ResponseWriter, v any) error {
	switch v := v.(type) {
	case nil:
		w.WriteHeader(http.StatusNoContent)
	case archive:
		w.Header().Set("Content-Type", MediaArrays)
		z := numpy.NewArchive(w)
		v(z)
		_ = z.Close() // the client is gone
	default:
		httpapi.WriteJSON(w, http.StatusOK, v)
	}
	return nil
}

// call makes an operation of a function from a body of JSON to an answer.
func call[In any](do func(ctx context.Context, r *request, in In) (any, error)) operation {
	return func(ctx context.Context, w http.ResponseWriter, r *request) error {
		var in In
		if err := r.decode(&in); err != nil {
			return err
		}
		out, err := do(ctx, r, in)
		if err != nil {
			return err
		}
		return write(w, out)
	}
}

// onSwarm makes an operation on the swarm that the path names. valid checks the body before the
// swarm is opened.
func onSwarm[In any](
	s *Server, valid func(In) error, do func(ctx context.Context, sw *swarmclient.Swarm, in In) (any, error),
) operation {
	return call(func(ctx context.Context, r *request, in In) (any, error) {
		if err := valid(in); err != nil {
			return nil, err
		}
		sw, err := s.client.Open(ctx, r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return do(ctx, sw, in)
	})
}

func (r *request) decode(v any) error {
	if m := httpapi.Media(r.Request.Request); m != httpapi.JSON {
		return mediaError(m, "this operation takes "+httpapi.JSON)
	}
	switch err := httpapi.Decode(bytes.NewReader(r.body), v); {
	case errors.Is(err, io.EOF):
		return jobs.Errorf(jobs.CodeInvalid, "the body is empty: it is a JSON object")
	case err != nil:
		return jobs.Errorf(jobs.CodeInvalid, "the body is not what this operation takes: %v", err)
	}
	return nil
}

func mediaError(media, cure string) error {
	return httpapi.Errorf(http.StatusUnsupportedMediaType, "media type %q: %s", media, cure)
}

// code returns a predicate of errors of the queue with one of some codes.
func code(codes ...jobs.Code) func(error) bool {
	return func(err error) bool {
		var e *jobs.Error
		if errors.As(err, &e) {
			for _, c := range codes {
				if e.Code == c {
					return true
				}
			}
		}
		return false
	}
}

// classes are the statuses of errors, in the order of precedence.
var classes = []httpapi.Class{
	{Status: http.StatusRequestEntityTooLarge, Has: func(err error) bool {
		var long *http.MaxBytesError
		return errors.As(err, &long)
	}},
	{Status: http.StatusRequestTimeout, Has: httpapi.Is(httpapi.ErrSlow)},
	{Status: http.StatusNotFound, Has: httpapi.Is(jobs.ErrNotFound, snapshot.ErrNotFound)},
	{Status: http.StatusConflict, Has: httpapi.Is(jobs.ErrExists, snapshot.ErrExists)},
	{
		Status: http.StatusServiceUnavailable,
		Has:    httpapi.Is(ErrBusy, jobs.ErrFull, jobs.ErrUnavailable, context.Canceled),
	},
	{Status: http.StatusForbidden, Has: httpapi.Is(jobs.ErrDenied)},
	{Status: http.StatusGatewayTimeout, Has: httpapi.Is(context.DeadlineExceeded)},
	{Status: http.StatusBadRequest, Has: code(jobs.CodeInvalid, jobs.CodeInput)},
	{Status: http.StatusConflict, Has: code(jobs.CodeRound)},
	{Status: http.StatusGatewayTimeout, Has: code(jobs.CodeDeadline)},
	{Status: http.StatusInsufficientStorage, Has: code(jobs.CodeDevice)},
}

// serve receives the body of a request, of at most limit bytes, and lets an operation answer it.
func (s *Server) serve(limit int64, do operation) func(http.ResponseWriter, *httpapi.Request) error {
	return func(w http.ResponseWriter, r *httpapi.Request) error {
		err := s.receive(w, r, limit, do)
		if err == nil {
			return nil
		}
		answer := &httpapi.Error{Status: httpapi.StatusOf(err, classes), Text: err.Error()}
		if answer.Status == http.StatusServiceUnavailable {
			answer.After = time.Second
		}
		gone := r.Context().Err() != nil // also after a body that was too slow
		if answer.Status >= http.StatusInternalServerError && !errors.Is(err, ErrBusy) && !gone {
			s.o.Log.Warn("a request of a program failed", "path", r.URL.Path, "error", err)
		}
		return answer
	}
}

func (s *Server) receive(w http.ResponseWriter, r *httpapi.Request, limit int64, do operation) error {
	until := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	body, free, err := s.bodies.Read(w, r.WithContext(ctx), limit)
	if errors.Is(err, httpapi.ErrBusy) {
		err = ErrBusy
	}
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	defer free()
	// The place comes after the body: clients that send slowly take nothing from the others.
	if !s.places.Enter() {
		return ErrBusy
	}
	defer s.places.Leave()
	// The deadlines of the connection are for short requests. The recorder of a test has none.
	c := http.NewResponseController(w)
	_, _ = c.SetReadDeadline(until), c.SetWriteDeadline(until)
	return do(ctx, w, &request{r, body})
}

var (
	swarmName = httpapi.Param{Name: "name", In: "path", Kind: "string", Doc: "id of a swarm"}
	workerID  = httpapi.Param{Name: "worker", In: "path", Kind: "string", Doc: "id of a worker"}
	takenJob  = httpapi.Param{Name: "job", In: "path", Kind: "string", Doc: "id of the job that the worker has"}
	jobID     = httpapi.Param{Name: "id", In: "path", Kind: "string", Doc: "id of a job"}
	snapshots = httpapi.Param{
		Name: "snapshot", In: "path", Kind: "string", Doc: "name of a snapshot, or of its part",
	}
)

// Routes returns the routes of programs. The caller checks the login. The routes of a nil server
// only describe themselves.
func (s *Server) Routes() []httpapi.Route {
	short := func(do operation) func(http.ResponseWriter, *httpapi.Request) error { return s.serve(maxJSON, do) }
	long := func(do operation) func(http.ResponseWriter, *httpapi.Request) error { return s.serve(maxBody, do) }
	type params = []httpapi.Param
	return []httpapi.Route{
		{
			Method: http.MethodPost, Path: "swarms", Name: "createSwarm", Body: NewSwarm{}, Answer: MadeSwarm{},
			Summary: "Makes a swarm that lasts.", Serve: short(call(s.create)),
		},
		{
			Method: http.MethodDelete, Path: "swarms/{name}", Name: "deleteSwarm", Params: params{swarmName},
			Summary: "Deletes a swarm with its logs and the state of its agents.", Serve: short(s.remove),
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/rows", Name: "feedRows", Params: params{swarmName},
			Takes: MediaArrays, Media: MediaArrays, Answer: FedRows{}, Serve: long(s.rows),
			Summary: "Feeds rows of entities, and answers with their decisions in the order of the rows. Arrays, " +
				"text/csv or application/x-ndjson; the answer is NDJSON for a request that accepts it.",
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/observe", Name: "observeAgents", Params: params{swarmName},
			Takes: MediaArrays, Media: MediaArrays, Answer: []byte{}, Serve: long(s.observe),
			Summary: "Gives inputs to agents (arrays agent u4, features f4): their votes, and the decisions of their " +
				"groups.",
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/tick", Name: "tickSwarm", Params: params{swarmName},
			Body: Ticks{}, Answer: TickedAll{}, Summary: "Steps all agents.",
			Serve: short(onSwarm(s, Ticks.valid, tick)),
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/query", Name: "querySwarm", Params: params{swarmName},
			Body: Queried{}, Media: MediaArrays, Answer: []byte{}, Serve: short(onSwarm(s, Queried.valid, query)),
			Summary: "The states of agents or groups, or knowledge nodes, as arrays.",
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/vote", Name: "voteSwarm", Params: params{swarmName},
			Body: swarms.Vote{}, Answer: VotedAll{}, Summary: "Lets all agents decide together.",
			Serve: short(onSwarm(s, swarms.Vote.Validate, vote)),
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/fuse", Name: "fuseSwarm", Params: params{swarmName},
			Body: swarms.Fuse{}, Media: MediaArrays, Answer: []byte{}, Serve: short(onSwarm(s, validFuse, fuse)),
			Summary: "The knowledge nodes of a swarm as arrays: node u4, count u8, mean f4.",
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/learn", Name: "teachSwarm", Params: params{swarmName},
			Body: Lessons{}, Answer: LearnedAll{}, Serve: short(onSwarm(s, accept[Lessons], learn)),
			Summary: "Merges values into knowledge nodes, which agents hear in the next tick.",
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/reset", Name: "resetSwarm", Params: params{swarmName},
			Summary: "Returns all agents to their initial state.", Serve: short(s.reset),
		},
		{
			Method: http.MethodPost, Path: "swarms/{name}/snapshots", Name: "snapshotSwarm",
			Params: params{swarmName}, Body: NewSnapshot{}, Answer: MadeSnapshot{},
			Serve:   short(onSwarm(s, accept[NewSnapshot], takeSnapshot)),
			Summary: "Stores the state of all agents.",
		},
		{
			Method: http.MethodGet, Path: "snapshots/{snapshot}", Name: "readSnapshot", Params: params{snapshots},
			Media: MediaArrays, Answer: []byte{}, Summary: "The arrays of a snapshot, with its manifest.",
			Serve: short(s.readSnapshot),
		},
		{
			Method: http.MethodPost, Path: "workers", Name: "beginWork", Body: NewWorker{}, Answer: Worker{},
			Summary: "Makes a worker that takes jobs of its kinds, one at a time.", Serve: short(call(s.beginWork)),
		},
		{
			Method: http.MethodPost, Path: "workers/{worker}/take", Name: "takeJob", Params: params{workerID},
			Body: Wait{}, Answer: TakenJob{}, Summary: "Waits for a job; status 204 if there is none.",
			Serve: short(call(s.takeJob)),
		},
		{
			Method: http.MethodPost, Path: "workers/{worker}/jobs/{job}", Name: "extendJob",
			Params: params{workerID, takenJob}, Body: JobProgress{}, Answer: JobGoesOn{},
			Serve:   short(call(s.extendJob)),
			Summary: "Says that a job goes on, with its progress. The answer says whether it shall.",
		},
		{
			Method: http.MethodPost, Path: "workers/{worker}/jobs/{job}/end", Name: "endJob",
			Params: params{workerID, takenJob}, Body: JobEnd{}, Answer: JobGoesOn{},
			Summary: "Ends a job with an output or an error.", Serve: short(call(s.endJob)),
		},
		{
			Method: http.MethodDelete, Path: "workers/{worker}", Name: "endWork", Params: params{workerID},
			Summary: "Ends a worker. The job that it has goes back to the queue.", Serve: short(s.endWork),
		},
		{
			Method: http.MethodPost, Path: "jobs", Name: "submitProgramJob", Body: NewJob{}, Answer: SubmittedJob{},
			Summary: "Stores a job for a worker of programs.", Serve: short(call(s.submit)),
		},
		{
			Method: http.MethodPost, Path: "jobs/{id}/result", Name: "awaitProgramJob", Params: params{jobID},
			Body: Wait{}, Answer: jobs.Result{}, Serve: short(call(s.await)),
			Summary: "Waits for the result of a job; status 204 if there is none yet.",
		},
	}
}

// accept is a check of bodies that the swarm itself checks.
func accept[In any](In) error { return nil }
