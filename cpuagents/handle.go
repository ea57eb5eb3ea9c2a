package cpuagents

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
)

// Func executes a job of a kind that a user registers. Its result becomes the output of the job, as
// JSON. An error fails the job: with its class if it is a jobs.Error, as jobs.CodeInternal
// otherwise. With jobs.Retry the queue retries the job. ctx ends when the job is cancelled, its
// deadline passes, or the agent drains (context.Cause tells which). Func may run twice for a job,
// since an agent may end before its result is stored. A panic fails the job.
type Func func(ctx context.Context, job jobs.Job) (result any, err error)

// Handlers are the functions of kinds of jobs. The zero value is empty and ready. Its methods may
// be called concurrently.
type Handlers struct {
	mu sync.Mutex
	by map[string]Func
}

// Handle registers fn for a kind. The kind is an id as in jobs.CheckID, and has no other function.
// An agent takes jobs of its kinds only, so agents of one pool may serve different kinds. A job of
// a kind that no agent serves stays queued.
func (h *Handlers) Handle(kind string, fn Func) error {
	if err := jobs.CheckID("kind of job", kind); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case fn == nil:
		return fmt.Errorf("kind of job %q: there is no function for it", kind)
	case kind == KindStream || kind == KindDetector || h.by[kind] != nil:
		return fmt.Errorf("kind of job %q: it is taken: choose another name", kind)
	}
	if h.by == nil {
		h.by = map[string]Func{}
	}
	h.by[kind] = fn
	return nil
}

// Jobs returns the registered handlers for a worker of the queue.
func (h *Handlers) Jobs() map[string]jobs.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]jobs.Handler{}
	for kind, fn := range h.by {
		all[kind] = func(ctx context.Context, job jobs.Job, _ func(any)) (any, error) { return fn(ctx, job) }
	}
	return all
}

// Kinds returns the registered kinds in order.
func (h *Handlers) Kinds() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.by))
}

// Default holds the handlers of the process.
var Default Handlers

// Handle registers fn for a kind with the Default handlers. A program calls it before it starts the
// agent; see Handlers.Handle for the kinds that are refused.
func Handle(kind string, fn Func) error { return Default.Handle(kind, fn) }
