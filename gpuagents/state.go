package gpuagents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// state is the agents of one shard on a device: pages of neural state, what the cell's kernel reads beside them, and the
// buffers that batches pass through. One goroutine uses it.
type state struct {
	*memory
	stream device.Stream
	kernel device.Kernel
	layout kernels.Layout
	groups int
	bound  *cells.Bound
	inputs int // features an observation
	seed   uint64
	every  swarm.Checkpoint

	layoutTable device.Buffer
	params      device.Buffer
	weights     device.Buffer
	io          [8]staging // by the constants below

	parts pieces

	seen  []int32  // by group: the run of this batch, or -1
	rows  []uint32 // by page: its observations, while a batch is cut; zeros else
	runs  []kernels.Run
	order []int // batch index by kernel index
}

// The buffers of a batch, in the order of the observe signature.
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

var ioPurpose = [8]string{"runs", "times", "features", "scores", "decisions", "counts", "leaders", "rounds"}

// staging is a buffer that grows, until it is given up.
type staging struct{ buf device.Buffer }

func newState(dev device.Device, b *budget, spec *swarm.Spec, groups int) (_ *state, err error) {
	s := &state{
		groups: groups, inputs: len(spec.Features), seed: spec.Seed, every: spec.Checkpoint,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
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
	if s.memory, err = newMemory(dev, b, groups, s.layout.PageBytes, (groups+s.layout.Slots-1)/s.layout.Slots); err != nil {
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
	s.heat.bytes = busGroup * (agent*s.layout.Agents + group)
	s.rows = make([]uint32, len(s.made))
	for _, c := range []struct {
		buf     *device.Buffer
		data    []byte
		purpose string
	}{
		{&s.layoutTable, device.Bytes(s.layout.Table()), "layout"},
		{&s.params, device.Bytes(s.bound.ParamBlock()), "parameters"},
		{&s.weights, device.Bytes(s.bound.Weights(spec.Seed)), "weights"},
	} {
		// A cell without weights still passes a buffer.
		if *c.buf, err = dev.Alloc(int64(max(len(c.data), 4)), c.purpose); err != nil {
			return nil, err
		}
		if err = (*c.buf).Write(0, c.data); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// about implements population.
func (s *state) about() about {
	return about{cell: s.bound.Cell.Name, agents: int64(s.groups) * int64(s.layout.Agents), every: s.every, meaning: s.meaning()}
}

// meaning is a digest of all that the bytes of the pages depend on beside the log; see about.
func (s *state) meaning() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %d groups, %d inputs, pages of %d\n%s\n%+v\n", s.bound.Cell.Name, s.groups, s.inputs, s.layout.PageBytes, s.bound.Cell.Text(), s.layout)
	h.Write(device.Bytes(s.bound.ParamBlock()))
	h.Write(device.Bytes(s.bound.Weights(s.seed)))
	return hex.EncodeToString(h.Sum(nil))
}

// pages implements population.
func (s *state) pages() *memory { return s.memory }

// restored implements population: there is nothing beside the pages.
func (s *state) restored(context.Context) error { return nil }

// apply implements population. An entry in hand is finished even when ctx ends: its state and its answer belong together.
func (s *state) apply(ctx context.Context, e jobs.Entry) (answer, error) {
	if e.Kind != jobs.EntryObserve {
		return s.question(ctx, e)
	}
	return observeAlone(context.WithoutCancel(ctx), s, e)
}

// decode implements population.
func (s *state) decode(data []byte) (observed, error) {
	o, err := batch.DecodeObservations(data)
	if err == nil {
		err = s.check(o)
	}
	return observed{groups: o}, err
}

// reduce implements population.
func (s *state) reduce(on bool) { s.parts.reduced = on }

// check says what is wrong with a batch that a stranger sent.
func (s *state) check(o *batch.Observations) error {
	if o.Width != s.inputs {
		return jobs.Errorf(jobs.CodeInvalid, "observations have %d features, the swarm takes %d", o.Width, s.inputs)
	}
	for i, g := range o.Group {
		if int64(g) >= int64(s.groups) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d is for group %d of %d", i, g, s.groups)
		}
	}
	for i, f := range o.Features {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return jobs.Errorf(jobs.CodeInvalid, "observation %d: feature %d is %v", i/o.Width, i%o.Width, f)
		}
	}
	return nil
}

// plan groups the observations of a batch into runs, one a group, each in the order of the batch: s.order[k] is the
// place in the batch of the observation that the kernel sees as number k. A run has the number of its page for a frame. It returns false when the batch already
// stands like that.
func (s *state) plan(groups []uint32) (moved bool) {
	s.runs = s.runs[:0]
	contiguous := true
	for i, g := range groups {
		r := s.seen[g]
		switch {
		case r < 0:
			s.seen[g] = int32(len(s.runs))
			s.runs = append(s.runs, kernels.Run{
				Frame: g / uint32(s.layout.Slots), Slot: g % uint32(s.layout.Slots), First: uint32(i), Count: 1, Group: g,
			})
		default:
			if i > 0 && groups[i-1] != g {
				contiguous = false
			}
			s.runs[r].Count++
		}
	}
	if !contiguous {
		first := uint32(0)
		for i := range s.runs {
			s.runs[i].First = first
			first += s.runs[i].Count
		}
		s.order = slices.Grow(s.order[:0], len(groups))[:len(groups)]
		next := make([]uint32, len(s.runs))
		for i, g := range groups {
			r := s.seen[g]
			s.order[s.runs[r].First+next[r]] = i
			next[r]++
		}
	}
	for _, g := range groups {
		s.seen[g] = -1
	}
	// Long runs first: blocks start in this order, and the longest decides when the launch ends.
	slices.SortStableFunc(s.runs, func(a, b kernels.Run) int { return int(b.Count) - int(a.Count) })
	return !contiguous
}

// gather copies rows of width elements into kernel order; scatter is its inverse.
func gather[T any](order []int, src []T, width int) []T {
	dst := make([]T, len(src))
	for k, i := range order {
		copy(dst[k*width:(k+1)*width], src[i*width:(i+1)*width])
	}
	return dst
}

func scatter[T any](order []int, src []T, width int) []T {
	dst := make([]T, len(src))
	for k, i := range order {
		copy(dst[i*width:(i+1)*width], src[k*width:(k+1)*width])
	}
	return dst
}

// sets cuts the pages of the runs into sets that are held together and puts the runs into the order of the sets: those of
// set i end before ends[i].
func (s *state) sets() (sets []set, ends []int) {
	var pages []uint64
	for _, r := range s.runs {
		if s.rows[r.Frame] == 0 {
			pages = append(pages, uint64(r.Frame))
		}
		s.rows[r.Frame] += r.Count
	}
	sets = s.place(pages, s.rows)
	for _, r := range s.runs {
		s.rows[r.Frame] = 0
	}
	if len(sets) == 1 {
		return sets, []int{len(s.runs)}
	}
	setOf := make(map[uint32]int, len(pages))
	for i, set := range sets {
		for _, page := range set.pages {
			setOf[uint32(page)] = i
		}
	}
	slices.SortStableFunc(s.runs, func(a, b kernels.Run) int { return setOf[a.Frame] - setOf[b.Frame] })
	ends = make([]int, len(sets))
	for _, r := range s.runs {
		ends[setOf[r.Frame]]++
	}
	for i := range ends[1:] {
		ends[i+1] += ends[i]
	}
	return sets, ends
}

// launch steps the runs from first up to end, whose pages are held. No launch before it is under way.
func (s *state) launch(first, end int) error {
	words := make([]uint32, 0, kernels.RunWords*(end-first))
	for _, r := range s.runs[first:end] {
		r.Frame = s.table[r.Frame]
		words = r.Words(words)
	}
	if err := s.io[ioRuns].buf.Write(0, device.Bytes(words)); err != nil {
		return err
	}
	args := []device.Arg{
		device.Ptr(s.arena), device.Uint64(uint64(s.layout.PageBytes)), device.Ptr(s.layoutTable), device.Ptr(s.params), device.Ptr(s.weights),
		device.Range(s.io[ioRuns].buf, 0, int64(4*len(words))),
	}
	for i := ioTimes; i < len(s.io); i++ {
		args = append(args, device.Ptr(s.io[i].buf))
	}
	args = append(args, s.hostArena())
	g := device.Geometry{Grid: end - first, Block: blockSize(s.layout.Agents, s.dev.Properties().MaxThreadsPerBlock)}
	return s.stream.Launch(s.kernel, g, args...)
}

// observe steps the agents of the groups addressed, in the order of the batch, and returns one decision an observation, and how often
// the device had no room for as many. obs has passed check. On an error the state is undefined and the shard starts again from its
// checkpoint.
func (s *state) observe(ctx context.Context, obs *batch.Observations) (dec *batch.Decisions, halved int, err error) {
	n, candidates := obs.Len(), len(s.bound.Cell.Candidates)
	dec = &batch.Decisions{
		Group: obs.Group, Row: obs.Row, Read: obs.Read, Timestamp: obs.Timestamp, Value: obs.Value,
		Score: make([]float32, n), Decision: make([]uint32, n), Candidates: candidates,
		Counts: make([]uint32, n*candidates), Leader: make([]uint64, n), Round: make([]uint64, n),
	}
	if s.bound.Drop != 0 {
		dec.Dropped = make([]uint8, n)
	}
	// Observations take effect in their order wherever a batch is cut, so that answers do not depend on it.
	halved, err = s.parts.each(n, func(from, most int) (int, error) {
		to := min(n, from+most)
		return to, s.observePart(ctx, obs, dec, from, to)
	}, s.trim)
	return dec, halved, err
}

// trim gives up the memory that a batch does not need to be begun.
func (s *state) trim() error {
	for i := range s.io {
		if err := s.io[i].close(); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
	}
	if _, err := s.dev.Trim(); err != nil {
		return fmt.Errorf("%w: %w", ErrDevice, err)
	}
	return nil
}

// observePart is observe from one observation up to another. An errFit has changed nothing.
func (s *state) observePart(ctx context.Context, all *batch.Observations, whole *batch.Decisions, from, to int) error {
	n, candidates := to-from, len(s.bound.Cell.Candidates)
	obs := &batch.Observations{Group: all.Group[from:to], Time: all.Time[from:to], Features: all.Features[from*s.inputs : to*s.inputs]}
	dec := &batch.Decisions{
		Score: whole.Score[from:to], Decision: whole.Decision[from:to], Counts: whole.Counts[from*candidates : to*candidates], Round: whole.Round[from:to],
	}
	moved := s.plan(obs.Group)
	sets, ends := s.sets()
	times, features := obs.Time, obs.Features
	if moved {
		times, features = gather(s.order, times, 1), gather(s.order, features, s.inputs)
	}
	leaders := make([]uint32, n)
	outputs := [8][]byte{
		ioScores: device.Bytes(dec.Score), ioDecisions: device.Bytes(dec.Decision), ioCounts: device.Bytes(dec.Counts),
		ioLeaders: device.Bytes(leaders), ioRounds: device.Bytes(dec.Round),
	}
	sizes := [8]int{ioRuns: 4 * kernels.RunWords * len(s.runs)} // of what is written later
	for i, data := range [8][]byte{ioTimes: device.Bytes(times), ioFeatures: device.Bytes(features)} {
		if err := s.io[i].size(s.dev, max(len(data), len(outputs[i]), sizes[i]), ioPurpose[i]); err != nil {
			return unfit(err)
		}
		if err := s.io[i].buf.Write(0, data); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
	}
	first := 0
	if err := s.each(ctx, sets, visit, func(i int) error {
		if err := s.launch(first, ends[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
		first = ends[i]
		s.mark(sets[i].pages)
		if err := s.stream.Sync(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
		s.warm(sets[i])
		return nil
	}); err != nil {
		return err
	}
	s.exchange(sets)
	for i, data := range outputs {
		if err := s.io[i].buf.Read(0, data); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
	}
	if moved {
		copy(dec.Score, scatter(s.order, dec.Score, 1))
		copy(dec.Decision, scatter(s.order, dec.Decision, 1))
		copy(dec.Round, scatter(s.order, dec.Round, 1))
		copy(dec.Counts, scatter(s.order, dec.Counts, candidates))
		leaders = scatter(s.order, leaders, 1)
	}
	for i, l := range leaders {
		whole.Leader[from+i] = uint64(obs.Group[i])*uint64(s.layout.Agents) + uint64(l)
	}
	if whole.Dropped != nil {
		tell(dec.Decision, whole.Dropped[from:to])
	}
	return nil
}

// tell takes from decisions which observations were dropped.
func tell(decisions []uint32, dropped []uint8) {
	for i, d := range decisions {
		switch d {
		case kernels.DroppedLate:
			dropped[i], decisions[i] = batch.DroppedLate, batch.NoDecision
		case kernels.DroppedDuplicate:
			dropped[i], decisions[i] = batch.DroppedDuplicate, batch.NoDecision
		}
	}
}

// blockSize is one thread an agent in whole warps, as far as a block goes.
func blockSize(agents, most int) int {
	if most < 32 {
		most = 1024
	}
	return min((agents+31)/32*32, most)
}

func (b *staging) size(dev device.Device, n int, purpose string) error {
	if b.buf != nil && b.buf.Size() >= int64(n) {
		return nil
	}
	if err := b.close(); err != nil {
		return err
	}
	buf, err := dev.Alloc(int64(n+n/2+64), purpose) // half as much again, so that batches of like size grow it once
	if err != nil {
		return err
	}
	b.buf = buf
	return nil
}

// close gives the memory back. A second call does nothing.
func (b *staging) close() error {
	if b.buf == nil {
		return nil
	}
	err := b.buf.Close()
	b.buf = nil
	return err
}

// close releases everything on the device.
func (s *state) close() error {
	var errs []error
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	errs = append(errs, s.memory.close())
	for _, b := range []device.Buffer{s.layoutTable, s.params, s.weights} {
		if b != nil {
			errs = append(errs, b.Close())
		}
	}
	for i := range s.io {
		errs = append(errs, s.io[i].close())
	}
	return errors.Join(errs...)
}
