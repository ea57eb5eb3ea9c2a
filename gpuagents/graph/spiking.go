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

// spiking is the model of lif and izhikevich. A tick first adds the weights of the links of the neurons that have
// spiked in the tick before to the sums of their targets.
type spiking struct {
	*Network
	cell             *cells.Addressed
	list, push, tick device.Kernel
	// potential and current are the places of these variables in a page.
	potential, current uint32
	// types are those of the neurons of izhikevich, and nil for lif.
	types device.Buffer
	// active are the neurons that have spiked before a tick, and after it, of the lengths counts. sums
	// are 0 between two ticks, unless links have delays.
	active       [2]device.Buffer
	counts, sums device.Buffer
	delayed      *delayed // nil: spikes arrive in the next tick
}

func newSpiking(n *Network, cell *cells.Addressed) *spiking {
	at := n.layout.Offsets
	s := &spiking{Network: n, cell: cell, potential: at[cells.LIFPotential], current: at[cells.LIFCurrent]}
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
	tick, push := s.cell.Kernels()
	for name, to := range map[string]*device.Kernel{graphset.List: &s.list, push: &s.push, tick: &s.tick} {
		if *to, err = s.dev.Kernel(name); err != nil {
			return err
		}
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
		return s.openTypes()
	}
	return nil
}

// page returns the arguments for the pages and agents.
func (s *spiking) page() []device.Arg {
	return []device.Arg{
		device.Ptr(s.memory.Arena()), device.Ptr(s.frames), device.Uint64(uint64(s.layout.PageBytes)),
		device.Uint32(uint32(s.per)), device.Uint32(uint32(s.Len())),
	}
}

// begin lists the neurons that have spiked. After a tick that was interrupted, sums are not 0.
func (s *spiking) begin(ticks int) error {
	if s.delayed != nil {
		return errors.Join(s.delayed.begin(ticks), s.listSpikes())
	}
	for _, m := range []device.Buffer{s.sums, s.counts} {
		if err := m.Fill(0, m.Size(), 0); err != nil {
			return err
		}
	}
	return s.listSpikes()
}

func (s *spiking) end() {
	if s.delayed != nil {
		s.delayed.end()
	}
}

// listSpikes puts into the stream what lists the neurons that have spiked in the last tick.
func (s *spiking) listSpikes() error {
	return s.stream.Launch(s.list, s.lanes(), append(s.page(), device.Ptr(s.active[0]), device.Ptr(s.counts),
		device.Uint32(0))...)
}

// pushBlocks is the blocks of a launch of push for each multiprocessor, of 4 warps.
const pushBlocks = 16

// fixed returns a weight in 2^-16.
func fixed(v float64) uint32 { return uint32(int32(math.RoundToEven(v * edges.One))) }

// float returns a parameter of the cell.
func (s *spiking) float(name string) device.Arg { return device.Float32(float32(s.cell.Value(name))) }

// exciting returns the number of the first neuron that inhibits others.
func (s *spiking) exciting() uint32 {
	return uint32(math.Round(float64(s.Len()) * (1 - s.cell.Value("inhibitory"))))
}

func (s *spiking) launch(i int, tick uint32, count bool) error {
	err := errors.Join(s.carry(i), s.step(i, tick, count))
	if s.delayed != nil {
		return errors.Join(err, s.delayed.next(i))
	}
	return err
}

// carry puts into the stream what adds the spikes of the tick before number i to sums. A warp adds the
// links of a neuron, of which few spike, so that a launch needs no more blocks than run at once.
func (s *spiking) carry(i int) error {
	if s.delayed != nil {
		return s.delayed.send(i%2, 0)
	}
	r, v := s.o.Links.Rows, s.cell.Value
	return s.stream.Launch(s.push, s.pushShape(), device.Ptr(s.active[i%2]), device.Ptr(s.counts),
		device.Uint32(uint32(i%2)), device.Ptr(s.sums), device.Ptr(s.offsets), device.Ptr(s.columns),
		device.Ptr(s.weights), device.Uint32(s.degree), bit(r != nil && r.Weights != nil), device.Uint32(s.exciting()),
		device.Uint32(fixed(v("weight"))), device.Uint32(fixed(-v("weight")*v("inhibition"))))
}

// pushShape returns a launch with a warp for each neuron that spikes.
func (s *spiking) pushShape() device.Geometry {
	shape := s.Network.states.Shape(s.Len())
	shape.Grid = min(shape.Grid, pushBlocks*s.dev.Properties().Multiprocessors)
	return shape
}

// inputs returns the argument for the sums of the next tick.
func (s *spiking) inputs() device.Arg {
	if s.delayed != nil {
		return s.delayed.inputs()
	}
	return device.Ptr(s.sums)
}

// step puts into the stream what steps all neurons in tick number i.
func (s *spiking) step(i int, tick uint32, count bool) error {
	if s.types != nil {
		return s.stepTypes(i, tick, count)
	}
	return s.stream.Launch(s.tick, s.lanes(), append(s.page(), device.Uint32(s.layout.Offsets[cells.LIFRest]),
		device.Uint32(s.potential), device.Uint32(s.current), s.inputs(),
		device.Ptr(s.active[1-i%2]), device.Ptr(s.counts), device.Uint32(uint32(1-i%2)), s.float("decay"),
		s.float("threshold"), device.Uint32(uint32(s.cell.Value("refractory"))), s.float("noise"), device.Uint32(tick),
		device.Uint32(uint32(s.o.Seed)), device.Uint32(uint32(s.o.Seed>>32)), bit(count), device.Ptr(s.tally))...)
}

func (s *spiking) set(ctx context.Context, ids []uint32, values []float32) error {
	words := make([]uint32, len(values))
	for i, v := range values {
		if words[i] = math.Float32bits(v); !(v >= -MaxCurrent && v <= MaxCurrent) { // a NaN is neither
			return fmt.Errorf("%w: current %v, at %d: use %v to %v", ErrInvalid, v, i, -MaxCurrent, MaxCurrent)
		}
	}
	return s.Network.states.Put(ctx, s.current, ids, words)
}

func (s *spiking) get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	if votes, err = s.Network.states.Get(ctx, ids); err != nil {
		return nil, nil, err
	}
	words, err := s.Network.states.Take(ctx, s.potential, ids)
	for _, w := range words {
		values = append(values, math.Float32frombits(w))
	}
	if err == nil && s.types != nil {
		err = s.first(ctx, ids, values)
	}
	return votes, values, err
}
