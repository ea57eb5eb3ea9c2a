package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// marks is the memory with which the device examines the ids of a batch: which pages they need, and
// whether an agent occurs twice. A Ranking on the host takes some 40 ns for each observation, the
// device less than 1 ns.
type marks struct {
	mark, clear            device.Kernel
	stream                 device.Stream     // of these kernels: inputs are copied in the stream of the agents
	uploaded, done         device.Event      // the ids are on the device; their marks are cleared
	seen, touched, scratch device.Buffer     // see swarmset.Mark
	result                 device.HostBuffer // written by Mark
	words                  []uint32          // result as words
	sequence               uint32            // number of the last launch of Mark
}

// RanksOnDevice reports whether a batch of n observations is deduplicated on the device instead of
// by a Ranking. Its pages are on the device, and large batches pass through the memory of the
// device.
func (a *Agents) RanksOnDevice(n int) bool { return n > a.hostObservations && a.memory.Resident() }

// openMarks allocates the marks of a, which Close and trim release. After an ErrOutOfMemory the
// host ranks the batch.
func openMarks(a *Agents) (*marks, error) {
	if a.marks != nil {
		return a.marks, nil
	}
	m := &marks{}
	if err := m.open(a); err != nil {
		return nil, errors.Join(err, m.close())
	}
	a.marks = m
	return m, nil
}

// open allocates the memory. After an error the caller closes what was opened.
func (m *marks) open(a *Agents) (err error) {
	if m.mark, err = a.dev.Kernel(swarmset.Mark); err != nil {
		return err
	}
	if m.clear, err = a.dev.Kernel(swarmset.Clear); err != nil {
		return err
	}
	if m.stream, err = a.dev.NewStream(); err != nil {
		return err
	}
	for _, to := range []*device.Event{&m.uploaded, &m.done} {
		if *to, err = a.dev.NewEvent(); err != nil {
			return err
		}
	}
	for _, b := range []struct {
		to    *device.Buffer
		bytes int64
	}{{&m.seen, 4 * ((a.n + 31) / 32)}, {&m.touched, 4 * int64(a.pages+1)}, {&m.scratch, 8}} {
		if *b.to, err = a.dev.Alloc(b.bytes, "agents"); err != nil {
			return fmt.Errorf("marks of %d agents: %w", a.n, err)
		}
		if err = (*b.to).Fill(0, b.bytes, 0); err != nil {
			return err
		}
	}
	if m.result, err = a.dev.AllocHost(4*int64(swarmset.MarkTouched+a.pages), "agents"); err != nil {
		return err
	}
	m.words = device.Of[uint32](m.result.Bytes())
	clear(m.words)
	return nil
}

// close releases the memory. A second call does nothing, and so does a call for a nil marks.
func (m *marks) close() error {
	if m == nil {
		return nil
	}
	// The stream waits for the work that uses the memory.
	return gpubatch.CloseAll(m.stream, m.uploaded, m.done, m.seen, m.touched, m.scratch, m.result)
}

// clearedBytes is the number of bytes that one fill clears in the time in which the kernel clears
// one mark.
const clearedBytes = 64

// put enqueues the launches for the ids of a batch. The ids are in the stream of a, the launches in
// the stream of the marks, and later work of a follows them.
func (m *marks) put(a *Agents, p *staged, n int) error {
	if m.sequence++; m.sequence == 0 {
		m.sequence = 1
	}
	ids, seen := p.arg(sectionIDs, 0, 4*int64(n)), device.Ptr(m.seen)
	shape := a.shape(decideBlocks/2, 256, (n+255)/256)
	if err := errors.Join(a.stream.Record(m.uploaded), m.stream.Wait(m.uploaded)); err != nil {
		return err
	}
	err := m.stream.Launch(m.mark, shape, swarmset.MarkArgs{
		IDs: ids, N: uint32(n), Agents: uint32(a.n), Per: a.perPage.by, Pages: uint32(a.pages), Seen: seen,
		Touched: device.Ptr(m.touched), Scratch: device.Ptr(m.scratch), Sequence: m.sequence,
		Result: device.Mapped(m.result, 0, m.result.Size()),
	}.Args()...)
	if err != nil {
		return err
	}
	if m.seen.Size() <= clearedBytes*int64(n) {
		err = m.stream.Fill(m.seen, 0, m.seen.Size(), 0)
	} else {
		err = m.stream.Launch(m.clear, shape,
			swarmset.ClearArgs{IDs: ids, N: uint32(n), Agents: uint32(a.n), Seen: seen}.Args()...)
	}
	if err != nil {
		return err
	}
	return m.stream.Record(m.done)
}

// loadMarked is Load for a batch whose ids the device examines while the host copies the inputs. It
// returns nil without an error if a Ranking must examine the batch: an agent occurs twice, or the
// device has no room for marks.
func loadMarked(a *Agents, in rows) (o *Observations, err error) {
	m, err := openMarks(a)
	if errors.Is(err, device.ErrOutOfMemory) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	began := a.track.Now()
	ids := in.ids
	o = &Observations{agents: a, n: len(ids)}
	defer func() {
		if err != nil || o.launches == nil {
			err = errors.Join(err, o.Close())
			o = nil
		}
	}()
	if o.staged, err = a.takeStaging(len(ids)); err != nil {
		return o, err
	}
	if err := m.load(a, o.staged, in); err != nil {
		return o, fmt.Errorf("%w: load %d observations: %w", gpubatch.ErrDevice, len(ids), err)
	}
	if m.words[swarmset.MarkRepeated] > 0 {
		return o, nil
	}
	var pages []uint64
	for page, touched := range m.words[swarmset.MarkTouched:] {
		if touched != 0 {
			pages = append(pages, uint64(page))
		}
	}
	o.sets = a.memory.PlanSets(pages, nil) // one set without counts, since the pages have a frame each
	o.launches = []launch{{0, len(ids), 0}}
	a.track.End(gpubatch.StageUpload, began, in.bytes())
	return o, nil
}

// load copies ids, inputs and items to the device, and waits for the result of Mark.
func (m *marks) load(a *Agents, p *staged, in rows) error {
	a.pending = true
	ids, sections, host := in.ids, [3]int{sectionIDs, sectionInputs, sectionItems}, p.host.Bytes()
	marked := len(ids) == 0
	if err := gpubatch.Copy([]gpubatch.Part{
		{To: host[p.offsets[sectionIDs]:], From: device.Bytes(ids)},
		{To: host[p.offsets[sectionInputs]:], From: device.Bytes(in.inputs)},
		{To: host[p.offsets[sectionItems]:], From: device.Bytes(in.items)},
	}, func(part, from, to int) error {
		at := p.offsets[sections[part]] + int64(from)
		if err := a.stream.Upload(p.onDevice, at, p.host, at, int64(to-from)); err != nil {
			return err
		}
		if marked || to < 4*len(ids) {
			return nil
		}
		marked = true // all ids are under way
		return m.put(a, p, len(ids))
	}); err != nil {
		return err
	}
	if err := a.stream.Wait(m.done); err != nil { // later users of the ids wait for the stream of a
		return err
	}
	// The device bounds the wait.
	return m.stream.Await(context.Background(), m.result, 4*swarmset.MarkSequence, m.sequence)
}
