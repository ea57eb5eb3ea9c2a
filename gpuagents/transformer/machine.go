package transformer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// purpose names the memory of machines on the device.
const purpose = "transformer"

// partBytes is how much memory the parts of attention have, unless one row takes more.
const partBytes = 32 << 20

// logitBytes is how much memory logits have, unless one draw takes more.
const logitBytes = 256 << 20

// layer has the tensors of a layer.
type layer struct {
	norm, q, k, v, qBias, kBias, vBias, qNorm, kNorm, output weights.Tensor
	ffNorm, gate, up, down                                   weights.Tensor
}

// Machine computes one model on one device. One goroutine uses it. The caller closes it before the
// device and the weights.
type Machine struct {
	dev     device.Device
	stream  device.Stream
	o       Options
	p       *architecture.Parameters
	weights Weights
	kernels map[string]device.Kernel
	// blocks is the maximum of blocks of a launch. On the host device a block prepares its work, so
	// that few of them are faster.
	blocks int

	layers                    []layer
	embedding, head, lastNorm weights.Tensor

	turns device.Buffer
	// Rows of a chunk: states, normed states, queries, keys, values, attention, and the gated
	// layer.
	x, h, q, k, v, a, gate, up device.Buffer
	parts                      device.Buffer
	partBytes                  int64

	// Memory that grows with the runs of a Step.
	in, out, last, logits, picked device.Buffer
	sent, back                    device.HostBuffer

	words   []uint32 // of the plan of the last Step
	pending bool     // work may be under way whose Step has returned
	slots   []int    // place of each run of the last Step in last
}

// New returns a machine. The error is an ErrModel for parameters or tensors that it cannot compute.
func New(ctx context.Context, dev device.Device, o Options, w Weights) (*Machine, error) {
	if o.Context == 0 {
		o.Context = o.Parameters.Context
	}
	if o.Chunk == 0 {
		o.Chunk = 256
	}
	if o.PageSize == 0 {
		o.PageSize = PageBytes(o.Parameters, o.PagePositions)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	m := &Machine{dev: dev, o: o, weights: w, kernels: map[string]device.Kernel{}, blocks: 1 << 16}
	m.p = &m.o.Parameters
	if p := dev.Properties(); p.ComputeMajor == 0 {
		m.blocks = 4 * p.Multiprocessors
	}
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// check refuses options that cannot be computed.
func (o *Options) check() error {
	p := &o.Parameters
	if err := p.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrModel, err)
	}
	switch {
	case p.Width%8 != 0 || p.Inner%8 != 0 || p.HeadWidth%8 != 0:
		return fmt.Errorf("%w: widths %d, %d and %d of heads: multiples of 8 are computed", ErrModel, p.Width, p.Inner,
			p.HeadWidth)
	case o.Context < 1 || o.Context > p.Context:
		return fmt.Errorf("%w: a context of %d positions: the model has 1 to %d", ErrModel, o.Context, p.Context)
	case o.Chunk < 1 || o.Chunk > 1<<16:
		return fmt.Errorf("%w: chunks of %d tokens: use 1 to 65536", ErrModel, o.Chunk)
	case o.PagePositions < 1 || o.PageSize < PageBytes(*p, o.PagePositions) || o.PageSize%device.RangeAlign != 0:
		return fmt.Errorf("%w: pages of %d bytes for %d positions of %d bytes", ErrModel, o.PageSize, o.PagePositions,
			PositionBytes(*p))
	}
	return nil
}

// open finds kernels and tensors, and allocates memory.
func (m *Machine) open(ctx context.Context) (err error) {
	for _, name := range languageset.Names() {
		if m.kernels[name], err = m.dev.Kernel(name); err != nil {
			return gpubatch.Mark(fmt.Errorf("kernel %s: %w", name, err))
		}
	}
	if m.stream, err = m.dev.NewStream(); err != nil {
		return gpubatch.Mark(fmt.Errorf("open a stream: %w", err))
	}
	if err := m.find(); err != nil {
		return err
	}
	p, chunk := m.p, int64(m.o.Chunk)
	heads, kv := int64(p.Heads)*int64(p.HeadWidth), int64(p.KVHeads)*int64(p.HeadWidth)
	one := int64(p.Heads) * int64(m.splits(m.o.Context-1)) * 4 * int64(p.HeadWidth+languageset.PartHead)
	m.partBytes = max(one, min(partBytes, one*chunk))
	for _, of := range []struct {
		b *device.Buffer
		n int64
	}{
		{&m.x, 4 * chunk * int64(p.Width)},
		{&m.h, 4 * chunk * int64(p.Width)},
		{&m.q, 4 * chunk * heads},
		{&m.k, 4 * chunk * kv},
		{&m.v, 4 * chunk * kv},
		{&m.a, 4 * chunk * heads},
		{&m.gate, 4 * chunk * int64(p.Inner)},
		{&m.up, 4 * chunk * int64(p.Inner)},
		{&m.parts, m.partBytes},
		{&m.turns, 4 * int64(m.o.Context) * int64(p.HeadWidth)},
	} {
		if *of.b, err = m.dev.Alloc(of.n, purpose); err != nil {
			return gpubatch.Mark(fmt.Errorf("memory of a machine: %w", err))
		}
	}
	var factors []float32
	if p.Rope.Scaling == architecture.Factors {
		t, err := m.vector(architecture.RopeFreqs, p.HeadWidth/2)
		if err != nil {
			return err
		}
		data := make([]byte, t.Bytes)
		if err := t.Buffer.Read(t.Offset, data); err != nil {
			return gpubatch.Mark(err)
		}
		factors = device.Of[float32](data)
		for i, f := range factors {
			if !(f > 0 && f < math.MaxFloat32) {
				return fmt.Errorf("%w: %s: value %d is %v: use positive ones", ErrModel, architecture.RopeFreqs, i, f)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return gpubatch.Mark(m.turns.Write(0, device.Bytes(turns(frequencies(p, factors), m.o.Context))))
}

// find finds the tensors.
func (m *Machine) find() (err error) {
	p := m.p
	heads, kv := p.Heads*p.HeadWidth, p.KVHeads*p.HeadWidth
	matrix := func(to *weights.Tensor, name string, rows, columns int) {
		if err == nil {
			*to, err = m.matrix(name, rows, columns)
		}
	}
	vector := func(to *weights.Tensor, name string, n int) {
		if err == nil {
			*to, err = m.vector(name, n)
		}
	}
	matrix(&m.embedding, architecture.Embedding, p.Vocabulary, p.Width)
	if m.head = m.embedding; !p.Tied {
		matrix(&m.head, architecture.Head, p.Vocabulary, p.Width)
	}
	vector(&m.lastNorm, architecture.LastNorm, p.Width)
	m.layers = make([]layer, p.Layers)
	for i := range m.layers {
		l, name := &m.layers[i], func(end string) string { return architecture.Layered(i, end) }
		vector(&l.norm, name("attn_norm.weight"), p.Width)
		matrix(&l.q, name("attn_q.weight"), heads, p.Width)
		matrix(&l.k, name("attn_k.weight"), kv, p.Width)
		matrix(&l.v, name("attn_v.weight"), kv, p.Width)
		if p.Bias {
			vector(&l.qBias, name("attn_q.bias"), heads)
			vector(&l.kBias, name("attn_k.bias"), kv)
			vector(&l.vBias, name("attn_v.bias"), kv)
		}
		if p.HeadNorms {
			vector(&l.qNorm, name("attn_q_norm.weight"), p.HeadWidth)
			vector(&l.kNorm, name("attn_k_norm.weight"), p.HeadWidth)
		}
		matrix(&l.output, name("attn_output.weight"), p.Width, heads)
		vector(&l.ffNorm, name("ffn_norm.weight"), p.Width)
		matrix(&l.gate, name("ffn_gate.weight"), p.Inner, p.Width)
		matrix(&l.up, name("ffn_up.weight"), p.Inner, p.Width)
		matrix(&l.down, name("ffn_down.weight"), p.Width, p.Inner)
	}
	return err
}

// matrix finds a matrix.
func (m *Machine) matrix(name string, rows, columns int) (weights.Tensor, error) {
	t, err := m.weights.Tensor(name)
	if err != nil {
		return t, err
	}
	if m.kernels[languageset.Name(languageset.Product, t.Type)] == nil {
		return t, fmt.Errorf("%w: tensor %s is of type %.100s: F32, BF16 and Q8_0 are computed", ErrModel, name, t.Type)
	}
	elements, bytes, _ := quant.Block(t.Type)
	return t, check(t, name, rows, columns, int64(rows)*(int64(columns)/elements)*bytes, int64(columns)%elements == 0)
}

// vector finds a vector.
func (m *Machine) vector(name string, n int) (weights.Tensor, error) {
	t, err := m.weights.Tensor(name)
	if err != nil {
		return t, err
	}
	return t, check(t, name, 1, n, 4*int64(n), t.Type == quant.F32)
}

func check(t weights.Tensor, name string, rows, columns int, bytes int64, fits bool) error {
	if t.Rows != rows || t.Columns != columns || t.Bytes != bytes || !fits || t.Offset%device.RangeAlign != 0 {
		return fmt.Errorf("%w: tensor %s has %d x %d elements of type %.100s in %d bytes at %d, want %d x %d in "+
			"%d bytes", ErrModel, name, t.Rows, t.Columns, t.Type, t.Bytes, t.Offset, rows, columns, bytes)
	}
	return nil
}

// splits is the number of splits up to a position.
func (m *Machine) splits(position int) int { return position/languageset.Split + 1 }

// grow has at least n bytes in a buffer. What was in it is lost if it grows.
func (m *Machine) grow(b *device.Buffer, n int64) (err error) {
	if *b != nil && (*b).Size() >= n {
		return nil
	}
	if *b != nil {
		if err := (*b).Close(); err != nil {
			return gpubatch.Mark(err)
		}
		*b = nil
	}
	if *b, err = m.dev.Alloc(n+n/4, purpose); err != nil {
		return gpubatch.Mark(fmt.Errorf("memory of a step: %w", err))
	}
	return nil
}

// growHost is grow for host memory.
func (m *Machine) growHost(b *device.HostBuffer, n int64) (err error) {
	if *b != nil && (*b).Size() >= n {
		return nil
	}
	if *b != nil {
		if err := (*b).Close(); err != nil {
			return gpubatch.Mark(err)
		}
		*b = nil
	}
	if *b, err = m.dev.AllocHost(n+n/4, purpose); err != nil {
		return gpubatch.Mark(fmt.Errorf("memory of a step: %w", err))
	}
	return nil
}

// Close waits for work under way and releases the memory of the machine. A second call does
// nothing.
func (m *Machine) Close() (err error) {
	if m.stream != nil {
		err = m.stream.Close()
	}
	for _, b := range []device.Buffer{
		m.turns, m.x, m.h, m.q, m.k, m.v, m.a, m.gate, m.up, m.parts, m.in, m.out, m.last, m.logits, m.picked,
	} {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}
	for _, b := range []device.HostBuffer{m.sent, m.back} {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}
	return gpubatch.Mark(err)
}
