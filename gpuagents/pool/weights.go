package pool

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/gpuagents/weights"
)

// Model is a model that is held on a device.
type Model struct {
	Device string
	weights.Info
}

// Models describes the models on all devices, in no order.
func (f *Pool) Models() (all []Model) {
	for _, ds := range f.devices {
		ds.each(func(s *instance) {
			for _, m := range s.weights.Models() {
				all = append(all, Model{s.dev.Properties().Name, m})
			}
		})
	}
	return all
}

// AuditModels compares claims of the models on all devices; see weights.Holder.Audit.
func (f *Pool) AuditModels(ctx context.Context, whole bool) (err error) {
	for _, ds := range f.devices {
		ds.each(func(s *instance) {
			checked, violated, aerr := s.weights.Audit(ctx, whole)
			ds.metrics.audited(checked, violated)
			err = errors.Join(err, aerr)
		})
	}
	return err
}

// each calls fn for the instances that are open, which stay open meanwhile.
func (ds *managedDevice) each(fn func(s *instance)) {
	ds.mu.Lock()
	all := ds.instances
	for _, s := range all {
		if s != nil {
			s.users++
		}
	}
	ds.mu.Unlock()
	for _, s := range all {
		if s != nil {
			fn(s)
			ds.release(s)
		}
	}
}
