package state

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// groupState is the State of a swarm whose groups are addressed: the pages, the constant tables
// that the kernel of the cell reads beside them, and the staging buffers of batches. The goroutine
// that serves the shard uses it.
type groupState struct {
	dev    device.Device
	memory *pages.Memory
	stream device.Stream  // of all launches
	kernel device.Kernel  // observe of the cell
	layout kernels.Layout // of a page
	groups int            // of the shard
	has    GroupRange     // these groups in the swarm
	bound  *cells.Bound   // the cell with its parameters
	inputs int            // features of an observation
	seed   uint64         // of the weights
	every  swarm.Checkpoint

	// What the kernel reads beside the pages; it does not change.
	layoutTable device.Buffer
	params      device.Buffer
	weights     device.Buffer

	computer *computer // nil before the first question that needs it

	track    *gpubatch.Track    // of the stages of batches; nil: they are not kept
	staging  [8]gpubatch.Buffer // by the constants below
	splitter gpubatch.Splitter

	// Of the current batch; kept to be used again.
	seen  []int32       // by group of the shard: its run, or -1
	local []uint32      // by observation: its group of the shard; unused if the first group is 0
	rows  []uint32      // by page: its observations, while the batch is cut; else zeros
	runs  []kernels.Run // of consecutive observations of a group, by sets of pages
	order []int         // index in the batch by index of the kernel
}

// The staging buffers of a batch, in the order of the parameters of observe.
const (
	ioRuns = iota
	ioTimes
	ioFeatures
	ioScores
	ioDecisions
	ioCounts
	ioLeaders
	ioRounds
)

// ioPurpose names the buffers in the memory statistics of the device.
var ioPurpose = [8]string{"runs", "times", "features", "scores", "decisions", "counts", "leaders", "rounds"}

// newGroupState allocates what a groupState has on the device. Its memory is not open: the caller
// opens it with a store, or resets it. After an error everything is released.
func newGroupState(dev device.Device, b *pages.Budget, spec *swarm.Spec, has GroupRange) (_ *groupState, err error) {
	groups := has.Groups
	s := &groupState{
		dev: dev, groups: groups, has: has, inputs: len(spec.Features), seed: spec.Seed, every: spec.Checkpoint,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.bound, err = spec.Bind(); err != nil {
		return nil, err
	}
	if s.layout, err = s.bound.Layout(int(spec.PageSize)); err != nil {
		return nil, err
	}
	if s.kernel, err = observeKernel(dev, s.bound.Cell, spec.Cell.Step); err != nil {
		return nil, err
	}
	if s.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	if s.memory, err = pages.NewMemory(dev, b, groups, s.layout.PageBytes,
		(groups+s.layout.Slots-1)/s.layout.Slots); err != nil {
		if refused := (*jobs.Error)(nil); errors.As(err, &refused) {
			return nil, err
		}
		return nil, fmt.Errorf("%d groups of %d agents: %w", groups, spec.AgentsPerGroup, err)
	}
	s.seen = make([]int32, groups)
	for i := range s.seen {
		s.seen[i] = -1
	}
	agent, group := s.bound.StateBytes()
	s.memory.SetObservationBytes(pages.BusGroup * (agent*s.layout.Agents + group))
	s.rows = make([]uint32, s.memory.Count())
	for _, c := range []struct {
		buf     *device.Buffer
		data    []byte
		purpose string
	}{
		{&s.layoutTable, device.Bytes(s.layout.Table()), "layout"},
		{&s.params, device.Bytes(s.bound.ParamBlock()), "parameters"},
		{&s.weights, device.Bytes(s.bound.Weights(spec.Seed)), "weights"},
	} {
		// A cell without weights has a buffer too.
		if *c.buf, err = dev.Alloc(int64(max(len(c.data), 4)), c.purpose); err != nil {
			return nil, err
		}
		if err = (*c.buf).Write(0, c.data); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *groupState) Info() Info {
	return Info{
		Cell:       s.bound.Cell.Name,
		Agents:     int64(s.groups) * int64(s.layout.Agents),
		Stepped:    int64(s.layout.Agents),
		Checkpoint: s.every,
		Digest:     s.digest(),
	}
}

// digest returns Info.Digest. It covers everything that decides the meaning of a page: the text of
// the cell, its parameters and weights, and the layout. A checkpoint of another digest is
// discarded.
func (s *groupState) digest() string {
	h := sha256.New()
	fmt.Fprintf(
		h, "%s %d groups, %d inputs, pages of %d\n%s\n%+v\n", s.bound.Cell.Name, s.groups, s.inputs,
		s.layout.PageBytes, s.bound.Cell.Text(), s.layout,
	)
	h.Write(device.Bytes(s.bound.ParamBlock()))
	h.Write(device.Bytes(s.bound.Weights(s.seed)))
	if s.has.Shards > 1 {
		fmt.Fprintln(h, s.has)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s *groupState) Memory() *pages.Memory { return s.memory }

// Restored implements State: there is no state beside the pages. So a checkpoint of the pages is a
// checkpoint of the whole.
func (s *groupState) Restored(context.Context) error { return nil }

// Apply implements State. It completes an entry after the end of ctx: its state and its answer
// belong together. Questions may end with ctx, because they change nothing.
func (s *groupState) Apply(ctx context.Context, e swarms.Entry) (Answer, error) {
	switch e.Kind {
	case swarms.EntryObserve:
		return applyObservations(context.WithoutCancel(ctx), s, e)
	case swarms.EntrySwap:
		return s.swap(context.WithoutCancel(ctx), e.Data)
	}
	return s.question(ctx, e)
}

// Decode implements State. The result may share the memory of data. It does not use the device, so
// it may run while another goroutine applies a batch.
func (s *groupState) Decode(data []byte) (Observations, error) {
	o, err := batch.DecodeObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return Observations{Groups: o}, err
}

func (s *groupState) Trace(t *gpubatch.Track) { s.track = t }

func (s *groupState) Reduce(on bool) { s.splitter.Reduced = on }

// check returns a *jobs.Error for a batch that does not fit the swarm: of another width, of an
// unknown group, or with a feature that is not finite. Nothing is applied then.
func (s *groupState) check(o *batch.Observations) error {
	if o.Width != s.inputs {
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes %d", o.Width, s.inputs)
	}
	if i, err := s.has.owns(o.Group, 1, "group"); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "observation %d is for group %v", i, err)
	}
	for i, f := range o.Features {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: feature %d is %v", i/o.Width, i%o.Width, f)
		}
	}
	return nil
}

// Close implements State. It also closes a state that newGroupState could not complete.
func (s *groupState) Close() error {
	errs := []error{s.computer.Close()}
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	errs = append(errs, s.memory.Close())
	for _, b := range []device.Buffer{s.layoutTable, s.params, s.weights} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	for i := range s.staging {
		errs = append(errs, s.staging[i].Close())
	}
	return errors.Join(errs...)
}

func (s *groupState) Reset(ctx context.Context) error { return s.memory.Reset(ctx) }
