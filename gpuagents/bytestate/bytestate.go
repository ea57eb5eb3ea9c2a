// Package bytestate writes and reads states of agents that are a byte each, in pages on a device.
// Packages grid and graph step such agents.
package bytestate

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/staging"
)

// Agents is the agents of a device, with ids from 0 on. The fields do not change after Open.
//
// One goroutine uses it at a time. After an error of the device, a fault.ErrDevice, the states are
// undefined.
type Agents struct {
	Device    device.Device
	Stream    device.Stream
	Memory    *pages.Memory
	Frames    device.Buffer // the copy of the table of frames
	Count     int64         // agents
	Per       int           // agents of a page
	PageBytes int
	States    int   // a state is below it
	Invalid   error // errors about mistakes of the caller wrap it

	set, get    device.Kernel
	ids, values staging.Buffer
}

// Open loads the kernels.
func (a *Agents) Open() (err error) {
	if a.set, err = a.Device.Kernel(gridset.Set); err != nil {
		return err
	}
	a.get, err = a.Device.Kernel(gridset.Get)
	return err
}

// Ready makes all pages that do not exist, and brings the table of frames up to date.
func (a *Agents) Ready(ctx context.Context) error {
	if err := a.Memory.Each(ctx, a.Memory.All(), pages.Sweep, func(int) error { return nil }); err != nil {
		return err
	}
	return fault.Mark(a.Memory.FlushFrames(a.Frames))
}

// Reset makes all states 0.
func (a *Agents) Reset(ctx context.Context) error {
	if err := a.Stream.Sync(ctx); err != nil {
		return fault.Mark(err)
	}
	return a.Memory.Reset(ctx)
}

// MarkAll marks all pages as changed.
func (a *Agents) MarkAll() {
	for page := range a.Memory.Count() {
		a.Memory.MarkDirty([]uint64{uint64(page)})
	}
}

// Shape returns a launch for so many threads with work.
func (a *Agents) Shape(threads int64) device.Geometry {
	blocks := max(1, min((threads+gridset.Block-1)/gridset.Block, maxBlocks))
	if d := a.Device.Properties(); d.ComputeMajor == 0 { // the host device has a goroutine for each core
		blocks = min(blocks, int64(4*d.Multiprocessors))
	}
	return device.Geometry{Grid: int(blocks), Block: gridset.Block}
}

// maxBlocks is the most blocks of a launch: threads go on with other agents.
const maxBlocks = 1 << 16

// Set writes the states of agents. Of an agent that is there several times, the last state counts.
func (a *Agents) Set(ctx context.Context, ids []uint32, states []byte) error {
	if len(ids) != len(states) {
		return fmt.Errorf("%w: %d states for %d agents", a.Invalid, len(states), len(ids))
	}
	last := make(map[uint32]byte, len(ids))
	for i, id := range ids {
		if int64(id) >= a.Count || int(states[i]) >= a.States {
			return fmt.Errorf("%w: agent %d of %d, state %d: use 0 to %d", a.Invalid, id, a.Count, states[i], a.States-1)
		}
		last[id] = states[i]
	}
	if len(last) == 0 {
		return nil
	}
	own, values, touched := make([]uint32, 0, len(last)), make([]byte, 0, len(last)), map[uint64]bool{}
	for id, state := range last {
		own, values = append(own, id), append(values, state)
		touched[uint64(id)/uint64(a.Per)] = true
	}
	if err := a.Ready(ctx); err != nil {
		return err
	}
	for page := range touched {
		a.Memory.MarkDirty([]uint64{page})
	}
	if err := a.stage(own, len(values)); err != nil {
		return err
	}
	if err := a.values.Memory.Write(0, values); err != nil {
		return fault.Mark(err)
	}
	return a.list(ctx, a.set, len(own))
}

// Get returns the states of agents. It makes no page and changes none.
func (a *Agents) Get(ctx context.Context, ids []uint32) ([]byte, error) {
	states, made := make([]byte, len(ids)), a.Memory.Made()
	var own []uint32 // of pages that exist; the states of others are 0
	var at []int
	for i, id := range ids {
		if int64(id) >= a.Count {
			return nil, fmt.Errorf("%w: agent %d of %d", a.Invalid, id, a.Count)
		}
		if made[int64(id)/int64(a.Per)] {
			own, at = append(own, id), append(at, i)
		}
	}
	if len(own) == 0 {
		return states, nil
	}
	if err := a.Memory.FlushFrames(a.Frames); err != nil {
		return nil, fault.Mark(err)
	}
	if err := a.stage(own, len(own)); err != nil {
		return nil, err
	}
	if err := a.list(ctx, a.get, len(own)); err != nil {
		return nil, err
	}
	found := make([]byte, len(own))
	if err := a.values.Memory.Read(0, found); err != nil {
		return nil, fault.Mark(err)
	}
	for i, k := range at {
		states[k] = found[i]
	}
	return states, nil
}

// stage makes room for ids and values on the device, and writes the ids.
func (a *Agents) stage(ids []uint32, values int) error {
	if err := errors.Join(a.ids.Grow(a.Device, 4*len(ids), "states"),
		a.values.Grow(a.Device, values, "states")); err != nil {
		return fault.Mark(err)
	}
	return fault.Mark(a.ids.Memory.Write(0, device.Bytes(ids)))
}

// list launches Set or Get for the agents that are staged, and waits for it.
func (a *Agents) list(ctx context.Context, k device.Kernel, n int) error {
	if err := a.Stream.Launch(k, a.Shape(int64(n)), device.Ptr(a.Memory.Arena()), device.Ptr(a.Frames),
		device.Uint64(uint64(a.PageBytes)), device.Uint32(uint32(a.Per)), device.Ptr(a.ids.Memory),
		device.Uint32(uint32(n)), device.Ptr(a.values.Memory)); err != nil {
		return fault.Mark(errors.Join(err, a.Stream.Sync(ctx)))
	}
	return fault.Mark(a.Stream.Sync(ctx))
}

// Close releases what Set and Get have allocated. A second call does nothing.
func (a *Agents) Close() error { return errors.Join(a.ids.Close(), a.values.Close()) }
