package gpuagents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
)

// parcel is memory that observations pass through on their way to the device and back: pinned, and the same again on the device, but for few of
// them, which kernels read and write where they are on the host. Its sections are a head, ids, inputs, votes and decisions.
type parcel struct {
	host    device.HostBuffer
	on      device.Buffer // nil: kernels use host
	offsets [5]int64
	size    int64 // to the end of the last section

	graph  device.Graph      // of a parcel of few: their launches, recorded; nil before the first
	frames device.HostBuffer // memory.host of then
}

// The sections of a parcel.
const (
	ofHead = iota // the observations, and the sequence number, of a launch that was recorded
	ofIDs
	ofInputs
	ofVotes
	ofDecisions
)

// fewObservations are read by kernels where they are on the host. On an H200 a call was a quarter faster by that for 1 and 64 of them, as fast for 1,024, and
// slower for 4,096 (BenchmarkAgentsCall, docs/performance.md).
const fewObservations = 1 << 10

// parcelAlign keeps sections, and launches in them, at multiples of what a thread reads at once and of a line of the cache.
const parcelAlign = 256

// parcelOf is a parcel for so many observations; give it back. Memory is taken anew where no parcel that was given back is large enough.
func (a *Agents) parcelOf(n int) (p *parcel, err error) {
	here := n <= a.few
	if here && n <= fewObservations { // all of them have their sections at the same places
		n = fewObservations
	}
	offsets := [5]int64{ofIDs: parcelAlign}
	size := int64(parcelAlign)
	for i, bytes := range [5]int{0, 4, 4 * a.cell.Features, 1, 1} {
		if i > ofHead {
			offsets[i] = size
		}
		size += (int64(n)*int64(bytes) + parcelAlign - 1) / parcelAlign * parcelAlign
	}
	for i, p := range a.parcels {
		if p.host.Size() >= size && (p.on == nil) == here && (p.graph == nil || n == fewObservations) {
			a.parcels = append(a.parcels[:i], a.parcels[i+1:]...)
			p.offsets, p.size = offsets, size
			return p, nil
		}
	}
	if err := a.dropParcels(here); err != nil { // they are too small, and the next ones will be as large as this one
		return nil, err
	}
	p = &parcel{offsets: offsets, size: size}
	if n > fewObservations {
		size += size / 2 // so that batches of like size take it once
	}
	if p.host, err = a.dev.AllocHost(size, "observations"); err != nil {
		return nil, err
	}
	if here {
		return p, nil
	}
	if p.on, err = a.dev.Alloc(size, "observations"); err != nil {
		return nil, errors.Join(err, p.host.Close())
	}
	return p, nil
}

// give takes a parcel back, which no launch uses any more.
func (a *Agents) give(p *parcel) { a.parcels = append(a.parcels, p) }

// dropParcels gives up the memory of parcels of a kind that were given back.
func (a *Agents) dropParcels(here bool) error {
	var errs []error
	kept := a.parcels[:0]
	for _, p := range a.parcels {
		if (p.on == nil) != here {
			kept = append(kept, p)
			continue
		}
		errs = append(errs, p.close())
	}
	a.parcels = kept
	return errors.Join(errs...)
}

// trim gives up the memory that no batch needs to be begun.
func (a *Agents) trim() error {
	err := errors.Join(a.dropParcels(false), a.dropParcels(true))
	if err == nil {
		_, err = a.dev.Trim()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	return nil
}

func (p *parcel) close() (err error) {
	if p.graph != nil {
		err = p.graph.Close()
	}
	err = errors.Join(err, p.host.Close())
	if p.on != nil {
		err = errors.Join(err, p.on.Close())
	}
	return err
}

// replay steps the first n observations of a parcel of few, and decides, by launches that were recorded: for the host that is one call.
func (a *Agents) replay(ctx context.Context, p *parcel, n int) error {
	if p.graph != nil && p.frames != a.memory.Pinned() {
		if err := errors.Join(a.stream.Sync(ctx), p.graph.Close()); err != nil {
			return err
		}
		p.graph = nil
	}
	if p.graph == nil {
		g, err := a.stream.Capture(func() error { return a.putStep(p, part{n: fewObservations}, kernels.AgentHeaded, 0) })
		if err != nil {
			return err
		}
		p.graph, p.frames = g, a.memory.Pinned()
	}
	head := section[uint32](p, ofHead, 2)
	head[0], head[1] = uint32(n), a.sequence
	return a.stream.Replay(p.graph)
}

// section is that of n observations, in host memory.
func section[T device.Scalar](p *parcel, which, n int) []T {
	return device.Of[T](p.host.Bytes()[p.offsets[which]:p.size])[:n:n]
}

// arg is n bytes of a section from off on, a multiple of 16, for a kernel.
func (p *parcel) arg(which int, off, n int64) device.Arg {
	if p.on == nil {
		return device.Mapped(p.host, p.offsets[which]+off, n)
	}
	return device.Range(p.on, p.offsets[which]+off, n)
}

// bring puts ids and inputs into the stream.
func (p *parcel) bring(a *Agents) error {
	if p.on == nil {
		return nil
	}
	a.pending = true
	return a.stream.Upload(p.on, 0, p.host, 0, p.offsets[ofVotes])
}

// fetch brings votes and decisions back and waits for them, and for what the stream does before.
func (p *parcel) fetch(ctx context.Context, a *Agents) error {
	if p.on != nil {
		a.pending = true
		if err := a.stream.Download(p.host, p.offsets[ofVotes], p.on, p.offsets[ofVotes], p.size-p.offsets[ofVotes]); err != nil {
			return err
		}
	}
	if !a.pending { // kernels have stored them where they are
		return nil
	}
	err := a.stream.Sync(ctx)
	a.pending = err != nil
	return err
}
