package graph

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
)

// MaxCurrent is the largest current of a neuron, and -MaxCurrent the smallest.
const MaxCurrent = 1e6

// spiking is the model of lif and izhikevich. A tick first adds the weights of the links of the
// neurons that have spiked in the tick before to the sums of their targets.
type spiking struct {
	*Network
	cell  *cells.Addressed
	list  device.Kernel
	whole *cohort // all neurons
	// potential and current are the offsets of these variables in a page.
	potential, current uint32
	// types has the parameters of excitatory and inhibitory neurons of izhikevich; nil for lif.
	types device.Buffer
	// active are the neurons that have spiked before a tick, and after it, of the lengths counts.
	// sums are 0 between two ticks, unless links have delays.
	active       [2]device.Buffer
	counts, sums device.Buffer
	delayed      *delayed // nil: spikes arrive in the next tick
	spikes       int64    // of the last tick, or a guess before the first one
	// regions are the neurons by device; nil: one device makes all ticks. lengths has for each
	// neuron the number of links to neurons of the first device. These links are first in its row.
	regions *regions
	lengths device.Buffer
	to      []uint64         // the links to the neurons before each one, until the opening ends
	marks   [2]device.Buffer // bits of the neurons that spike, used alternately
}

func newSpiking(n *Network, cell *cells.Addressed) *spiking {
	at := n.Layout().Offsets
	s := &spiking{
		Network: n, cell: cell, potential: at[cells.LIFPotential], current: at[cells.LIFCurrent],
		spikes: n.Len() / spikesAtFirst,
	}
	if cell.IsIzhikevich() {
		s.potential, s.current = at[cells.IzhikevichPotential], at[cells.IzhikevichCurrent]
	}
	if n.slots > 1 {
		s.delayed = &delayed{spiking: s, history: at[len(at)-2]}
	}
	return s
}

func (s *spiking) states() int { return len(cells.LIFCandidates) }

func (s *spiking) kernels() []string {
	tick, push := s.cell.Kernels()
	if s.delayed != nil {
		return []string{push, tick, graphset.Recall, graphset.Remember}
	}
	return []string{push, tick}
}

func (s *spiking) bytes() int64 {
	b := 2*4*s.Len() + 8 + s.sumBytes()
	if s.delayed != nil {
		b += s.delayed.bytes()
	}
	if s.cell.IsIzhikevich() {
		b += 2 * 4 * graphset.TypeWords
	}
	if s.o.Devices > 1 {
		b += s.sharedBytes()
	}
	return b
}

// sumBytes returns the bytes of sums: of the next tick, or of those in which spikes arrive.
func (s *spiking) sumBytes() int64 {
	if s.delayed != nil {
		return int64(s.slots) * 4 * s.delayed.stride()
	}
	return 4 * s.Len()
}

func (s *spiking) open() (err error) {
	if s.list, err = s.Device().Kernel(graphset.List); err != nil {
		return err
	}
	for to, bytes := range map[*device.Buffer]int64{
		&s.active[0]: 4 * s.Len(), &s.active[1]: 4 * s.Len(), &s.sums: s.sumBytes(), &s.counts: 8,
	} {
		if err := s.alloc(to, bytes); err != nil {
			return err
		}
	}
	if s.delayed != nil {
		if err := s.delayed.open(); err != nil {
			return err
		}
	}
	if s.cell.IsIzhikevich() {
		if err := s.openTypes(); err != nil {
			return err
		}
	}
	s.whole = s.all()
	if err := s.whole.load(); err != nil {
		return err
	}
	return s.openRegions()
}

// all returns the cohort of all neurons, on the first device.
func (s *spiking) all() *cohort {
	c := &cohort{
		of: s, dev: s.Device(), stream: s.Stream, agents: s.Len(), counts: device.Ptr(s.counts),
		tally:  device.Ptr(s.tally),
		active: [2]device.Arg{device.Ptr(s.active[0]), device.Ptr(s.active[1])}, sums: s.sums,
		links: cohortLinks{
			offsets: device.Ptr(s.offsets), columns: device.Ptr(s.columns), weights: device.Ptr(s.weights),
			delays: device.Ptr(s.weights), degree: s.degree, lengths: device.Ptr(s.counts), // unless there are some
		},
		neurons: s.agentsArgs(),
	}
	c.bits = [2]device.Arg{c.counts, c.counts} // not read
	if s.types != nil {
		c.types = device.Ptr(s.types)
	}
	if s.delayed != nil {
		if c.stride = s.delayed.stride(); s.delayed.delays != nil {
			c.links.delays, c.links.listed = device.Ptr(s.delayed.delays), true
		}
	}
	return c
}

// begin lists the neurons that have spiked.
func (s *spiking) begin(ticks int) error {
	return errors.Join(s.beginSums(ticks), s.listSpikes())
}

// beginSums makes the sums those before a tick. After a tick that was interrupted, they are not 0.
func (s *spiking) beginSums(ticks int) error {
	if s.delayed != nil {
		return s.delayed.begin(ticks)
	}
	return errors.Join(s.sums.Fill(0, s.sums.Size(), 0), s.counts.Fill(0, s.counts.Size(), 0))
}

func (s *spiking) end(tally []uint64) {
	if tally != nil {
		s.spikes = int64(tally[graphset.Spike])
	}
	if s.delayed != nil {
		s.delayed.end()
	}
}

// listSpikes puts into the stream what lists the neurons that have spiked in the last tick.
func (s *spiking) listSpikes() error {
	c := s.whole
	return s.Stream.Launch(s.list, c.lanes(), graphset.ListArgs{AgentsArgs: c.neurons, ActiveArgs: c.list(0)}.Args()...)
}

// pushBlocks is the blocks of a launch of push for each multiprocessor, of 4 warps.
const pushBlocks = 16

// fixed returns a weight in 2^-16.
func fixed(v float64) uint32 { return uint32(int32(math.RoundToEven(v * edges.WeightOne))) }

// exciting returns the number of the first neuron that inhibits others.
func (s *spiking) exciting() uint32 {
	return uint32(math.Round(float64(s.Len()) * (1 - s.cell.Value("inhibitory"))))
}

func (s *spiking) launch(i int, tick uint32, count bool) error {
	err := s.whole.launch(i, tick, count)
	if s.delayed != nil {
		s.delayed.advance()
	}
	return err
}

func (s *spiking) set(ctx context.Context, ids []uint32, values []float32) error {
	words := make([]uint32, len(values))
	for i, v := range values {
		if words[i] = math.Float32bits(v); !(v >= -MaxCurrent && v <= MaxCurrent) { // a NaN is neither
			return fmt.Errorf("%w: current %v, at %d: use %v to %v", ErrInvalid, v, i, -MaxCurrent, MaxCurrent)
		}
	}
	return s.Columns.Put(ctx, s.current, ids, words)
}

func (s *spiking) get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	if votes, err = s.Columns.Get(ctx, ids); err != nil {
		return nil, nil, err
	}
	words, err := s.Columns.Take(ctx, s.potential, ids)
	for _, w := range words {
		values = append(values, math.Float32frombits(w))
	}
	if err == nil && s.types != nil {
		err = s.first(ctx, ids, values)
	}
	return votes, values, err
}
