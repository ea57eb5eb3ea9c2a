package gpuprocess

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/gpujobs"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// jobTaker takes jobs of pool gpu for an agent that also serves shards. A nil jobTaker takes none.
// drain ends it; after that only kinds may be called.
type jobTaker struct {
	handlers *gpujobs.Handlers
	kernels  *kernelLauncher
	// workers take jobs: the first one all but trainings, the second one trainings, which so keep no
	// other job waiting for hours.
	workers []*natsq.Worker
	most    int // jobs and batches at once
}

// jobBatch is the most jobs of a batch. The handlers choose how many of them one has.
const jobBatch = jobs.MaxBatch

// batches returns the kinds whose jobs run together. A batch takes what is queued and waits for
// nothing: an agent that is not busy starts a job at once, and a busy one finds more jobs.
func batches(h *gpujobs.Handlers) map[string]natsq.Batch {
	all := map[string]natsq.Batch{}
	for kind, handle := range h.Batches() {
		all[kind] = natsq.Batch{Handle: handle, Max: jobBatch, Size: h.BatchSize, Linger: -1}
	}
	return all
}

// takeJobs starts a worker of pool gpu whose jobs run on the devices of the agent. It returns nil
// if the settings ask for no jobs, or if the login may not take them, which the log then says: an
// agent serves its shards without jobs too. A job is not taken while the agent is not healthy. The
// caller drains the result before the agent, whose devices the jobs use.
func takeJobs(p *command.AgentProcess, s *settings, agent *gpuagents.Agent, models snapshot.Store) (*jobTaker, error) {
	if s.jobSlots == 0 {
		return nil, nil
	}
	kernels, err := newKernelLauncher(s.kernelCache(), p.Log)
	if err != nil {
		return nil, err
	}
	if s.trainJobs == 0 {
		models = nil
	}
	handlers, err := gpujobs.New(gpujobs.Options{
		Kernels: kernels.Run, Models: models, TrainPrograms: s.trainJobs > 0, TrainTimeout: s.trainTimeout,
		TrainCheckpoint: s.trainCheckpoint,
		Slot: func(ctx context.Context, bytes int64) (gpujobs.Slot, error) {
			place, err := agent.TakeSlot(ctx, bytes)
			if err != nil {
				return nil, err
			}
			return place, nil
		},
		AllSlots: func(ctx context.Context, bytes int64) (all []gpujobs.Slot, err error) {
			places, err := agent.TakeSlots(ctx, bytes)
			for _, p := range places {
				all = append(all, p)
			}
			return all, err
		},
		Collective: func(ctx context.Context, devices []device.Device) (device.Collective, error) {
			return cuda.OpenCollective(ctx, devices, p.Log)
		},
		Objects: p.Conn.Objects, AllowKernels: s.allowKernels, Memory: s.jobMemory,
		CircuitMemory: s.circuitMemory, Timeout: s.jobTimeout, Logger: p.Log,
	})
	if err != nil {
		return nil, err
	}
	counts, err := natsq.NewMetrics(p.Metrics)
	if err != nil {
		return nil, err
	}
	o := natsq.WorkerOptions{
		Name: p.Name, Pool: jobs.PoolGPU, Concurrency: s.jobSlots, Handlers: handlers.Jobs(),
		Batches: batches(handlers), JobsOnly: true, Metrics: counts, Logger: p.Log,
		Ready: func() error { return agent.Health() },
	}
	trainings := map[string]jobs.Handler{}
	for kind, handler := range o.Handlers {
		if gpujob.Trains(kind) {
			trainings[kind] = handler
			delete(o.Handlers, kind)
		}
	}
	worker, err := p.Conn.Work(p.Context(), o)
	if errors.Is(err, jobs.ErrDenied) {
		p.Log.Warn("no jobs of pool gpu are taken: the login may not; bring the accounts up to date with exoswarm "+
			"auth init, or use --gpu-jobs 0", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take jobs of pool gpu: %w", err)
	}
	taker := &jobTaker{handlers, kernels, []*natsq.Worker{worker}, s.jobSlots}
	if len(trainings) == 0 {
		return taker, nil
	}
	o.Concurrency, o.Handlers, o.Batches = s.trainJobs, trainings, nil
	if worker, err = worker.Beside(p.Context(), o); err != nil {
		last, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("take trainings: %w", err), taker.drain(last))
	}
	taker.workers, taker.most = append(taker.workers, worker), taker.most+s.trainJobs
	return taker, nil
}

// kinds returns the kinds of job for the registry.
func (t *jobTaker) kinds() []string {
	if t == nil {
		return nil
	}
	return t.handlers.Kinds()
}

// slots returns how many jobs and batches run, and how many may run at once.
func (t *jobTaker) slots() (taken, all int) {
	if t == nil {
		return 0, 0
	}
	for _, w := range t.workers {
		taken += w.Running()
	}
	return taken, t.most
}

// drain gives the jobs back to the queue, and waits until the devices are free of them or ctx ends.
// After an error launches may still run, so closing the devices may wait for them.
func (t *jobTaker) drain(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ended := make(chan error, len(t.workers))
	for _, w := range t.workers {
		go func() { ended <- w.Drain(ctx) }()
	}
	var err error
	for range t.workers {
		err = errors.Join(err, <-ended)
	}
	// Close has no context. Its goroutine ends when the watchdog of the device has ended the last
	// launch.
	free := make(chan struct{})
	go func() {
		t.handlers.Close()
		t.kernels.Close()
		close(free)
	}()
	select {
	case <-free:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("wait for launches of jobs: %w", context.Cause(ctx)))
	}
}
