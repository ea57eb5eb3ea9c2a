package gpuagents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// keptModels are the models that an agent holds because somebody has asked it to. keepModels owns
// their goroutines.
type keptModels struct {
	tasks chan func(start func(func(ctx context.Context)))

	mu sync.Mutex
	of map[string]*keptModel // by name
}

func newKeptModels() *keptModels {
	return &keptModels{tasks: make(chan func(start func(func(ctx context.Context)))), of: map[string]*keptModel{}}
}

// keptModel is a model that is held, is being loaded, or could not be.
type keptModel struct {
	ref   weights.Ref
	stop  context.CancelFunc
	ended chan struct{}
	held  bool  // guarded by keptModels.mu, as the next
	err   error // why it is not held
}

// KeptModel is a model that an agent was asked to hold.
type KeptModel struct {
	weights.Ref
	Held bool
	Err  error // why it is not held now; nil: it is being loaded
}

// keepModels runs the goroutines of models until ctx ends.
func (a *Agent) keepModels(ctx context.Context) {
	var all sync.WaitGroup
	for {
		select {
		case do := <-a.models.tasks:
			do(func(fn func(ctx context.Context)) { all.Go(func() { fn(ctx) }) })
		case <-ctx.Done():
			all.Wait()
			return
		}
	}
}

// openModel returns a function that opens a model for weights.Holder.Hold.
func (a *Agent) openModel(ref weights.Ref) func(ctx context.Context) (weights.Source, error) {
	return func(ctx context.Context) (weights.Source, error) {
		if a.o.Snapshots == nil || a.o.Models == nil {
			return nil, jobs.Errorf(jobs.CodeInvalid, "agent %s has no place of models: start it with --snapshots",
				a.o.Name)
		}
		return model.Open(ctx, a.o.Snapshots, a.o.Models, ref.ModelRef)
	}
}

// HoldModel has the agent hold a model on each device that works, in addition to what its shards
// hold, until ReleaseModel or the end of the agent. It returns at once; Views.KeptModels tells
// the outcome. If the first load fails, the agent does not try again. A *jobs.Error: another digest is
// held under the name.
func (a *Agent) HoldModel(ctx context.Context, ref weights.Ref) (err error) {
	done := make(chan struct{})
	do := func(start func(func(ctx context.Context))) {
		defer close(done)
		a.models.mu.Lock()
		defer a.models.mu.Unlock()
		if k := a.models.of[ref.Name]; k != nil && k.err == nil {
			if k.ref != ref {
				err = jobs.Errorf(jobs.CodeInvalid, "agent %s holds model %s with the digest %s (exact: %v): unload "+
					"it first", a.o.Name, ref.Name, k.ref.SHA256, k.ref.Exact)
			}
			return
		}
		k := &keptModel{ref: ref, ended: make(chan struct{})}
		stopped, stop := context.WithCancel(context.Background())
		k.stop = stop
		a.models.of[ref.Name] = k
		start(func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer stop()
			defer close(k.ended)
			defer context.AfterFunc(stopped, cancel)()
			a.keepModel(ctx, k)
		})
	}
	select {
	case a.models.tasks <- do:
		<-done
		return err
	case <-a.closed:
		return jobs.ErrDrain
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ReleaseModel ends HoldModel, and waits until the model is not held by it. jobs.ErrNotFound: it was
// not asked for.
func (a *Agent) ReleaseModel(ctx context.Context, name string) error {
	a.models.mu.Lock()
	k := a.models.of[name]
	delete(a.models.of, name)
	a.models.mu.Unlock()
	if k == nil {
		return fmt.Errorf("agent %s was not asked to hold model %s: %w", a.o.Name, name, jobs.ErrNotFound)
	}
	k.stop()
	select {
	case <-k.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CheckModels compares all claims of the models with the devices. The error joins a
// pages.ErrResidency for each layer with other bytes, which is then loaded again.
func (a *Agent) CheckModels(ctx context.Context) error {
	err := a.pool.AuditModels(ctx, true)
	if errors.Is(err, pages.ErrResidency) {
		a.violations.setModels(err)
	}
	return err
}

// keepModel holds a model until ctx ends. A device that fails takes its shards and models along;
// the model is then loaded on the devices that work.
func (a *Agent) keepModel(ctx context.Context, k *keptModel) {
	const pause = 5 * time.Second
	for first := true; ctx.Err() == nil; first = false {
		err := a.holdModel(ctx, k)
		a.models.mu.Lock()
		k.held, k.err = false, err
		a.models.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if err == nil { // a device has failed
			continue
		}
		a.o.Logger.Warn("a model is not held", "model", k.ref.Name, "error", err)
		if first {
			return
		}
		_ = retry.Sleep(ctx, pause)
	}
}

// holdModel holds a model until ctx ends or a device wants its users to leave.
func (a *Agent) holdModel(ctx context.Context, k *keptModel) (err error) {
	slots, err := a.pool.TakeAll(ctx, 0)
	if err != nil {
		return err
	}
	var held []*weights.Model
	left, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
		for _, m := range held {
			err = errors.Join(err, m.Release())
		}
		for _, s := range slots {
			s.Release()
		}
	}()
	for _, s := range slots {
		watching.Go(func() {
			select {
			case <-s.Evicted():
				cancel()
			case <-left.Done():
			}
		})
	}
	for _, s := range slots {
		m, err := s.Weights().Hold(left, k.ref, a.openModel(k.ref))
		if err != nil {
			s.Failed(err)
			return err
		}
		held = append(held, m)
	}
	a.models.mu.Lock()
	k.held, k.err = true, nil
	a.models.mu.Unlock()
	<-left.Done()
	return nil
}

// auditModels compares claims of models until ctx ends.
func (a *Agent) auditModels(ctx context.Context) {
	look := time.NewTicker(a.o.ResidencyCheck)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		err := a.pool.AuditModels(ctx, false)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if errors.Is(err, pages.ErrResidency) {
			a.violations.setModels(err)
		}
		a.o.Logger.Error("layers of models are not on the device as claimed, and are loaded again", "error", err)
	}
}
