package transformer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	set "github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
)

// Step reads the tokens of runs into the pages of pool, and draws tokens for the runs that ask for
// one. A frame has Options.PageSize bytes. out has a place for each run; the places of runs that
// draw nothing are left as they are. When Step returns without an error, its work is done. After an
// error, the positions of the runs are undefined, and a work under way may still write them until
// the next call or Close. The error is an ErrRun if a run is refused, before any work.
func (m *Machine) Step(ctx context.Context, pool device.Buffer, runs []Run, out []Token) error {
	if err := m.settle(ctx); err != nil {
		return err
	}
	if err := m.checkRuns(pool, runs, out); err != nil || len(runs) == 0 {
		m.slots = m.slots[:0]
		return err
	}
	p := m.plan(runs)
	back, err := m.room(p, len(runs))
	if err != nil {
		return err
	}
	m.pending = true
	if err := m.queue(ctx, pool, p, back); err != nil {
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	tokens := device.Of[uint32](m.back.Bytes()[back:])
	for i, slot := range m.slots {
		if slot < p.drawn {
			out[i] = Token{int32(tokens[2*slot]), math.Float32frombits(tokens[2*slot+1])}
		}
	}
	return nil
}

// settle waits for the work under way.
func (m *Machine) settle(ctx context.Context) error {
	if !m.pending {
		return nil
	}
	if err := m.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(fmt.Errorf("step of a model: %w", err))
	}
	m.pending = false
	return nil
}

// room has memory for a plan, and returns the bytes of the last states that come back, behind which
// the tokens are.
func (m *Machine) room(p *plan, runs int) (back int64, err error) {
	back = 4 * int64(runs) * int64(m.p.Width)
	err = errors.Join(
		m.growHost(&m.sent, p.bytes), m.grow(&m.in, p.bytes), m.grow(&m.last, back),
		m.grow(&m.out, 8*int64(max(p.drawn, 1))), m.growHost(&m.back, back+8*int64(p.drawn)),
	)
	if err == nil && p.drawn > 0 {
		err = m.grow(&m.logits, 4*int64(min(p.drawn, m.group()))*int64(m.p.Vocabulary))
	}
	return back, err
}

// group is the number of draws whose logits are computed together. It is even, so that their tokens
// begin at a multiple of device.RangeAlign.
func (m *Machine) group() int { return max(2, min(64, logitBytes/(4*m.p.Vocabulary)&^1)) }

// queue queues the work of a plan.
func (m *Machine) queue(ctx context.Context, pool device.Buffer, p *plan, back int64) error {
	copy(m.sent.Bytes(), device.Bytes(p.words))
	if err := m.stream.Upload(m.in, 0, m.sent, 0, p.bytes); err != nil {
		return gpubatch.Mark(err)
	}
	for i := range p.chunks {
		if err := m.walk(ctx, pool, p, &p.chunks[i]); err != nil {
			return err
		}
	}
	width := 4 * int64(m.p.Width)
	for first := 0; first < p.drawn; first += m.group() {
		n := min(m.group(), p.drawn-first)
		states := device.Range(m.last, int64(first)*width, int64(n)*width)
		if err := m.product(m.head, nil, states, device.Ptr(m.logits), n, 0); err != nil {
			return err
		}
		if err := m.launch(set.Sample, int64(n)*set.Block/32, set.Block, set.SampleArgs{
			Logits: device.Ptr(m.logits), Vocabulary: uint32(m.p.Vocabulary),
			Draws: device.Range(m.in, p.draws+4*set.DrawWords*int64(first), 4*set.DrawWords*int64(n)),
			Count: uint32(n), Tokens: device.Range(m.out, 8*int64(first), 8*int64(n)),
		}.Args()); err != nil {
			return err
		}
	}
	err := m.stream.Download(m.back, 0, m.last, 0, back)
	if err == nil && p.drawn > 0 {
		err = m.stream.Download(m.back, back, m.out, 0, 8*int64(p.drawn))
	}
	return gpubatch.Mark(err)
}

// passer is what weights have whose layers are not all on the device.
type passer interface {
	Pass(ctx context.Context, s device.Stream) (*weights.Pass, error)
}

// walk queues the work of a chunk in all layers.
func (m *Machine) walk(ctx context.Context, pool device.Buffer, p *plan, c *chunk) (err error) {
	enter := func(int) error { return nil }
	if of, ok := m.weights.(passer); ok {
		pass, err := of.Pass(ctx, m.stream)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pass.End()) }()
		enter = pass.Layer
	}
	rows := device.Range(m.in, 4*set.RowWords*int64(c.first), 4*set.RowWords*int64(c.count))
	if err := m.launch(set.Name(set.Embed, m.embedding.Type), int64(c.count*m.p.Width/128+1), set.Block, set.EmbedArgs{
		Table: arg(&m.embedding), Rows: rows, X: device.Ptr(m.x), Columns: uint32(m.p.Width), Count: uint32(c.count),
	}.Args()); err != nil {
		return err
	}
	for i := range m.layers {
		if err := enter(i); err != nil {
			return err
		}
		if err := m.attention(pool, p, c, rows, i); err != nil {
			return err
		}
		if err := m.gated(&m.layers[i], c.count); err != nil {
			return err
		}
	}
	for _, e := range c.ends {
		if e.count == 0 {
			continue
		}
		to := device.Range(m.last, 4*int64(e.slot)*int64(m.p.Width), 4*int64(e.count)*int64(m.p.Width))
		picks := device.Range(m.in, e.picks, 4*int64(e.count))
		if err := m.norm(&m.lastNorm, to, &picks, e.count); err != nil {
			return err
		}
	}
	return nil
}

// attention adds the attention of layer i to the states.
func (m *Machine) attention(pool device.Buffer, p *plan, c *chunk, rows device.Arg, i int) error {
	l, of, n := &m.layers[i], m.p, c.count
	x, h, a := device.Ptr(m.x), device.Ptr(m.h), device.Ptr(m.a)
	q, k, v := device.Ptr(m.q), device.Ptr(m.k), device.Ptr(m.v)
	frames := device.Range(m.in, p.frames, p.bytes-p.frames)
	heads, kv, head := uint32(of.Heads), uint32(of.KVHeads), uint32(of.HeadWidth)
	var flags uint32
	qNorm, kNorm := x, x
	if of.HeadNorms {
		flags, qNorm, kNorm = set.RotateNorms, arg(&l.qNorm), arg(&l.kNorm)
	}
	if of.Rope.Pairs {
		flags |= set.RotatePairs
	}
	if err := m.norm(&l.norm, h, nil, n); err != nil {
		return err
	}
	for _, t := range []struct {
		w, bias *weights.Tensor
		to      device.Arg
	}{{&l.q, &l.qBias, q}, {&l.k, &l.kBias, k}, {&l.v, &l.vBias, v}} {
		if !of.Bias {
			t.bias = nil
		}
		if err := m.product(*t.w, t.bias, h, t.to, n, 0); err != nil {
			return err
		}
	}
	if err := m.launch(set.Rotate, int64(n)*int64(heads+2*kv), set.Block, set.RotateArgs{
		Q: q, K: k, V: v, QNorm: qNorm, KNorm: kNorm, Turns: device.Ptr(m.turns), Rows: rows, Count: uint32(n),
		Frames: frames, Pool: device.Ptr(pool), FrameBytes: uint64(m.o.PageSize), Positions: uint32(m.o.PagePositions),
		Layer: uint32(i), Heads: heads, KvHeads: kv, Head: head, Flags: flags, Epsilon: float32(of.Epsilon),
	}.Args()); err != nil {
		return err
	}
	splits := m.splits(c.most)
	most := int(m.partBytes / (4 * int64(of.Heads) * int64(splits) * int64(of.HeadWidth+set.PartHead)))
	for first := 0; first < n; first += most {
		count := min(most, n-first)
		if err := m.launch(set.Attend, int64(count)*int64(of.Heads)*int64(splits), set.AttendBlock, set.AttendArgs{
			Q: q, Rows: rows, FirstRow: uint32(first), Count: uint32(count), Frames: frames, Pool: device.Ptr(pool),
			FrameBytes: uint64(m.o.PageSize), Positions: uint32(m.o.PagePositions), Layer: uint32(i), Heads: heads,
			KvHeads: kv, Head: head, Window: uint32(of.Window), Scale: float32(1 / math.Sqrt(float64(of.HeadWidth))),
			Splits: uint32(splits), Parts: device.Ptr(m.parts),
		}.Args()); err != nil {
			return err
		}
		if err := m.launch(set.Merge, int64(count)*int64(of.Heads), set.Block, set.MergeArgs{
			Parts: device.Ptr(m.parts), Rows: rows, FirstRow: uint32(first), Count: uint32(count), Heads: heads,
			Head: head, Window: uint32(of.Window), Splits: uint32(splits), Y: a,
		}.Args()); err != nil {
			return err
		}
	}
	return m.product(l.output, nil, a, x, n, set.ProductAdd)
}

// gated adds the gated layer to the states.
func (m *Machine) gated(l *layer, n int) error {
	h, gate, up := device.Ptr(m.h), device.Ptr(m.gate), device.Ptr(m.up)
	if err := m.norm(&l.ffNorm, h, nil, n); err != nil {
		return err
	}
	if err := m.product(l.gate, nil, h, gate, n, 0); err != nil {
		return err
	}
	if err := m.product(l.up, nil, h, up, n, 0); err != nil {
		return err
	}
	count := int64(n) * int64(m.p.Inner)
	if err := m.launch(set.Gate, (count+31)/32, set.Block, set.GateArgs{
		Gate: gate, Up: up, Count: uint64(count),
	}.Args()); err != nil {
		return err
	}
	return m.product(l.down, nil, gate, device.Ptr(m.x), n, set.ProductAdd)
}

func arg(t *weights.Tensor) device.Arg { return device.Range(t.Buffer, t.Offset, t.Bytes) }

// norm queues the norm of states, or of the picked ones.
func (m *Machine) norm(w *weights.Tensor, to device.Arg, picks *device.Arg, n int) error {
	a := set.NormArgs{
		X: device.Ptr(m.x), Weights: arg(w), Picks: device.Ptr(m.in), Y: to, Columns: uint32(m.p.Width),
		Count: uint32(n), Epsilon: float32(m.p.Epsilon),
	}
	if picks != nil {
		a.Picks, a.Picked = *picks, 1
	}
	return m.launch(set.Norm, int64(n), set.Block, a.Args())
}

// product queues to = w x + bias for n rows.
func (m *Machine) product(w weights.Tensor, bias *weights.Tensor, x, to device.Arg, n int, flags uint32) error {
	a := set.ProductArgs{
		Weights: arg(&w), Bias: x, X: x, Y: to, Outputs: uint32(w.Rows), Columns: uint32(w.Columns), Count: uint32(n),
		Flags: flags,
	}
	if bias != nil {
		a.Bias, a.Flags = arg(bias), flags|set.ProductBias
	}
	// A warp has two outputs of four rows.
	return m.launch(set.Name(set.Product, w.Type), int64((w.Rows+1)/2)*int64((n+3)/4), set.Block, a.Args())
}

// launch queues a kernel with a number of warps, in blocks of at most that number of threads.
func (m *Machine) launch(name string, warps int64, block int, args []device.Arg) error {
	each := int64(block / 32)
	g := device.Geometry{Grid: int(max(1, min((warps+each-1)/each, int64(m.blocks)))), Block: block}
	return gpubatch.Mark(m.stream.Launch(m.kernels[name], g, args...))
}

// Last copies the last normalised state of a run of the last Step, Width values, into out. After a
// Step that failed it has no meaning.
func (m *Machine) Last(run int, out []float32) {
	width := m.p.Width
	copy(out[:width], device.Of[float32](m.back.Bytes()[4*m.slots[run]*width:]))
}

// Logits computes the logits of tokens behind the last position of a run of the last Step.
func (m *Machine) Logits(ctx context.Context, run int, tokens []int32, out []float32) error {
	if run < 0 || run >= len(m.slots) || len(out) < len(tokens) {
		return fmt.Errorf("%w: run %d of %d, %d places for %d logits", ErrRun, run, len(m.slots), len(out), len(tokens))
	}
	if len(tokens) == 0 {
		return nil
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	row := m.head.Bytes / int64(m.head.Rows)
	at := (row*int64(len(tokens)) + 255) &^ 255 // of the logits, behind the rows
	if err := m.grow(&m.picked, at+4*int64(len(tokens))); err != nil {
		return err
	}
	m.pending = true
	for i, t := range tokens {
		if t < 0 || int(t) >= m.p.Vocabulary {
			return fmt.Errorf("%w: token %d: the vocabulary has %d", ErrRun, t, m.p.Vocabulary)
		}
		if err := m.stream.Copy(m.picked, int64(i)*row, m.head.Buffer, m.head.Offset+int64(t)*row, row); err != nil {
			return gpubatch.Mark(err)
		}
	}
	w := weights.Tensor{
		Buffer: m.picked, Bytes: row * int64(len(tokens)), Type: m.head.Type, Rows: len(tokens),
		Columns: m.head.Columns,
	}
	width := 4 * int64(m.p.Width)
	state := device.Range(m.last, int64(m.slots[run])*width, width)
	if err := m.product(w, nil, state, device.Range(m.picked, at, 4*int64(len(tokens))), 1, 0); err != nil {
		return err
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	return gpubatch.Mark(m.picked.Read(at, device.Bytes(out[:len(tokens)])))
}
