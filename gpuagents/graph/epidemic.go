package graph

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

type epidemic struct {
	*Network
	infection, recovery float64
	mark, step          device.Kernel
	// ill has the bits of those who are infected, before a tick and after it.
	ill    [2]device.Buffer
	misses device.Buffer
	parts  *parts // nil: one device makes all ticks
}

func newEpidemic(n *Network, cell *cells.Addressed) *epidemic {
	return &epidemic{Network: n, infection: cell.Value("infection"), recovery: cell.Value("recovery")}
}

func (e *epidemic) states() int { return graphset.States }

func (e *epidemic) kernels() []string { return []string{graphset.SIR} }

// chance returns a chance in units of 2^-32. The largest word stands for 1.
func chance(p float64) uint32 { return uint32(min(math.Round(p*(1<<32)), math.MaxUint32)) }

// misses returns the chances that 1 to graphset.Gaps trials with success chance p all fail.
func misses(p float64) []uint32 {
	all, left := make([]uint32, graphset.Gaps), 1.0
	for i := range all {
		left *= 1 - p
		all[i] = chance(left)
	}
	return all
}

func (e *epidemic) bits() int64 { return (e.Len() + 31) / 32 * 4 }

func (e *epidemic) bytes() int64 { return 2*e.bits() + 4*graphset.Gaps }

func (e *epidemic) open() (err error) {
	for name, to := range map[string]*device.Kernel{graphset.Mark: &e.mark, graphset.SIR: &e.step} {
		if *to, err = e.Device().Kernel(name); err != nil {
			return err
		}
	}
	for to, bytes := range map[*device.Buffer]int64{
		&e.ill[0]: e.bits(), &e.ill[1]: e.bits(), &e.misses: 4 * graphset.Gaps,
	} {
		if err := e.alloc(to, bytes); err != nil {
			return err
		}
	}
	if err := e.misses.Write(0, device.Bytes(misses(e.infection))); err != nil {
		return err
	}
	return e.openParts()
}

func (e *epidemic) together() sharer {
	if e.parts == nil {
		return nil
	}
	return e.parts
}

func (e *epidemic) begin(int) error {
	return e.Stream.Launch(e.mark, e.lanes(), graphset.MarkArgs{
		AgentsArgs: e.agentsArgs(), State: graphset.Infected, Bits: device.Ptr(e.ill[0]),
	}.Args()...)
}

func (e *epidemic) end([]uint64) {}

// sirBlocks is the max blocks of graph_sir per multiprocessor. Each block builds tables when it
// starts.
const sirBlocks = 32

// sirShape returns a launch of graph_sir. A warp handles 512 agents at a time.
func sirShape(d device.Device, agents int64) device.Geometry {
	shape := field.ShapeOn(d, (agents+15)/16)
	shape.Grid = min(shape.Grid, sirBlocks*d.Properties().Multiprocessors)
	return shape
}

// launch puts tick number i after begin into the stream, with the number of ticks before it.
func (e *epidemic) launch(i int, tick uint32, count bool) error {
	args := e.sirArgs(tick, count)
	args.AgentsArgs, args.Infected, args.Next = e.agentsArgs(), device.Ptr(e.ill[i%2]), device.Ptr(e.ill[1-i%2])
	return e.Stream.Launch(e.step, sirShape(e.Device(), e.Len()), args.Args()...)
}

// sirArgs returns the arguments of a tick of all agents, but for their states.
func (e *epidemic) sirArgs(tick uint32, count bool) graphset.SIRArgs {
	return graphset.SIRArgs{
		Offsets: device.Ptr(e.offsets), Columns: device.Ptr(e.columns), Weights: device.Ptr(e.weights),
		Degree: e.degree, Weighted: device.Bit(e.o.Links.Weighted()), Misses: device.Ptr(e.misses),
		Recovery: chance(e.recovery), Tick: tick, Key0: uint32(e.o.Seed), Key1: uint32(e.o.Seed >> 32),
		Count: device.Bit(count), Tally: device.Ptr(e.tally),
	}
}

func (e *epidemic) set(ctx context.Context, ids []uint32, values []float32) error {
	states := make([]byte, len(values))
	for i, v := range values {
		if states[i] = byte(v); !(v >= 0 && v < graphset.States) || float32(states[i]) != v {
			return fmt.Errorf("%w: state %v, at %d: use 0, 1 or 2", ErrInvalid, v, i)
		}
	}
	return e.Columns.Set(ctx, ids, states)
}

func (e *epidemic) get(ctx context.Context, ids []uint32) (votes []byte, values []float32, err error) {
	votes, err = e.Columns.Get(ctx, ids)
	for _, v := range votes {
		values = append(values, float32(v))
	}
	return votes, values, err
}
