// Package weights holds language models in the memory of a device, for all shards on it. A Holder
// has one copy of a model, and counts its users. The tensors of a layer are one buffer, in the
// budget of the pages; each buffer has a claim, which Holder.Audit compares with the device.
//
// A layer without room on the device stays in pinned memory, or in the file without room there, and
// passes through one of two buffers in each step. Model.Tensor has one place for a tensor in either
// case. A step takes a Model.Pass, and calls Pass.Layer before the work of each layer.
package weights

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Errors of this package. Errors of a source and of a device are wrapped, the latter in
// gpubatch.ErrDevice.
var (
	// ErrRoom: the device has no room for the tensors beside the layers and for two layers.
	ErrRoom = errors.New("no room for the model")
	// ErrTensor is a name that no tensor of the model has.
	ErrTensor = errors.New("no such tensor")
)

// Tensor is a tensor in device memory. Its elements are row-major and little-endian, from Offset on,
// a multiple of 256.
type Tensor struct {
	Buffer        device.Buffer
	Offset, Bytes int64
	Type          string // quant.F32, quant.BF16 or quant.Q8_0
	Rows, Columns int    // Rows are the outputs of a product; a vector is one row
}

// Source is a model that can be read at any place. Its methods may be called from several
// goroutines, but Close.
type Source interface {
	Parameters() *architecture.Parameters
	// Tensor returns the type of the elements of a tensor, by its canonical name, and their bytes.
	Tensor(name string) (kind string, bytes int64, err error)
	// Read fills p with the bytes of a tensor from off on. A file that ends before is an error.
	Read(ctx context.Context, name string, off int64, p []byte) error
	Close() error
}

// Ref names a form of a model.
type Ref struct {
	swarms.ModelRef
	// Exact has all tensors as F32. Otherwise BF16 and Q8_0 stay as they are, except for vectors.
	Exact bool
}

// Holder holds the models of one device. Its methods may be called from several goroutines.
type Holder struct {
	dev    device.Device
	budget *pages.Budget
	taken  atomic.Int64 // bytes on the device

	mu     sync.Mutex
	models map[Ref]*held
}

// NewHolder returns a holder of nothing. budget is the memory for the pages on the device; nil: all
// of the device. Both belong to the caller, and the device stays open until all models are
// released.
func NewHolder(dev device.Device, budget *pages.Budget) *Holder {
	return &Holder{dev: dev, budget: budget, models: map[Ref]*held{}}
}

// held is a model in the memory of a device.
type held struct {
	of    *Holder
	ref   Ref
	ready chan struct{} // closed when it is loaded, or cannot be
	// users is 0 before it is loaded, and after the last release. audits of them are audits under way.
	// of.mu guards both.
	users, audits int

	src        Source
	parameters *architecture.Parameters
	parts      []*part // by layer, and behind them what is in no layer
	tensors    map[string]place
	mover      *mover // moves layers; nil: all stay on the device
	claims     int    // parts with a claim
	step       time.Duration
	violations atomic.Uint64

	auditing sync.Mutex
	next     int                       // the part where the next audit begins
	checked  atomic.Pointer[time.Time] // when the last audit of all parts has ended
	damaged  atomic.Bool               // a part is not as claimed, and is not loaded again yet
}

// Model is a model that one user holds. Its methods may be called from several goroutines, but
// Release, which is the last call. The tensors do not change.
type Model struct {
	*held
	seen     uint64 // violations before it was held
	released bool
}

// Hold returns a model for one more user. If nobody holds it, open opens its source, which the
// holder closes; the error of open is wrapped. ErrRoom: the device has too little memory. A layer
// without room is no error; see the package. A pages.ErrResidency: the weights are damaged, and the
// next audit loads them again. It waits for memory that shards give, and for the load
// by another caller, until ctx ends. The caller releases the model.
func (h *Holder) Hold(ctx context.Context, ref Ref, open func(ctx context.Context) (Source, error)) (*Model, error) {
	for {
		h.mu.Lock()
		m := h.models[ref]
		if m == nil {
			m = &held{of: h, ref: ref, ready: make(chan struct{})}
			h.models[ref] = m
			h.mu.Unlock()
			return m.first(ctx, open)
		}
		if m.users > 0 {
			defer h.mu.Unlock()
			of := &Model{held: m, seen: m.violations.Load()}
			if err := of.Intact(); err != nil {
				return nil, err
			}
			m.users++
			return of, nil
		}
		h.mu.Unlock()
		select { // another caller loads it, and may fail for a reason of its own
		case <-m.ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("hold model %s: %w", ref.Name, context.Cause(ctx))
		}
	}
}

// first loads the model for its first user.
func (m *held) first(ctx context.Context, open func(ctx context.Context) (Source, error)) (*Model, error) {
	src, err := open(ctx)
	if err == nil {
		m.src = src
		err = m.load(ctx)
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	defer close(m.ready)
	if err != nil {
		err = fmt.Errorf("hold model %s on %s: %w", m.ref.Name, m.of.dev.Properties().Name, errors.Join(err, m.free()))
		return nil, err
	}
	m.users = 1
	return &Model{held: m}, nil
}

// free gives everything back. of.mu is held.
func (m *held) free() (err error) {
	if m.of.models[m.ref] == m {
		delete(m.of.models, m.ref)
	}
	if m.mover != nil {
		err = m.mover.close()
	}
	for _, p := range m.parts {
		err = errors.Join(err, m.of.freePart(p))
	}
	if m.src != nil {
		err = errors.Join(err, m.src.Close())
	}
	m.parts, m.mover, m.src = nil, nil, nil
	return err
}

// Release ends the use. The last user frees the memory: the work that reads it has ended. A second
// call does nothing.
func (m *Model) Release() error {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.released {
		return nil
	}
	m.released = true
	if m.users--; m.users > 0 {
		return nil
	}
	return m.free()
}

// Parameters returns what the model computes. The caller does not change it.
func (m *Model) Parameters() *architecture.Parameters { return m.parameters }

// Tensor returns the place of a tensor by its canonical name. It is the same as long as the model is
// held. A tensor of a layer that passes is there during Pass.Layer of its layer. ErrTensor: the
// model has none of that name.
func (m *Model) Tensor(name string) (Tensor, error) {
	at, there := m.tensors[name]
	if !there {
		return Tensor{}, fmt.Errorf("%w: model %s has no %s", ErrTensor, m.ref.Name, name)
	}
	return Tensor{
		Buffer: at.in.buffer, Offset: at.at, Bytes: at.bytes, Type: at.kind, Rows: at.rows, Columns: at.columns,
	}, nil
}

// Intact returns a pages.ErrResidency if the weights were not on the device as claimed since the
// model was held. What was computed with them may be wrong: the user returns to a state of before.
func (m *Model) Intact() error {
	if m.damaged.Load() || m.violations.Load() > m.seen {
		return fmt.Errorf("model %s: weights: %w", m.ref.Name, pages.ErrResidency)
	}
	return nil
}

// Info describes a model that a holder has.
type Info struct {
	Ref
	Users                int
	Device, Pinned, File int64 // bytes that stay on the device, and bytes that come from elsewhere in each step
	Layers, Passing      int
	// Step is how long the layers that pass took when the model was loaded: a step takes at least as
	// long. 0: all stay on the device.
	Step    time.Duration
	Claims  int
	Checked time.Time // the end of the last complete comparison of the claims; zero: there was none
}

// Models describes the models that are held, in no order.
func (h *Holder) Models() (all []Info) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.models {
		if m.users == m.audits {
			continue
		}
		i := Info{Ref: m.ref, Users: m.users - m.audits, Layers: m.parameters.Layers, Step: m.step, Claims: m.claims}
		if at := m.checked.Load(); at != nil {
			i.Checked = *at
		}
		for _, p := range m.parts {
			switch {
			case p.pass < 0:
				i.Device += p.bytes
				continue
			case p.pinned != nil:
				i.Pinned += p.bytes
			default:
				i.File += p.bytes
			}
			i.Passing++
		}
		if m.mover != nil {
			i.Device += m.mover.bytes()
		}
		all = append(all, i)
	}
	return all
}
