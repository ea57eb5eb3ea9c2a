package weights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// purpose names the memory of weights in the accounting of a device.
const purpose = "weights"

// pageShare is the part of a budget, an eighth, that weights leave to the pages of shards.
const pageShare = 8

// load takes memory for the parts and fills it. free gives back what it has taken, also after an
// error.
func (m *held) load(ctx context.Context) (err error) {
	m.parameters = m.src.Parameters()
	if err := m.lay(m.ref.Exact); err != nil {
		return err
	}
	if err := m.place(ctx); err != nil {
		return err
	}
	l, err := newLoader(m.of.dev)
	if err != nil {
		return gpubatch.Mark(err)
	}
	defer func() { err = errors.Join(err, gpubatch.Mark(l.close())) }()
	var stay []device.Region
	for _, p := range m.parts {
		switch {
		case p.pass < 0:
			err = l.upload(ctx, m, p)
			stay = append(stay, device.Region{Buffer: p.buffer, Bytes: p.bytes})
		case p.pinned != nil:
			err = m.fill(ctx, p.pieces, 0, p.pinned.Bytes())
		}
		if err != nil {
			return err
		}
	}
	if err := l.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	sums, err := device.Checksums(ctx, m.of.dev, stay)
	if err != nil {
		return gpubatch.Mark(err)
	}
	for _, p := range m.parts {
		if p.pass < 0 {
			p.sum, sums = sums[0], sums[1:]
			m.claims++
		}
	}
	return m.measure(ctx)
}

// measure has each layer that passes come to the device once.
func (m *held) measure(ctx context.Context) (err error) {
	if m.mover == nil {
		return nil
	}
	s, err := m.of.dev.NewStream()
	if err != nil {
		return gpubatch.Mark(err)
	}
	defer func() { err = errors.Join(err, gpubatch.Mark(s.Close())) }()
	begin := time.Now()
	p, err := (&Model{held: m}).Pass(ctx, s)
	if err != nil {
		return err
	}
	for i := 0; i < m.parameters.Layers && err == nil; i++ {
		err = p.Layer(i)
	}
	if err = errors.Join(err, p.End()); err == nil {
		err = gpubatch.Mark(s.Sync(ctx))
	}
	m.step = time.Since(begin)
	return err
}

// place decides which parts stay on the device, and allocates the memory of all. Layers that pass
// are spread among the others, so that they come while others compute.
func (m *held) place(ctx context.Context) error {
	rest := m.parts[len(m.parts)-1]
	if has, err := m.of.take(ctx, rest); err != nil {
		return err
	} else if !has {
		return m.noRoom(rest.bytes)
	}
	// The fractions of the multiples of the golden ratio: each run of them is spread evenly.
	order := slices.Clone(m.parts[:len(m.parts)-1])
	at := map[*part]float64{}
	for i, p := range order {
		_, at[p] = math.Modf(float64(i) * math.Phi)
	}
	slices.SortStableFunc(order, func(a, b *part) int { return cmp.Compare(at[a], at[b]) })
	stay := 0
	for ; stay < len(order); stay++ {
		if has, err := m.of.take(ctx, order[stay]); err != nil {
			return err
		} else if !has {
			break
		}
	}
	if stay == len(order) {
		return nil
	}
	for { // two buffers in place of layers
		largest := int64(0)
		for _, p := range order[stay:] {
			largest = max(largest, p.bytes)
		}
		var err error
		if m.mover, err = newMover(ctx, m.of, largest); err != nil {
			return err
		}
		if m.mover != nil {
			break
		}
		if stay == 0 {
			return m.noRoom(2 * largest)
		}
		stay--
		if err := m.of.freePart(order[stay]); err != nil {
			return err
		}
	}
	passing := order[stay:]
	k := 0
	for _, p := range m.parts {
		if !slices.Contains(passing, p) {
			continue
		}
		p.pass = k % len(m.mover.buffers)
		p.buffer = m.mover.buffers[p.pass].buffer
		k++
		if err := m.of.pin(p); err != nil {
			return err
		}
	}
	return nil
}

func (m *held) noRoom(bytes int64) error {
	free := m.of.budget.Room()
	if onDevice, _, err := m.of.dev.Memory(); err == nil {
		free = min(free, onDevice)
	}
	return fmt.Errorf("%w: %d bytes are needed on the device beside the bytes of layers, and %d are free, while "+
		"an eighth of the budget is for pages: use an agent process with more memory for pages, or a smaller model",
		ErrRoom, bytes, free)
}

// roomPatience is how long a model waits for memory that shards may give. A shard that waits for its
// own model, or is being opened, gives nothing.
const roomPatience = 10 * time.Second

// take allocates the buffer of a part. has is false without room.
func (h *Holder) take(ctx context.Context, p *part) (has bool, err error) {
	if h.budget != nil {
		whole, _ := h.budget.Size()
		if h.taken.Load()+p.bytes > whole-whole/pageShare {
			return false, nil
		}
	}
	patient, cancel := context.WithTimeout(ctx, roomPatience)
	defer cancel()
	for b := h.budget.AllOnDevice(); ; {
		p.given, err = b.Allocate(0, 1, int(p.bytes))
		var short *pages.Shortage
		if !errors.As(err, &short) {
			break
		}
		if b, err = b.Await(patient, short); err != nil {
			p.given = nil
			return false, context.Cause(ctx)
		}
	}
	if err != nil { // a refusal: nobody gives what is missing
		p.given = nil
		return false, nil
	}
	if p.buffer, err = h.dev.Alloc(p.bytes, purpose); err != nil {
		p.given.Release()
		p.given, p.buffer = nil, nil
		if errors.Is(err, device.ErrOutOfMemory) { // other processes have it
			return false, nil
		}
		return false, gpubatch.Mark(err)
	}
	h.taken.Add(p.bytes)
	return true, nil
}

// pin allocates pinned memory for a part that passes, if there is room.
func (h *Holder) pin(p *part) (err error) {
	given := h.budget.Pin(p.bytes)
	if given == nil {
		return nil
	}
	p.given = given
	if p.pinned, err = h.dev.AllocHost(p.bytes, purpose); err != nil {
		p.given.Release()
		p.given, p.pinned = nil, nil
		if errors.Is(err, device.ErrOutOfMemory) {
			return nil
		}
	}
	return gpubatch.Mark(err)
}

// freePart gives back the memory of a part. It takes no lock but the budget's.
func (h *Holder) freePart(p *part) (err error) {
	if p.pass < 0 && p.buffer != nil {
		err = p.buffer.Close()
		h.taken.Add(-p.bytes)
	}
	if p.pinned != nil {
		err = errors.Join(err, p.pinned.Close())
	}
	p.given.Release()
	p.given, p.buffer, p.pinned = nil, nil, nil
	return gpubatch.Mark(err)
}

// chunkBytes is the size of the memory through which weights pass on their way to the device.
const chunkBytes = 16 << 20

// loader copies parts from their source to the device. One goroutine uses it.
type loader struct {
	stream device.Stream
	stages [2]device.HostBuffer
	read   [2]device.Event // the device has read the stage
	turn   int
}

func newLoader(dev device.Device) (l *loader, err error) {
	l = &loader{}
	if l.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	for i := range l.stages {
		if l.stages[i], err = dev.AllocHost(chunkBytes, purpose); err == nil {
			l.read[i], err = dev.NewEvent()
		}
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// close waits for the copies.
func (l *loader) close() error {
	err := l.stream.Close()
	for i := range l.stages {
		if l.read[i] != nil {
			err = errors.Join(err, l.read[i].Close())
		}
		if l.stages[i] != nil {
			err = errors.Join(err, l.stages[i].Close())
		}
	}
	return err
}

// upload queues the copy of a part from its source into its buffer.
func (l *loader) upload(ctx context.Context, m *held, p *part) error {
	for first := 0; first < len(p.pieces); {
		begin, end := p.pieces[first].at, first
		for end < len(p.pieces) && p.pieces[end].to-begin <= chunkBytes {
			end++
		}
		stage := l.stages[l.turn]
		if err := l.read[l.turn].Sync(ctx); err != nil {
			return gpubatch.Mark(err)
		}
		if err := m.fill(ctx, p.pieces[first:end], begin, stage.Bytes()); err != nil {
			return err
		}
		if err := l.stream.Upload(p.buffer, begin, stage, 0, p.pieces[end-1].to-begin); err != nil {
			return gpubatch.Mark(err)
		}
		if err := l.stream.Record(l.read[l.turn]); err != nil {
			return gpubatch.Mark(err)
		}
		l.turn, first = 1-l.turn, end
	}
	return nil
}

// fill reads pieces, which begin at begin in their part, with as many goroutines as the machine has
// cores.
func (m *held) fill(ctx context.Context, all []piece, begin int64, to []byte) error {
	var next atomic.Int64
	var running sync.WaitGroup
	errs := make([]error, min(len(all), runtime.GOMAXPROCS(0)))
	for k := range errs {
		running.Go(func() {
			var raw []byte
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return
				}
				p := all[i]
				if errs[k] = m.read(ctx, p, to[p.at-begin:p.to-begin], &raw); errs[k] != nil {
					next.Store(int64(len(all)))
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// read reads a piece, and decodes it if its type is another one.
func (m *held) read(ctx context.Context, p piece, to []byte, raw *[]byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if p.decode == "" {
		clear(to[p.bytes:])
		return m.src.Read(ctx, p.tensor, p.from, to[:p.bytes])
	}
	if *raw == nil {
		*raw = make([]byte, pieceBytes)
	}
	from := (*raw)[:p.bytes]
	if err := m.src.Read(ctx, p.tensor, p.from, from); err != nil {
		return err
	}
	clear(to[4*p.elements:])
	return quant.Decode(p.decode, device.Of[float32](to[:4*p.elements]), from)
}
