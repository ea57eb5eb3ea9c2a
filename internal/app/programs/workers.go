package programs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// Bounds of workers.
const (
	maxWorkers = 100
	maxKinds   = 32
	maxWait    = 30 // seconds that a request for a job or a result waits
)

// builtIn are the kinds of the agents of the cluster. They can read files and run code with the
// rights of an agent, so programs neither submit nor take them.
var builtIn = []string{
	cpuagents.KindStream, cpuagents.KindDetector, gpujob.KindCompute, gpujob.KindChain, gpujob.KindReduce,
	gpujob.KindSort, gpujob.KindHistogram, gpujob.KindTally, gpujob.KindFuse, gpujob.KindGemm, gpujob.KindKernel,
	gpujob.KindAllreduce, gpujob.KindCircuit,
}

// ownKind returns an error unless programs may have jobs of a kind.
func ownKind(kind string) error {
	if slices.Contains(builtIn, kind) {
		return jobs.Errorf(jobs.CodeInvalid, "kind %s is one of the agents of the cluster: choose another name", kind)
	}
	return jobs.CheckID("kind", kind)
}

// NewWorker is the body of a request for a worker.
type NewWorker struct {
	// Kinds are the kinds of its jobs, of the pool cpu.
	Kinds []string `json:"kinds"`
	// Name is the beginning of its name in results and lists; empty means program.
	Name string `json:"name,omitempty"`
}

// Worker describes a worker.
type Worker struct {
	ID string `json:"id"`
	// TTL is the time without a call in seconds after which it is gone and its job goes to another.
	TTL float64 `json:"ttl_s"`
}

// TakenJob is a job that a worker does.
type TakenJob struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Spec is what the submitter wrote.
	Spec        json.RawMessage `json:"spec"`
	LastAttempt bool            `json:"last_attempt"`
}

// JobProgress is the body of a request that keeps a job, with its progress.
type JobProgress struct {
	Progress json.RawMessage `json:"progress,omitempty"` // any value, for whoever watches the job
}

// JobGoesOn is the answer to JobProgress.
type JobGoesOn struct {
	// GoOn is false for a job that was cancelled, or that another worker has; Reason says why.
	GoOn   bool   `json:"go_on"`
	Reason string `json:"reason,omitempty"`
}

// JobEnd is the body of a request that ends a job: with an output or with an error.
type JobEnd struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  string          `json:"error,omitempty"`
	// Retry says that the same job may succeed later. It counts with an error only.
	Retry bool `json:"retry,omitempty"`
}

type workers struct {
	o Options

	mu     sync.Mutex
	all    map[string]*worker
	ended  bool
	ending sync.WaitGroup
}

// worker is a worker of the queue whose jobs a program does over HTTP, one at a time.
type worker struct {
	id       string
	conn     *natsq.Worker
	announce *telemetry.Announcement
	offers   chan *doing     // to a request that waits for a job
	gone     context.Context //nolint:containedctx // of the worker, which outlives the requests
	end      context.CancelFunc
	started  time.Time

	mu    sync.Mutex
	timer *time.Timer // ends the worker
	job   *doing      // that the program has
}

type doing struct {
	job      jobs.Job
	ctx      context.Context //nolint:containedctx // of the job, which outlives the requests
	progress func(any)
	end      chan JobEnd // has room for one
}

func newWorkers(o Options) *workers { return &workers{o: o, all: map[string]*worker{}} }

// close drains all workers, and waits for them.
func (ws *workers) close() {
	ws.mu.Lock()
	ws.ended = true
	for _, w := range ws.all {
		ws.drain(w)
	}
	ws.mu.Unlock()
	ws.ending.Wait()
}

// drain ends a worker in a goroutine. The caller holds mu.
func (ws *workers) drain(w *worker) {
	if ws.all[w.id] != w {
		return
	}
	delete(ws.all, w.id)
	w.timer.Stop()
	w.end()
	ws.ending.Go(func() {
		short, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		w.announce.Close(short)
		w.conn.Stop()
	})
}

// find returns a worker, which was called now.
func (ws *workers) find(id string) (*worker, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[id]
	if w == nil {
		return nil, fmt.Errorf(
			"worker %.100q: %w: it was silent for too long, or the server was started again: begin again",
			id,
			jobs.ErrNotFound,
		)
	}
	w.timer.Reset(ws.o.WorkerTTL)
	return w, nil
}

func (s *Server) beginWork(ctx context.Context, _ *request, in NewWorker) (any, error) {
	if n := len(in.Kinds); n < 1 || n > maxKinds {
		return nil, jobs.Errorf(jobs.CodeInvalid, "worker: %d kinds: use 1 to %d", n, maxKinds)
	}
	if in.Name == "" {
		in.Name = "program"
	}
	if err := jobs.CheckID("name", in.Name); err != nil {
		return nil, err
	}
	made, err := s.workers.begin(ctx, in)
	if err != nil {
		return nil, err
	}
	return Worker{ID: made.id, TTL: s.o.WorkerTTL.Seconds()}, nil
}

func (ws *workers) begin(ctx context.Context, in NewWorker) (*worker, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.all) >= maxWorkers {
		return nil, fmt.Errorf("%w: there are %d workers", ErrBusy, len(ws.all))
	}
	suffix := rand.Text()[:8]
	w := &worker{id: suffix + rand.Text(), offers: make(chan *doing), started: time.Now().UTC()}
	w.gone, w.end = context.WithCancel(context.WithoutCancel(ctx))
	handlers := map[string]jobs.Handler{}
	for _, kind := range in.Kinds {
		if err := ownKind(kind); err != nil {
			return nil, err
		}
		handlers[kind] = w.do
	}
	name := in.Name + "-" + suffix
	var err error
	if w.conn, err = ws.o.Conn.Work(ctx, natsq.WorkerOptions{
		Name: name, Pool: jobs.PoolCPU, Handlers: handlers, Concurrency: 1, JobsOnly: true, Logger: ws.o.Log,
	}); err != nil {
		return nil, err
	}
	// The announcement outlives the request.
	w.announce, err = ws.o.Conn.Registry.Announce(w.gone, func() jobs.Agent {
		return jobs.Agent{
			Name: name, Pool: jobs.PoolCPU, Kinds: in.Kinds, State: "serving", Started: w.started,
			Running: w.conn.Running(),
		}
	}, ws.o.Log)
	if err != nil {
		w.conn.Stop()
		return nil, err
	}
	w.timer = time.AfterFunc(ws.o.WorkerTTL, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.drain(w)
	})
	ws.all[w.id] = w
	return w, nil
}

// do implements jobs.Handler: it waits until the program takes the job, and until it has ended it.
func (w *worker) do(ctx context.Context, job jobs.Job, progress func(any)) (any, error) {
	d := &doing{job: job, ctx: ctx, progress: progress, end: make(chan JobEnd, 1)}
	select {
	case w.offers <- d:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case e := <-d.end:
		if e.Error == "" {
			return e.Output, nil
		}
		err := error(jobs.Errorf(jobs.CodeInput, "%s", e.Error))
		if e.Retry {
			err = jobs.Retry(err)
		}
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Wait is the body of a request that waits.
type Wait struct {
	Seconds float64 `json:"wait_s"` // 0 to 30
}

func (w Wait) duration() (time.Duration, error) {
	if !(w.Seconds >= 0 && w.Seconds <= maxWait) {
		return 0, jobs.Errorf(jobs.CodeInvalid, "wait_s %v: use 0 to %d", w.Seconds, maxWait)
	}
	return time.Duration(w.Seconds * float64(time.Second)), nil
}

// takeJob answers with a job, or with nothing when the time of the request is over.
func (s *Server) takeJob(ctx context.Context, r *request, in Wait) (any, error) {
	wait, err := in.duration()
	if err != nil {
		return nil, err
	}
	worker, err := s.workers.find(r.PathValue("worker"))
	if err != nil {
		return nil, err
	}
	worker.mu.Lock()
	busy := worker.job != nil && worker.job.ctx.Err() == nil
	worker.mu.Unlock()
	if busy {
		return nil, jobs.Errorf(jobs.CodeInvalid, "worker: it has job %s: end that first", worker.job.job.ID)
	}
	over := time.NewTimer(min(wait, s.o.WorkerTTL/2))
	defer over.Stop()
	for {
		select {
		case d := <-worker.offers:
			if d.ctx.Err() != nil { // cancelled meanwhile
				continue
			}
			worker.mu.Lock()
			worker.job = d
			worker.mu.Unlock()
			if _, err := s.workers.find(worker.id); err != nil {
				return nil, err
			}
			spec := d.job.Spec
			if len(spec) == 0 {
				spec = json.RawMessage("null")
			}
			return TakenJob{ID: d.job.ID, Kind: d.job.Kind, Spec: spec, LastAttempt: d.job.LastAttempt}, nil
		case <-over.C:
			return nil, nil
		case <-worker.gone.Done():
			return nil, fmt.Errorf("worker: %w: it has ended", jobs.ErrNotFound)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// doing returns the job of a request if its worker has it.
func (s *Server) doing(r *request) (*worker, *doing, error) {
	w, err := s.workers.find(r.PathValue("worker"))
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := r.PathValue("job"); w.job == nil || w.job.job.ID != id {
		return w, nil, fmt.Errorf("job %.100q: %w: the worker does not have it", id, jobs.ErrNotFound)
	}
	return w, w.job, nil
}

// extendJob keeps a job with its worker, and answers whether the job continues.
func (s *Server) extendJob(_ context.Context, r *request, in JobProgress) (any, error) {
	_, d, err := s.doing(r)
	if err != nil {
		return nil, err
	}
	if len(in.Progress) > 0 {
		d.progress(in.Progress)
	}
	out := JobGoesOn{GoOn: d.ctx.Err() == nil}
	if !out.GoOn {
		out.Reason = context.Cause(d.ctx).Error()
	}
	return out, nil
}

// endJob ends a job. Its worker may take the next one.
func (s *Server) endJob(_ context.Context, r *request, in JobEnd) (any, error) {
	if in.Error != "" && len(in.Output) > 0 {
		return nil, jobs.Errorf(jobs.CodeInvalid, "the end of a job: it has an output and an error: leave one out")
	}
	worker, d, err := s.doing(r)
	if err != nil {
		return nil, err
	}
	out := JobGoesOn{GoOn: d.ctx.Err() == nil}
	if !out.GoOn {
		out.Reason = context.Cause(d.ctx).Error()
	}
	select {
	case d.end <- in:
	default: // it has ended
	}
	worker.mu.Lock()
	if worker.job == d {
		worker.job = nil
	}
	worker.mu.Unlock()
	return out, nil
}

// endWork ends a worker. The job that it has goes back to the queue.
func (s *Server) endWork(_ context.Context, w http.ResponseWriter, r *request) error {
	worker, err := s.workers.find(r.PathValue("worker"))
	if err != nil {
		return err
	}
	s.workers.mu.Lock()
	s.workers.drain(worker)
	s.workers.mu.Unlock()
	return write(w, nil)
}

// NewJob is the body of a request for a job.
type NewJob struct {
	Kind string `json:"kind"`
	// Spec is any value, for the worker.
	Spec json.RawMessage `json:"spec,omitempty"`
	// ID is an id of the submitter, with which a repeated request makes no second job; empty: the
	// server chooses an id.
	ID string `json:"id,omitempty"`
}

// SubmittedJob is the answer to NewJob.
type SubmittedJob struct {
	ID string `json:"id"`
}

func (s *Server) submit(ctx context.Context, _ *request, in NewJob) (any, error) {
	if err := ownKind(in.Kind); err != nil {
		return nil, err
	}
	if in.ID == "" {
		in.ID = rand.Text()
	}
	err := s.o.Conn.Queue.Submit(ctx, jobs.Job{
		Version: jobs.Version, ID: in.ID, Pool: jobs.PoolCPU, Kind: in.Kind, Spec: in.Spec, Submitted: time.Now().UTC(),
	})
	if err != nil && !errors.Is(err, jobs.ErrExists) { // a repeated request finds the job of the first one
		return nil, err
	}
	return SubmittedJob{ID: in.ID}, nil
}

// await answers with the result of a job, or with nothing when the time of the request is over.
func (s *Server) await(ctx context.Context, r *request, in Wait) (any, error) {
	wait, err := in.duration()
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	if err := jobs.CheckID("job", id); err != nil {
		return nil, err
	}
	for end := time.Now().Add(wait); ; {
		result, err := s.o.Conn.Results.Lookup(ctx, id)
		if err == nil {
			return result, nil
		}
		if !errors.Is(err, jobs.ErrNotFound) {
			return nil, err
		}
		pause := min(100*time.Millisecond, time.Until(end))
		if pause <= 0 {
			return nil, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
