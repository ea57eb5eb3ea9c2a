package agents

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// mirror is pinned host memory and memory of the device with the same size and offsets.
type mirror struct {
	host     device.HostBuffer
	onDevice device.Buffer
}

// alloc allocates both. The memory of the device is zeros: a download also copies gaps that no
// kernel has written. After an error nothing is allocated.
func (m *mirror) alloc(d device.Device, bytes int64, purpose string) (err error) {
	if m.host, err = d.AllocHost(bytes, purpose); err != nil {
		return err
	}
	if m.onDevice, err = d.Alloc(bytes, purpose); err == nil {
		err = m.onDevice.Fill(0, bytes, 0)
	}
	if err != nil {
		err = errors.Join(err, m.close())
	}
	return err
}

// close releases the memory. A second call does nothing, and alloc may follow.
func (m *mirror) close() error {
	err := gpubatch.CloseAll(m.host, m.onDevice)
	*m = mirror{}
	return err
}

// staged is the staging buffers of observations. Kernels read and write few observations in host
// memory, without a copy; onDevice is nil then. The sections are a head, ids, inputs, items, votes,
// decisions and scores. The sections of items and scores are empty for a cell without items.
type staged struct {
	mirror
	offsets [sections]int64
	size    int64 // end of the last section, in bytes

	graph  device.Graph      // the recorded launches for few observations; nil before the first
	frames device.HostBuffer // memory.Pinned() when they were recorded
	arena  device.Buffer     // memory.Arena() then
}

// The sections.
const (
	sectionHead = iota // the number of observations and the sequence number of a recorded launch
	sectionIDs
	sectionInputs
	sectionItems
	sectionVotes
	sectionDecisions
	sectionScores
	sections
)

// maxHostObservations is the maximum number of observations that kernels read from host memory. On
// an H200 this made a call a quarter faster for 1 and 64 observations; it was as fast for 1,024 and
// slower for 4,096 (BenchmarkAgentsCall, docs/performance.md).
const maxHostObservations = 1 << 10

// stagingAlign is the alignment, in bytes, of sections and of the launches in them: a multiple of
// the width of a load and of a cache line.
const stagingAlign = 256

// takeStaging returns staging buffers for n observations, which the caller returns with
// returnStaging. It allocates memory if no returned buffers are large enough.
func (a *Agents) takeStaging(n int) (p *staged, err error) {
	here := n <= a.hostObservations
	if here && n <= maxHostObservations { // they all have the same layout
		n = maxHostObservations
	}
	offsets := [sections]int64{sectionIDs: stagingAlign}
	size, asked := int64(stagingAlign), 4*min(a.cell.Items, 1)
	for i, bytes := range [sections]int{0, 4, 4 * a.cell.Features, asked, 1, 1, asked} {
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
	if err := a.dropStaging(here); err != nil { // they are too small, and the next ones will be as large as these
		return nil, err
	}
	p = &staged{offsets: offsets, size: size}
	if n > maxHostObservations {
		size += size / 2 // so that batches of similar size allocate once
	}
	if here {
		p.host, err = a.dev.AllocHost(size, "observations")
	} else {
		err = p.alloc(a.dev, size, "observations")
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (a *Agents) returnStaging(p *staged) { a.released = append(a.released, p) }

// dropStaging releases returned buffers: with here the buffers in host memory only, else the
// others.
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

// closeBatches releases the memory that batches, fusions and queries keep for the next ones.
func (a *Agents) closeBatches() error {
	err := errors.Join(
		a.marks.close(), a.whole.close(), a.gathering.close(), a.dropStaging(false), a.dropStaging(true),
	)
	a.marks, a.whole, a.looked = nil, nil, nil
	return err
}

// trim releases all memory of agents that a batch can do without.
func trim(a *Agents) error {
	err := a.closeBatches()
	if err == nil {
		_, err = a.dev.Trim()
	}
	return gpubatch.Failed(err)
}

// close releases the buffers, which no launch uses any more.
func (p *staged) close() error { return errors.Join(gpubatch.CloseAll(p.graph), p.mirror.close()) }

// replay steps and decides the first n observations of small staging buffers by recorded launches,
// with one call of the driver.
func (p *staged) replay(ctx context.Context, a *Agents, n int) error {
	if p.graph != nil && (p.frames != a.memory.Pinned() || p.arena != a.memory.Arena()) {
		if err := errors.Join(a.stream.Sync(ctx), p.graph.Close()); err != nil {
			return err
		}
		p.graph = nil
	}
	if p.graph == nil {
		g, err := a.stream.Capture(func() error {
			return a.putStep(p, launch{n: maxHostObservations}, kernels.AgentHeaded, 0)
		})
		if err != nil {
			return err
		}
		p.graph, p.frames, p.arena = g, a.memory.Pinned(), a.memory.Arena()
	}
	head := section[uint32](p, sectionHead, 2)
	head[0], head[1] = uint32(n), a.sequence
	return a.stream.Replay(p.graph)
}

func section[T device.Scalar](p *staged, which, n int) []T {
	return device.Of[T](p.host.Bytes()[p.offsets[which]:p.size])[:n:n]
}

// arg returns n bytes of a section as a kernel argument. off is a multiple of 16.
func (p *staged) arg(which int, off, n int64) device.Arg {
	if p.onDevice == nil {
		return device.Mapped(p.host, p.offsets[which]+off, n)
	}
	return device.Range(p.onDevice, p.offsets[which]+off, n)
}

func (p *staged) upload(a *Agents) error {
	if p.onDevice == nil {
		return nil
	}
	a.pending = true
	return a.stream.Upload(p.onDevice, 0, p.host, 0, p.offsets[sectionVotes])
}

func (p *staged) fetch(a *Agents) error {
	if p.onDevice == nil {
		return nil
	}
	a.pending = true
	at := p.offsets[sectionVotes]
	return a.stream.Download(p.host, at, p.onDevice, at, p.size-at)
}
