// Package agents is the library of neural agents on one device: it steps, reads and fuses them, and
// needs no queue.
package agents

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
)

// AgentsOptions are what Agents may be told beside their cell. The zero value is usable.
type Options struct {
	// Seed chooses the random weights, see cells.Addressed.Weights, and who leads a round, see Priority.
	Seed uint64
	// Weights are the weights table instead, as cells.Addressed.Table makes it of a trained network.
	Weights []uint32
	// PageBytes is the size of a page of state, a multiple of 4 KiB; default 2 MiB.
	PageBytes int
	// Geometry is the shape of the launches; zero: chosen for the device.
	Geometry device.Geometry
	// PageMemory and HostPageMemory are the bytes that pages may take on the device and in host memory, where those are kept that
	// do not fit on the device; 0 for PageMemory: all that they need.
	PageMemory, HostPageMemory int64
}

// Agents are a swarm for simulations, on one device: agents with ids from 0 on, in groups of equal size one behind the other,
// that are addressed one by one. An agent starts as one that has seen nothing; a step moves it by the input that it holds,
// which is zeros before its first observation, and it votes anew. Results are the same bits on every device, and for an
// agent they depend on nothing but its own steps. Agents are used by one goroutine at a time; their owner closes them before the device.
// After an error of the device, an ErrDevice, the state is undefined; a wait that the context has ended leaves the work to go on, and
// what comes later is put behind it. Agents that do not all fit on the device may have been ticked in part when the context ends: they
// are not stepped again then.
type Agents struct {
	dev        device.Device
	memory     *pages.Memory
	cell       *cells.Addressed
	layout     kernels.Layout
	n          int64
	groups     int
	first, of  int // of the swarm, where they are a shard of it: the number of their first group, and its groups
	pages      int
	perPage    divisor // agents of a page
	seed       uint64
	geometry   device.Geometry
	stream     device.Stream
	tick, step device.Kernel
	decide     device.Kernel
	sums       device.Kernel // of embeddings

	frames, table, params, weights, scratch, stamps, decisions device.Buffer

	result           device.HostBuffer
	words            []uint64 // the result, of resultSlots launches
	sequence         uint32
	pending          bool      // nobody has seen the end of what was launched
	ranking          *Ranking  // of what Load loads; nil before the first
	counts           []uint32  // by page: its observations in the batch being loaded, then its set
	inconsistent     error     // why the agents are between two states
	released         []*staged // that were given back
	hostObservations int       // observations that kernels read on the host
	close            []func() error
}

// Report says what a step of agents did.
type Report struct {
	// Stepped is how many steps agents have made. Outside and Refused observations changed nothing: there is no such agent, and an
	// input is NaN or infinite.
	Stepped, Outside, Refused uint64
	// Tally is how many agents of the swarm vote for each candidate now.
	Tally []uint64
}

// NewAgents makes n agents, a multiple of the size of a group and less than 2^32, that have seen nothing.
func New(d device.Device, cell *cells.Addressed, n int64, opts Options) (*Agents, error) {
	a, err := newAgents(d, pages.NewBudget(opts.PageMemory, opts.HostPageMemory), cell, n, opts)
	if err != nil {
		return nil, err
	}
	if err := a.memory.Open(context.Background(), nil); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// newAgentsOfShard makes the n agents of a shard of a swarm: its first group is number first of so many groups of
// the swarm. Ids are those of the shard, from 0 on. The pages are what b has, and are not open.
func NewShard(
	d device.Device, b *pages.Budget, cell *cells.Addressed, n int64, first, groups int, opts Options,
) (*Agents, error) {
	a, err := newAgents(d, b, cell, n, opts)
	if err != nil {
		return nil, err
	}
	a.first, a.of = first, groups
	return a, nil
}

// newAgents is NewAgents with pages of what b has, which are not open.
func newAgents(d device.Device, b *pages.Budget, cell *cells.Addressed, n int64, opts Options) (a *Agents, err error) {
	if opts.PageBytes == 0 {
		opts.PageBytes = 2 << 20
	}
	if n < 1 || n > math.MaxUint32 || n%int64(cell.Agents) != 0 {
		return nil, fmt.Errorf("%w: %d agents in groups of %d: use a multiple of the group, below 2^32", ErrInvalid, n, cell.Agents)
	}
	if opts.PageBytes%4096 != 0 || opts.PageBytes > 1<<30 {
		return nil, fmt.Errorf("%w: pages of %d bytes: use a multiple of 4096 up to 2^30", ErrInvalid, opts.PageBytes)
	}
	a = &Agents{dev: d, cell: cell, n: n, groups: int(n / int64(cell.Agents)), seed: opts.Seed}
	a.of = a.groups
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
	return a, a.open(b, opts)
}

// open makes what is on the device.
func (a *Agents) open(b *pages.Budget, opts Options) (err error) {
	tick, step := a.cell.Kernels()
	for name, to := range map[string]*device.Kernel{tick: &a.tick, step: &a.step, "step_decide": &a.decide, "agent_sums": &a.sums} {
		if *to, err = a.dev.Kernel(name); err != nil {
			return err
		}
	}
	table := a.cell.Weights(opts.Seed)
	if opts.Weights != nil {
		if len(opts.Weights) != len(table) {
			return fmt.Errorf("%w: a table of %d words, the cell has %d", ErrInvalid, len(opts.Weights), len(table))
		}
		table = opts.Weights
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
		{&a.params, 0, device.Bytes(a.cell.ParamBlock()), "parameters"},
		{&a.weights, 4, device.Bytes(table), "weights"}, // of a cell without weights a buffer too
		{&a.scratch, 8 * kernels.AgentScratch, nil, "agents"},
		{&a.stamps, 4 * int64(a.groups), nil, "agents"},
		{&a.decisions, int64(a.groups), nil, "agents"},
	} {
		if *m.to, err = a.alloc(max(m.bytes, int64(len(m.data))), m.purpose); err != nil {
			return err
		}
		if err = errors.Join((*m.to).Fill(0, (*m.to).Size(), 0), (*m.to).Write(0, m.data)); err != nil {
			return err
		}
	}
	if a.result, err = a.dev.AllocHost(resultSlots*resultBytes, "agents"); err != nil {
		return err
	}
	a.close = append(a.close, a.result.Close)
	clear(a.result.Bytes())
	a.words = device.Of[uint64](a.result.Bytes())
	a.geometry = opts.Geometry
	if a.hostObservations = maxHostObservations; a.dev.Properties().ComputeMajor == 0 {
		a.hostObservations = math.MaxInt // the memory of the host device is there too
	}
	return nil
}

// resultSlots are the launches with a result that are put into the stream before one waits for the last of them; a wait is some 10 us on a
// GPU, two launches of few observations are less. resultBytes are those of each.
const (
	resultSlots = 32
	resultBytes = 8 * kernels.AgentResultWords
)

// resultOf is where launch number slot, of those under way, has its result.
func (a *Agents) resultOf(slot int) device.Arg {
	return device.Mapped(a.result, int64(slot)*resultBytes, resultBytes)
}

func (a *Agents) alloc(bytes int64, purpose string) (device.Buffer, error) {
	b, err := a.dev.Alloc(bytes, purpose)
	if err != nil {
		return nil, fmt.Errorf("%d agents: %w", a.n, err)
	}
	a.close = append(a.close, b.Close)
	return b, nil
}

// Len is the number of agents, Groups that of their groups.
func (a *Agents) Len() int64 { return a.n }

// Groups is the number of groups: agent i is in group i / cell.Agents.
func (a *Agents) Groups() int { return a.groups }

// Cell returns the cell of the agents.
func (a *Agents) Cell() *cells.Addressed { return a.cell }

// Layout returns where variables are in a page.
func (a *Agents) Layout() kernels.Layout { return a.layout }

// Memory returns the pages of the agents, which belong to them.
func (a *Agents) Memory() *pages.Memory { return a.memory }

// StageAll has every batch pass through memory of the device, as large batches do, and releases the staging
// buffers. Tests of devices without memory call it.
func (a *Agents) StageAll() error {
	a.hostObservations = 0
	return a.trim()
}

// shape is a launch of so many blocks of so many threads a multiprocessor, and at most as many as have something to do.
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

// head are the arguments that all kernels begin with.
func (a *Agents) head(weights bool) []device.Arg {
	args := []device.Arg{device.Ptr(a.memory.Arena()), device.Uint64(uint64(a.layout.PageBytes)), device.Ptr(a.frames), device.Ptr(a.table), device.Ptr(a.params)}
	if weights {
		args = append(args, device.Ptr(a.weights))
	}
	return append(args, device.Uint32(uint32(a.groups)))
}

// next is the sequence number of the next launch with a result. When they are used up the stamps of the groups are forgotten.
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

// Tick steps all agents n times, driven by the inputs that they hold, and waits for the last of it. Stepped counts each step of
// each agent.
func (a *Agents) Tick(ctx context.Context, n int) (Report, error) {
	if n < 1 {
		return Report{}, fmt.Errorf("%w: %d ticks", ErrInvalid, n)
	}
	return a.TickAll(ctx, a.waits(ctx), n, n)
}

// tickAll is Tick that looks at ctx after each so many steps and waits for them with another one. Where ctx has ended, pages are between two
// states.
//
// Agents do not hear of each other in a tick, so an agent makes tickSteps of them while it is in registers, and a set of pages all n
// while it is on the device: the states are those of n ticks of all, as are the decisions and the tally, which are of the last step alone.
func (a *Agents) TickAll(ctx, wait context.Context, n, most int) (r Report, err error) {
	if a.inconsistent != nil {
		return r, a.inconsistent
	}
	sets := a.memory.All()
	begun := false
	err = a.memory.Each(ctx, sets, pages.Sweep, func(i int) error {
		begun = true
		for left := n; left > 0; left -= most {
			if err := context.Cause(ctx); err != nil && most < n {
				return err
			}
			for k := min(left, most); k > 0; k -= TickSteps {
				votes := uint32(kernels.AgentTickPublish)
				switch {
				case left > most || k > TickSteps:
					votes = kernels.AgentTickSilent
				case i < len(sets)-1:
					votes = kernels.AgentTickCount
				}
				if err := a.launchTick(wait, sets[i].Pages, min(k, TickSteps), votes); err != nil {
					return fmt.Errorf("%w: %w", fault.ErrDevice, err)
				}
			}
			a.memory.MarkDirty(sets[i].Pages)
			if r, err = a.await(wait, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		if begun && !a.memory.Resident() {
			a.inconsistent = fmt.Errorf("%w: a tick of a part of the agents: %w", fault.ErrDevice, err)
		}
		return Report{}, err
	}
	r.Stepped = uint64(n) * uint64(a.n)
	return r, nil
}

// waits is the context of a wait for a launch: pages that may go are waited for whatever ctx says, which the watchdog of the device bounds.
func (a *Agents) waits(ctx context.Context) context.Context {
	if a.memory.Resident() {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// tickSteps are how many ticks a launch makes at most. Sixteen of 100M leaky agents take as long as 1.2 single ones (RFC 0011), so more of
// them would be little faster.
const TickSteps = 16

// launchTick makes steps of the agents of consecutive pages that are on the device.
func (a *Agents) launchTick(ctx context.Context, pages []uint64, steps int, votes uint32) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	args := append(a.head(true), device.Uint32(uint32(pages[0])), device.Uint32(uint32(len(pages))), device.Uint32(uint32(steps)), device.Uint32(votes),
		device.Ptr(a.decisions), device.Ptr(a.scratch), device.Uint32(a.sequence), a.resultOf(0))
	blocks, threads, span := a.cell.Shape()
	return a.stream.Launch(a.tick, a.shape(blocks, threads, kernels.AgentSpans(a.layout, len(pages), span)), args...)
}

// await waits for the last launch, which has the last of so many results, and adds them up. The tally is the last one's.
func (a *Agents) await(ctx context.Context, results int) (r Report, err error) {
	if err := a.stream.Await(ctx, a.result, int64(results-1)*resultBytes+8*kernels.AgentDone, a.sequence); err != nil {
		return Report{}, fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	a.pending = false
	for words := range slices.Chunk(a.words[:results*kernels.AgentResultWords], kernels.AgentResultWords) {
		r = Report{
			r.Stepped + words[kernels.AgentStepped], r.Outside + words[kernels.AgentOutside], r.Refused + words[kernels.AgentRefused],
			words[kernels.AgentResultTally:][:a.cell.Candidates],
		}
	}
	r.Tally = slices.Clone(r.Tally)
	return r, nil
}

// Decisions are those of the last tick, one a group: the winning candidate, or kernels.AgentNoVote where the rule was not met.
// The slice is the caller's.
func (a *Agents) Decisions(ctx context.Context) ([]byte, error) {
	return a.read(ctx, a.decisions, int64(a.groups))
}

func (a *Agents) read(ctx context.Context, b device.Buffer, n int64) ([]byte, error) {
	data := make([]byte, n)
	if err := a.stream.Sync(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	if err := b.Read(0, data); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	return data, nil
}

// Close releases everything on the device. A second call does nothing.
func (a *Agents) Close() error {
	var errs []error
	for _, release := range a.close { // the stream first: it waits for what uses the memory
		errs = append(errs, release())
	}
	a.close = nil
	errs = append(errs, a.dropStaging(false), a.dropStaging(true))
	return errors.Join(errs...)
}
