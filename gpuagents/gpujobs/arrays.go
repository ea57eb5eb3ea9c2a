package gpujobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/arrays"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// arrayWork is the work of a job whose kind reads one array: reduce, sort or histogram. Such jobs
// run together.
type arrayWork struct {
	t    *task
	spec gpujob.Spec
	in   *input
}

// arrayKinds has a function for each kind that computes the outputs of jobs of one group over a set
// of their arrays, in order.
var arrayKinds = map[string]func(context.Context, *arrays.Set, []*arrayWork) ([]any, error){
	gpujob.KindReduce: reduceAll, gpujob.KindHistogram: countAll, gpujob.KindSort: sortAll,
}

// newArrayWork announces the arrays of a job. It returns nil for a job of another kind.
func newArrayWork(t *task, spec gpujob.Spec) *arrayWork {
	w := &arrayWork{t: t, spec: spec}
	switch s := spec.(type) {
	case *gpujob.ReduceSpec:
		w.in = t.in("in", &s.In)
	case *gpujob.HistogramSpec:
		w.in = t.in("in", &s.In)
		t.bytes += 8 * int64(s.Bins)
	case *gpujob.SortSpec:
		w.in = t.in("in", &s.In)
		n, _ := s.In.Shape.Count()
		t.bytes += 2*s.In.Size() + 2*4*n // keys and places, twice; the second keys become the result
	default:
		return nil
	}
	return w
}

// group is what jobs share that one set of launches serves.
type group struct {
	of      gpujob.Type
	sums    bool // sums of floats
	indices bool
}

func (w *arrayWork) group() group {
	g := group{of: w.in.of.Type}
	switch s := w.spec.(type) {
	case *gpujob.ReduceSpec:
		g.sums = (g.of == gpujob.F32 || g.of == gpujob.F64) && (s.Op == gpujob.OpSum || s.Op == gpujob.OpMean)
	case *gpujob.SortSpec:
		g.indices = s.Indices
	}
	return g
}

// check returns an error of code invalid for an array that is too large for the kernels.
func (w *arrayWork) check() error {
	if n, _ := w.in.of.Shape.Count(); w.t.job.Kind == gpujob.KindSort && n > arrayset.MaxSpan {
		return jobs.Errorf(jobs.CodeInvalid, "spec.in: %d elements: use at most %d", n, int64(arrayset.MaxSpan))
	}
	return nil
}

func (w *arrayWork) run() (any, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	outs, err := compute(w.t, []*arrayWork{w})
	if err != nil {
		return nil, err
	}
	return w.finish(outs[0], w.t.computed())
}

// compute executes jobs of one group on the device of a task. The task closes the set.
func compute(t *task, works []*arrayWork) ([]any, error) {
	parts := make([][]byte, len(works))
	for i, w := range works {
		parts[i] = w.in.data
	}
	set, err := arrays.New(t.slot.Device(), arrayset.Element(works[0].in.of.Type), parts...)
	if err != nil {
		return nil, err
	}
	t.left = append(t.left, set)
	return arrayKinds[works[0].t.job.Kind](t.ctx, set, works)
}

// finish records in the output where the job ran, and stores the arrays.
func (w *arrayWork) finish(out any, ran gpujob.Ran) (any, error) {
	switch out := out.(type) {
	case *gpujob.ReduceOutput:
		out.Ran = ran
	case *gpujob.HistogramOutput:
		out.Ran = ran
		return out, w.t.store([]string{"counts"}, []*gpujob.Array{&out.Counts})
	case *gpujob.SortOutput:
		out.Ran = ran
		names, all := []string{"sorted"}, []*gpujob.Array{&out.Sorted}
		if out.Indices != nil {
			names, all = append(names, "indices"), append(all, out.Indices)
		}
		return out, w.t.store(names, all)
	}
	return out, nil
}

// smallJob is the maximum size of the arrays of a job that runs together with others, in bytes.
const smallJob = 256 << 10

// Batches returns the handlers of the kinds whose jobs run together, for a worker of pool gpu.
// Every kind of Kinds is either in Jobs or in Batches.
func (h *Handlers) Batches() map[string]jobs.BatchHandler {
	all := map[string]jobs.BatchHandler{}
	for kind := range arrayKinds {
		all[kind] = h.batch
	}
	return all
}

// batchLimits clamp the size of a batch. A batch of small jobs takes milliseconds; a batch that
// takes longer has large jobs, which other agents should take.
var batchLimits = gpubatch.Limits{Least: 64, Most: jobs.MaxBatch, Bound: 100 * time.Millisecond}

// sizing is the size of batches. Several goroutines use it.
type sizing struct {
	mu   sync.Mutex
	size gpubatch.Size
}

// BatchSize returns the maximum number of jobs of the next batch, chosen by the time of earlier
// batches and the use of the devices.
func (h *Handlers) BatchSize() int {
	h.sizing.mu.Lock()
	defer h.sizing.mu.Unlock()
	return h.sizing.size.Most()
}

func (h *Handlers) measured(began time.Time, n int) {
	h.sizing.mu.Lock()
	defer h.sizing.mu.Unlock()
	h.sizing.size.Done(began, time.Now(), n, n >= h.sizing.size.Most())
}

// batch executes jobs of one kind. Small jobs run together: their arrays are uploaded together, one
// set of launches serves all arrays of a type, and the results are downloaded together. Other jobs
// run one after the other. A job that fails does not affect the others.
func (h *Handlers) batch(ctx context.Context, all []jobs.Job, progress func(i int, v any)) ([]jobs.Outcome, error) {
	began := time.Now()
	defer func() { h.measured(began, len(all)) }()
	outs := make([]jobs.Outcome, len(all))
	works := make([]*arrayWork, len(all))
	specs := make([]gpujob.Spec, len(all))
	var small []int
	var bytes int64
	for i, job := range all {
		w, err := h.small(ctx, job, &specs[i])
		if err != nil {
			outs[i].Err = fmt.Errorf("job %s: %w", job.ID, classed(err))
			continue
		}
		if works[i] = w; w == nil {
			continue
		}
		if bytes+w.t.bytes > h.o.Memory {
			h.together(ctx, works, small, bytes, outs)
			small, bytes = nil, 0
		}
		small, bytes = append(small, i), bytes+w.t.bytes
	}
	h.together(ctx, works, small, bytes, outs)
	for i, job := range all {
		if outs[i].Output == nil && outs[i].Err == nil {
			outs[i].Output, outs[i].Err = h.handle(ctx, job, specs[i], func(v any) { progress(i, v) })
		}
	}
	return outs, nil
}

// small parses the specification of a job into spec, and loads its array. It returns nil for a job
// that runs by itself.
func (h *Handlers) small(ctx context.Context, job jobs.Job, spec *gpujob.Spec) (_ *arrayWork, err error) {
	if *spec, err = parse(job); err != nil {
		return nil, err
	}
	t := &task{h: h, ctx: ctx, job: job, progress: func(any) {}}
	w := newArrayWork(t, *spec)
	if w == nil || t.bytes > min(smallJob, h.o.Memory) {
		return nil, nil
	}
	return w, t.load(w.in)
}

// together executes the small jobs of these indices on one device, and sets their outcomes. Jobs of
// a group that fails keep an empty outcome, and run by themselves.
func (h *Handlers) together(ctx context.Context, works []*arrayWork, small []int, bytes int64, outs []jobs.Outcome) {
	if len(small) < 2 || ctx.Err() != nil {
		return
	}
	groups := map[group][]int{}
	var order []group // groups in the order of their first jobs
	for _, i := range small {
		g := works[i].group()
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	ctx, stop := context.WithTimeout(ctx, h.o.Timeout)
	defer stop()
	t := &task{h: h, ctx: ctx, job: works[small[0]].t.job, bytes: bytes}
	if err := t.take(); err != nil {
		return // each job says so for itself
	}
	var failed error
	defer func() { t.release(failed) }()
	for _, g := range order {
		members := make([]*arrayWork, len(groups[g]))
		for k, i := range groups[g] {
			members[k] = works[i]
		}
		t.began = time.Now()
		computed, err := compute(t, members)
		if err != nil {
			h.o.Logger.Debug("jobs of a batch run by themselves", "jobs", len(members), "error", err)
			if failed = err; broken(err) || ctx.Err() != nil {
				return
			}
			continue
		}
		ran := t.computed()
		for k, i := range groups[g] {
			w := members[k]
			w.t.ctx = ctx
			out, err := w.finish(computed[k], ran)
			if err != nil {
				outs[i].Err = fmt.Errorf("job %s: %w", w.t.job.ID, classed(err))
				continue
			}
			outs[i].Output = out
		}
	}
}
