// Package agents steps, reads and fuses neural agents without neighbours on one device, and needs
// no queue.
package agents

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
)

// Options are the settings of Agents in addition to their cell. The zero value is usable.
type Options struct {
	// Seed selects the random weights, see cells.Addressed.Weights, and the leader of a round, see
	// Priority.
	Seed uint64
	// Weights replaces the random weights by a table, such as cells.Addressed.Table makes of a
	// trained network.
	Weights []uint32
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Geometry is the shape of the launches; zero: chosen for the device.
	Geometry device.Geometry
	// PageMemory and HostPageMemory are the bytes that pages may take on the device and in host
	// memory, which has the pages that do not fit on the device. 0 for PageMemory: all that they
	// need.
	PageMemory, HostPageMemory int64
}

// Agents are a swarm on one device: agents with ids from 0 on, in groups of equal size with
// consecutive ids. An agent starts in its initial state. A step moves it by the input that it
// holds, which is zeros before its first observation, and then it votes. Results have the same bits
// on every device, and the results of an agent depend on its own steps alone.
//
// One goroutine uses the Agents at a time; their owner closes them before the device. After an
// error of the device, a gpubatch.ErrDevice, the state is undefined. When a context ends a wait,
// the work on the device continues, and later calls follow it. If the agents do not all fit on the
// device, a context that ends may leave them ticked in part; every later step then fails.
type Agents struct {
	dev        device.Device
	memory     *pages.Memory
	cell       *cells.Addressed
	layout     kernels.Layout
	n          int64
	groups     int
	first, of  int // in the swarm: the number of the first group, and the number of groups
	pages      int
	perPage    divisor // agents of a page
	seed       uint64
	geometry   device.Geometry
	stream     device.Stream
	tick, step device.Kernel
	decide     device.Kernel
	score      device.Kernel // scores of a cell with items; else nil
	sums       device.Kernel // adds up embeddings
	bids       device.Kernel // bids in an election
	learn      device.Kernel
	update     device.Kernel // updates nodes by vote and key

	// The arguments of kernels in addition to the arena of pages: the copy of the table of frames,
	// the layout, parameters and weights of the cell, the tally with the counters of launches, and
	// by group the sequence number of the launch that touched it last, and its decision.
	frames, table, params, weights, scratch, stamps, decisions device.Buffer
	kept                                                       device.Buffer // see kernels.ToldArgs
	board                                                      device.Buffer // the best bids of an election
	nodes                                                      sharedNodes   // shared by several groups each

	base             []uint32          // the weights table without what is heard
	heard            []float32         // values that the weights on the device contain; nil: zeros
	result           device.HostBuffer // that kernels write
	words            []uint64          // result as words, of resultSlots launches
	sequence         uint32            // number of the last launch with a result
	pending          bool              // a launch may still run
	ranking          *Ranking          // ranks what Load loads; nil before it is needed
	surveyor         *Surveyor         // likewise
	marks            *marks            // marks what Load loads; nil before it is needed
	gathering        gathering         // for AgentStates
	distinct         distinct          // for small batches of Load
	looked           []float32         // memory for the features that an embedding has of a batch
	whole            *wholeFusion      // the last fusion in one pass, whose tables serve the next; nil: none
	counts           []uint32          // by page: its observations in the batch that is loaded, then its set
	fresh            bool              // kept was computed from the present state: the last change was a whole tick
	voting           bool              // an election has started, and the board may have its bids
	inconsistent     error             // why some agents are a step ahead of others; nil: none is
	released         []*staged         // staging buffers that may be used again
	track            *gpubatch.Track   // records spans; nil: they are not kept
	hostObservations int               // maximum number of observations that kernels read in host memory
	leastSurveyed    int               // see SurveyFrom
	close            []func() error    // in this order
}

// Report is the result of a step of agents.
type Report struct {
	// Stepped counts the steps of agents. Outside and Refused count observations that changed
	// nothing: the agent does not exist, or an input is NaN or infinite.
	Stepped, Outside, Refused uint64
	// Tally is the number of agents that now vote for each candidate.
	Tally []uint64
}

// New makes n agents in their initial state. n is a multiple of the size of a group and less than
// 2^32. The pages are open. The caller closes the Agents before d. After an error nothing stays
// open.
func New(d device.Device, cell *cells.Addressed, n int64, opts Options) (*Agents, error) {
	budget := pages.NewBudget(opts.PageMemory, opts.HostPageMemory)
	a, err := NewShard(d, budget, cell, n, 0, int(n/int64(cell.Agents)), opts)
	if err != nil {
		return nil, err
	}
	if err := a.memory.Open(context.Background(), nil); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// NewShard makes the n agents of a shard of a swarm. first is the number of its first group, and
// groups the number of groups of the swarm. Ids are relative to the shard. The pages take the
// budget b, and are not open. The caller opens them, empty or with a checkpoint, before the first
// step.
func NewShard(
	d device.Device, b *pages.Budget, cell *cells.Addressed, n int64, first, groups int, opts Options,
) (a *Agents, err error) {
	if opts.PageBytes == 0 {
		opts.PageBytes = 2 << 20
	}
	if cell.HearsNeighbours() {
		return nil, fmt.Errorf("%w: agents of the cell %s have neighbours: use gpuagents/grid, gpuagents/graph or "+
			"gpuagents/space", ErrInvalid, cell.Cell.Name)
	}
	if n < 1 || n > math.MaxUint32 || n%int64(cell.Agents) != 0 {
		return nil, fmt.Errorf("%w: %d agents in groups of %d: use a multiple of the group, below 2^32", ErrInvalid, n,
			cell.Agents)
	}
	if opts.PageBytes%4096 != 0 || opts.PageBytes > 1<<30 {
		return nil, fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, opts.PageBytes)
	}
	a = &Agents{dev: d, cell: cell, n: n, groups: int(n / int64(cell.Agents)), seed: opts.Seed}
	a.first, a.of = first, groups
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
			a = nil
		}
	}()
	if a.layout, err = cell.Layout(opts.PageBytes); err != nil {
		return a, err
	}
	a.pages = (a.groups + a.layout.Slots - 1) / a.layout.Slots
	a.perPage = divideBy(a.layout.Agents * a.layout.Slots)
	if a.nodes, err = a.shareNodes(); err != nil {
		return a, err
	}
	return a, a.open(b, opts)
}

func (a *Agents) open(b *pages.Budget, opts Options) (err error) {
	tick, step := a.cell.Kernels()
	for name, to := range map[string]*device.Kernel{
		tick: &a.tick, step: &a.step, "step_decide": &a.decide, "agent_sums": &a.sums, "agent_learn": &a.learn,
		"agent_nodes": &a.update, swarmset.Bids: &a.bids,
	} {
		if *to, err = a.dev.Kernel(name); err != nil {
			return err
		}
	}
	if a.cell.Items > 0 {
		if a.score, err = a.dev.Kernel(a.cell.ScoreKernel()); err != nil {
			return err
		}
	}
	if a.base = opts.Weights; a.base == nil {
		a.base = a.cell.Weights(opts.Seed)
	}
	if err = a.fits(a.base); err != nil {
		return err
	}
	if a.stream, err = a.dev.NewStream(); err != nil {
		return err
	}
	a.close = append(a.close, a.stream.Close)
	if a.memory, err = pages.NewMemory(a.dev, b, a.groups, a.layout.PageBytes, a.pages); err != nil {
		if refused := (*jobs.Error)(nil); errors.As(err, &refused) {
			return err
		}
		return fmt.Errorf("%d agents: %w", a.n, err)
	}
	a.close = append(a.close, a.memory.Close)
	for _, m := range []struct {
		to      *device.Buffer
		bytes   int64
		data    []byte
		purpose string
	}{
		{&a.frames, 4 * int64(a.pages), nil, "pages"},
		{&a.table, 0, device.Bytes(a.layout.Table()), "layout"},
		{&a.params, 0, device.Bytes(a.block()), "parameters"},
		// a cell without weights has a buffer too
		{&a.weights, 4, device.Bytes(a.base[:a.cell.DeviceWords()]), "weights"},
		{&a.scratch, 8 * kernels.AgentScratch, nil, "agents"},
		{&a.stamps, 4 * int64(a.groups), nil, "agents"},
		{&a.decisions, int64(a.groups), nil, "agents"},
		{&a.kept, a.keptBytes(), nil, "agents"},
		{&a.board, 8 * swarmset.BidsBoard, nil, "agents"},
		{&a.nodes.totals, a.nodes.bytes(), nil, "agents"},
		{&a.nodes.of, 4, device.Bytes(a.nodeOf()), "agents"},
		{&a.nodes.values, max(4, 4*int64(a.nodes.count)*int64(a.nodes.width)), nil, "agents"},
		{&a.nodes.flags, max(4, 4*int64(a.nodes.count)), nil, "agents"},
	} {
		if *m.to, err = a.alloc(max(m.bytes, int64(len(m.data))), m.purpose); err != nil {
			return err
		}
		if err = errors.Join((*m.to).Fill(0, (*m.to).Size(), 0), (*m.to).Write(0, m.data)); err != nil {
			return err
		}
	}
	if a.result, err = a.dev.AllocHost(electionResult+8*swarmset.BidsWords, "agents"); err != nil {
		return err
	}
	a.close = append(a.close, a.result.Close)
	clear(a.result.Bytes())
	a.words = device.Of[uint64](a.result.Bytes())
	a.geometry = opts.Geometry
	a.leastSurveyed = LeastSurveyed
	if a.hostObservations = maxHostObservations; a.dev.Properties().ComputeMajor == 0 {
		a.hostObservations = math.MaxInt // the memory of the host device is host memory
	}
	return nil
}

// block returns the parameter block, with what the draws of a quantum cell depend on.
func (a *Agents) block() []uint32 {
	w := a.cell.ParamBlock()
	if a.cell.Measures() {
		w[kernels.QuantumKey], w[kernels.QuantumKey+1] = uint32(a.seed), uint32(a.seed>>32)
		w[kernels.QuantumFirst] = uint32(a.first * a.cell.Agents)
	}
	return w
}

// resultSlots is the number of launches with a result that are put into the stream before a wait
// for the last of them: a wait takes some 10 us on a GPU, and two launches of few observations take
// less. resultBytes is the size of a result.
const (
	resultSlots = 32
	resultBytes = 8 * kernels.AgentResultWords
)

func (a *Agents) resultOf(slot int) device.Arg {
	return device.Mapped(a.result, int64(slot)*resultBytes, resultBytes)
}

// alloc allocates memory on the device. Close releases it.
func (a *Agents) alloc(bytes int64, purpose string) (device.Buffer, error) {
	b, err := a.dev.Alloc(bytes, purpose)
	if err != nil {
		return nil, fmt.Errorf("%d agents: %w", a.n, err)
	}
	a.close = append(a.close, b.Close)
	return b, nil
}

// Len returns the number of agents.
func (a *Agents) Len() int64 { return a.n }

// Groups returns the number of groups: agent i is in group i / Cell().Agents.
func (a *Agents) Groups() int { return a.groups }

// Cell returns the cell of the agents.
func (a *Agents) Cell() *cells.Addressed { return a.cell }

// Layout returns the places of the variables in a page.
func (a *Agents) Layout() kernels.Layout { return a.layout }

// Device returns the device of the agents.
func (a *Agents) Device() device.Device { return a.dev }

// Memory returns the pages, which belong to the Agents.
func (a *Agents) Memory() *pages.Memory { return a.memory }

// Trace has the stages of batches added to a track; nil: none is.
func (a *Agents) Trace(t *gpubatch.Track) { a.track = t }

// paged records the wait for the pages of a set, and returns the time at which work on it starts.
// Resident pages need no wait.
func (a *Agents) paged(began time.Time, s pages.Set) time.Time {
	if a.memory.Resident() {
		return began
	}
	return a.track.End(gpubatch.StagePage, began, len(s.Pages)*a.layout.PageBytes)
}

// Settle waits until the device has done all work of the agents, so that other streams may follow
// it. ErrDevice: some agents are between two steps.
func (a *Agents) Settle(ctx context.Context) error {
	if a.inconsistent != nil {
		return a.inconsistent
	}
	if !a.pending {
		return nil
	}
	err := gpubatch.Mark(a.stream.Sync(ctx))
	a.pending = err != nil
	return err
}

// StageAll has every batch pass through memory of the device, as large batches do, and releases the
// staging buffers. Tests of devices without memory call it.
func (a *Agents) StageAll() error {
	a.hostObservations = 0
	return trim(a)
}

// SurveyFrom has entries of n observations and more stepped alone, after a Survey, in place of
// LeastSurveyed. Tests whose entries are short call it.
func SurveyFrom(a *Agents, n int) { a.leastSurveyed = n }

// shape returns a launch of perCore blocks of threads on each multiprocessor, but at most as many
// blocks as have work.
func (a *Agents) shape(perCore, threads, most int) device.Geometry {
	g := a.geometry
	if g.Block == 0 {
		g.Block = threads
	}
	if g.Grid == 0 {
		g.Grid = perCore * a.dev.Properties().Multiprocessors
	}
	g.Grid = max(1, min(g.Grid, most))
	return g
}

func (a *Agents) pagedArgs() kernels.PagedArgs {
	return kernels.PagedArgs{
		Pages: device.Ptr(a.memory.Arena()), PageBytes: uint64(a.layout.PageBytes), Frames: device.Ptr(a.frames),
		Layout: device.Ptr(a.table), Params: device.Ptr(a.params),
	}
}

// next takes the next sequence number of a launch with a result. When the numbers wrap, it clears
// the stamps of the groups.
func (a *Agents) next(ctx context.Context) error {
	a.pending = true
	if a.sequence++; a.sequence != 0 {
		return nil
	}
	a.sequence = 1
	if err := a.stream.Sync(ctx); err != nil {
		return err
	}
	return a.stamps.Fill(0, a.stamps.Size(), 0)
}

// waits returns the context of a wait for a launch. If pages may be evicted, the wait outlives ctx;
// the watchdog of the device bounds it.
func waits(ctx context.Context, m *pages.Memory) context.Context {
	if m.Resident() {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// await waits for the last of a number of launches with results. It returns the sum of their
// results, with the tally of the last one.
func (a *Agents) await(ctx context.Context, results int) (r Report, err error) {
	if err := a.stream.Await(ctx, a.result, int64(results-1)*resultBytes+8*kernels.AgentDone, a.sequence); err != nil {
		return Report{}, gpubatch.Failed(err)
	}
	a.pending = false
	for words := range slices.Chunk(a.words[:results*kernels.AgentResultWords], kernels.AgentResultWords) {
		r = Report{
			r.Stepped + words[kernels.AgentStepped], r.Outside + words[kernels.AgentOutside],
			r.Refused + words[kernels.AgentRefused],
			words[kernels.AgentResultTally:][:a.cell.Candidates],
		}
	}
	r.Tally = slices.Clone(r.Tally)
	return r, nil
}

// Decisions returns the decisions of the last tick by group: the winning candidate, or
// kernels.AgentNoVote where the rule was not met. The slice is the caller's.
func (a *Agents) Decisions(ctx context.Context) ([]byte, error) {
	return a.read(ctx, a.decisions, int64(a.groups))
}

// read copies the first n bytes of a buffer, after all earlier work of the stream.
func (a *Agents) read(ctx context.Context, b device.Buffer, n int64) ([]byte, error) {
	data := make([]byte, n)
	if err := a.stream.Sync(ctx); err != nil {
		return nil, gpubatch.Failed(err)
	}
	if err := b.Read(0, data); err != nil {
		return nil, gpubatch.Failed(err)
	}
	return data, nil
}

// Close releases everything on the device. A second call does nothing.
func (a *Agents) Close() error {
	var errs []error
	for _, release := range a.close { // the stream first: it waits for the work that uses the memory
		errs = append(errs, release())
	}
	a.close = nil
	return errors.Join(errors.Join(errs...), a.closeBatches())
}
