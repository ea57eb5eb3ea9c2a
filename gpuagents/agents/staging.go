package agents

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
type staged struct {
	host     device.HostBuffer
	onDevice device.Buffer // nil: kernels use host
	offsets  [5]int64
	size     int64 // to the end of the last section

	graph  device.Graph      // of a parcel of few: their launches, recorded; nil before the first
	frames device.HostBuffer // memory.host of then
}

// The sections of a parcel.
const (
	sectionHead = iota // the observations, and the sequence number, of a launch that was recorded
	sectionIDs
	sectionInputs
	sectionVotes
	sectionDecisions
)

// fewObservations are read by kernels where they are on the host. On an H200 a call was a quarter faster by that for 1 and 64 of them, as fast for 1,024, and
// slower for 4,096 (BenchmarkAgentsCall, docs/performance.md).
const maxHostObservations = 1 << 10

// parcelAlign keeps sections, and launches in them, at multiples of what a thread reads at once and of a line of the cache.
const stagingAlign = 256

// parcelOf is a parcel for so many observations; give it back. Memory is taken anew where no parcel that was given back is large enough.
func (a *Agents) takeStaging(n int) (p *staged, err error) {
	here := n <= a.hostObservations
	if here && n <= maxHostObservations { // all of them have their sections at the same places
		n = maxHostObservations
	}
	offsets := [5]int64{sectionIDs: stagingAlign}
	size := int64(stagingAlign)
	for i, bytes := range [5]int{0, 4, 4 * a.cell.Features, 1, 1} {
		if i > sectionHead {
			offsets[i] = size
		}
		size += (int64(n)*int64(bytes) + stagingAlign - 1) / stagingAlign * stagingAlign
	}
	for i, p := range a.released {
		if p.host.Size() >= size && (p.onDevice == nil) == here && (p.graph == nil || n == maxHostObservations) {
			a.released = append(a.released[:i], a.released[i+1:]...)
			p.offsets, p.size = offsets, size
			return p, nil
		}
	}
	if err := a.dropStaging(here); err != nil { // they are too small, and the next ones will be as large as this one
		return nil, err
	}
	p = &staged{offsets: offsets, size: size}
	if n > maxHostObservations {
		size += size / 2 // so that batches of like size take it once
	}
	if p.host, err = a.dev.AllocHost(size, "observations"); err != nil {
		return nil, err
	}
	if here {
		return p, nil
	}
	if p.onDevice, err = a.dev.Alloc(size, "observations"); err != nil {
		return nil, errors.Join(err, p.host.Close())
	}
	return p, nil
}

// give takes a parcel back, which no launch uses any more.
func (a *Agents) returnStaging(p *staged) { a.released = append(a.released, p) }

// dropParcels gives up the memory of parcels of a kind that were given back.
func (a *Agents) dropStaging(here bool) error {
	var errs []error
	kept := a.released[:0]
	for _, p := range a.released {
		if (p.onDevice == nil) != here {
			kept = append(kept, p)
			continue
		}
		errs = append(errs, p.close())
	}
	a.released = kept
	return errors.Join(errs...)
}

// trim gives up the memory that no batch needs to be begun.
func (a *Agents) trim() error {
	err := errors.Join(a.dropStaging(false), a.dropStaging(true))
	if err == nil {
		_, err = a.dev.Trim()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", fault.ErrDevice, err)
	}
	return nil
}

func (p *staged) close() (err error) {
	if p.graph != nil {
		err = p.graph.Close()
	}
	err = errors.Join(err, p.host.Close())
	if p.onDevice != nil {
		err = errors.Join(err, p.onDevice.Close())
	}
	return err
}

// replay steps the first n observations of a parcel of few, and decides, by launches that were recorded: for the host that is one call.
func (a *Agents) replay(ctx context.Context, p *staged, n int) error {
	if p.graph != nil && p.frames != a.memory.Pinned() {
		if err := errors.Join(a.stream.Sync(ctx), p.graph.Close()); err != nil {
			return err
		}
		p.graph = nil
	}
	if p.graph == nil {
		g, err := a.stream.Capture(func() error { return a.putStep(p, launch{n: maxHostObservations}, kernels.AgentHeaded, 0) })
		if err != nil {
			return err
		}
		p.graph, p.frames = g, a.memory.Pinned()
	}
	head := section[uint32](p, sectionHead, 2)
	head[0], head[1] = uint32(n), a.sequence
	return a.stream.Replay(p.graph)
}

// section is that of n observations, in host memory.
func section[T device.Scalar](p *staged, which, n int) []T {
	return device.Of[T](p.host.Bytes()[p.offsets[which]:p.size])[:n:n]
}

// arg is n bytes of a section from off on, a multiple of 16, for a kernel.
func (p *staged) arg(which int, off, n int64) device.Arg {
	if p.onDevice == nil {
		return device.Mapped(p.host, p.offsets[which]+off, n)
	}
	return device.Range(p.onDevice, p.offsets[which]+off, n)
}

// bring puts ids and inputs into the stream.
func (p *staged) upload(a *Agents) error {
	if p.onDevice == nil {
		return nil
	}
	a.pending = true
	return a.stream.Upload(p.onDevice, 0, p.host, 0, p.offsets[sectionVotes])
}

// fetch brings votes and decisions back and waits for them, and for what the stream does before.
func (p *staged) download(ctx context.Context, a *Agents) error {
	if p.onDevice != nil {
		a.pending = true
		if err := a.stream.Download(p.host, p.offsets[sectionVotes], p.onDevice, p.offsets[sectionVotes], p.size-p.offsets[sectionVotes]); err != nil {
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
