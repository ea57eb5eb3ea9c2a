package weights_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// source is a model with random bytes in memory.
type source struct {
	p      architecture.Parameters
	kinds  map[string]string
	data   map[string][]byte
	broken atomic.Pointer[error] // of each read
	closed atomic.Int32
}

// parameters are of a model with every kind of tensor.
func parameters(layers int) architecture.Parameters {
	return architecture.Parameters{
		Family: architecture.Qwen2, Layers: layers, Width: 96, Inner: 160, Heads: 3, KVHeads: 1, HeadWidth: 32,
		Vocabulary: 200, Context: 64, Epsilon: 1e-5, Rope: architecture.Rope{Theta: 1e4, Scaling: architecture.Factors},
		Bias: true, HeadNorms: true,
	}
}

// newSource makes the tensors of parameters. Matrices have one type after the other.
func newSource(p architecture.Parameters, seed uint64) *source {
	s := &source{p: p, kinds: map[string]string{}, data: map[string][]byte{}}
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := []string{quant.F32, quant.F16, quant.BF16, quant.Q8_0, quant.Q4_0}
	for i, t := range p.Tensors() {
		n, kind := int64(1), quant.F32
		for _, d := range t.Shape {
			n *= d
		}
		if len(t.Shape) > 1 {
			kind = kinds[i%len(kinds)]
		} else if i%2 == 0 {
			kind = quant.BF16
		}
		each, size, _ := quant.Block(kind)
		s.kinds[t.Name], s.data[t.Name] = kind, make([]byte, n/each*size)
		for k := range s.data[t.Name] {
			s.data[t.Name][k] = byte(r.Uint32())
		}
	}
	return s
}

func (s *source) Parameters() *architecture.Parameters { return &s.p }

func (s *source) Tensor(name string) (string, int64, error) {
	return s.kinds[name], int64(len(s.data[name])), nil
}

func (s *source) Read(_ context.Context, name string, off int64, p []byte) error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	copy(p, s.data[name][off:][:len(p)])
	return nil
}

func (s *source) Close() error {
	s.closed.Add(1)
	return nil
}

func (s *source) open(context.Context) (weights.Source, error) { return s, nil }

// want is the obvious form of a tensor on the device.
func (s *source) want(t testing.TB, of architecture.Tensor, exact bool) (kind string, data []byte) {
	t.Helper()
	kind, data = s.kinds[of.Name], s.data[of.Name]
	if !exact && len(of.Shape) > 1 && (kind == quant.BF16 || kind == quant.Q8_0) {
		return kind, data
	}
	each, size, _ := quant.Block(kind)
	values := make([]float32, int64(len(data))/size*each)
	testkit.NoError(t, "quant.Decode", quant.Decode(kind, values, data))
	return quant.F32, device.Bytes(values)
}

func open(t testing.TB) device.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	return d
}

func ref(name string, exact bool) weights.Ref {
	return weights.Ref{ModelRef: swarms.ModelRef{Name: name, SHA256: name}, Exact: exact}
}

// unused reports an error if weights have memory.
func unused(t *testing.T, d device.Device, b *pages.Budget) {
	t.Helper()
	for _, u := range d.Usage() {
		if u.Purpose == "weights" && (u.Bytes > 0 || u.HostBytes > 0) {
			t.Errorf("%+v after the last release", u)
		}
	}
	if b == nil {
		return
	}
	onDevice, inHost := b.Left()
	if d, h := b.Size(); d != onDevice || h != inHost {
		t.Errorf("of the budget of %d and %d bytes %d and %d are left after the last release", d, h, onDevice, inHost)
	}
}

// walk makes a step: it reads every layer on the stream, and compares it with the source.
func walk(t *testing.T, d device.Device, s device.Stream, m *weights.Model, of *source, exact bool) {
	t.Helper()
	p, err := m.Pass(t.Context(), s)
	testkit.NoError(t, "Pass", err)
	type copied struct {
		name string
		want []byte
		to   device.HostBuffer
	}
	var all []copied
	read := func(tensor architecture.Tensor) {
		at, err := m.Tensor(tensor.Name)
		testkit.NoError(t, "Tensor", err)
		kind, want := of.want(t, tensor, exact)
		rows := 1
		if len(tensor.Shape) > 1 {
			rows = int(tensor.Shape[0])
		}
		if at.Type != kind || at.Bytes != int64(len(want)) || at.Offset%256 != 0 || at.Rows != rows ||
			int64(at.Columns) != tensor.Shape[len(tensor.Shape)-1] {
			t.Fatalf("%s is %+v, want %d bytes of %s %v", tensor.Name, at, len(want), kind, tensor.Shape)
		}
		to, err := d.AllocHost(at.Bytes, "test")
		testkit.NoError(t, "AllocHost", err)
		testkit.NoError(t, "Download", s.Download(to, 0, at.Buffer, at.Offset, at.Bytes))
		all = append(all, copied{tensor.Name, want, to})
	}
	layer := -1
	for _, tensor := range of.p.Tensors() {
		var n int
		if _, err := fmt.Sscanf(tensor.Name, "blk.%d.", &n); err == nil && n != layer {
			layer = n
			testkit.NoError(t, "Layer", p.Layer(n))
		}
		read(tensor)
	}
	testkit.NoError(t, "End", errors.Join(p.End(), p.End()))
	testkit.NoError(t, "Sync", s.Sync(t.Context()))
	for _, c := range all {
		if !bytes.Equal(c.to.Bytes(), c.want) {
			t.Errorf("%s has other bytes than its source", c.name)
		}
		testkit.NoError(t, "Close", c.to.Close())
	}
}

func stream(t testing.TB, d device.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	testkit.NoError(t, "NewStream", err)
	testkit.Close(t, s)
	return s
}

// TestHold: all users have one copy, whose tensors are the source's, and the last release frees it.
func TestHold(t *testing.T) {
	for _, exact := range []bool{false, true} {
		d, b := open(t), pages.NewBudget(64<<20, 0)
		h, of := weights.NewHolder(d, b), newSource(parameters(3), 1)
		one, err := h.Hold(t.Context(), ref("m", exact), of.open)
		testkit.NoError(t, "Hold", err)
		two, err := h.Hold(t.Context(), ref("m", exact), func(context.Context) (weights.Source, error) {
			return nil, errors.New("opened twice")
		})
		testkit.NoError(t, "Hold", err)
		walk(t, d, stream(t, d), one, of, exact)
		walk(t, d, stream(t, d), two, of, exact)
		if _, err := one.Tensor("none"); !errors.Is(err, weights.ErrTensor) {
			t.Errorf("Tensor of a name that is not there: %v, want an ErrTensor", err)
		}
		all := h.Models()
		if len(all) != 1 || all[0].Users != 2 || all[0].Ref != ref("m", exact) || all[0].Passing != 0 ||
			all[0].Claims != 4 || all[0].Device == 0 {
			t.Errorf("Models: %+v", all)
		}
		testkit.NoError(t, "Release", errors.Join(one.Release(), one.Release()))
		if left, _ := b.Left(); left == 64<<20 || of.closed.Load() != 0 {
			t.Error("the first of two releases frees the model")
		}
		walk(t, d, stream(t, d), two, of, exact)
		testkit.NoError(t, "Release", two.Release())
		if n := of.closed.Load(); n != 1 || len(h.Models()) != 0 {
			t.Errorf("the source is closed %d times, and %d models are held", n, len(h.Models()))
		}
		unused(t, d, b)
	}
}

// TestPass: whatever the budget, each step finds all layers, also with several users at a time.
// Without room for two layers the model is refused with the bytes.
func TestPass(t *testing.T) {
	d, of := open(t), newSource(parameters(7), 2)
	seen := map[int]bool{}
	for _, share := range []int64{100, 12, 9, 7, 6, 5, 4, 3, 1} {
		for _, host := range []int64{0, 700 << 10, 8 << 20} {
			b := pages.NewBudget(share*300<<10, host)
			h := weights.NewHolder(d, b)
			m, err := h.Hold(t.Context(), ref("m", true), of.open)
			if errors.Is(err, weights.ErrRoom) {
				seen[-1] = true
				unused(t, d, b)
				continue
			}
			testkit.NoError(t, "Hold", err)
			i := h.Models()[0]
			seen[i.Passing] = true
			if (i.Passing > 0) != (i.Step > 0) || i.Passing > 0 && (i.Pinned+i.File == 0 || host == 0 && i.Pinned > 0 ||
				host == 8<<20 && i.File > 0) {
				t.Errorf("%d layers pass: %+v", i.Passing, i)
			}
			onDevice, _ := b.Left()
			if all, _ := b.Size(); onDevice < all/8 {
				t.Errorf("of %d bytes %d are left to pages", all, onDevice)
			}
			var users sync.WaitGroup
			for range 2 {
				s := stream(t, d)
				users.Go(func() {
					for range 3 {
						walk(t, d, s, m, of, true)
					}
				})
			}
			users.Wait()
			testkit.NoError(t, "Release", m.Release())
			unused(t, d, b)
		}
	}
	for _, n := range []int{-1, 0, 3, 7} {
		if !seen[n] {
			t.Errorf("no budget lets %d of 7 layers pass: %v", n, seen)
		}
	}
}

// TestPassOrder: layers in another order are an error, and an error of the source in a step is the
// step's; the next step is whole again.
func TestPassOrder(t *testing.T) {
	d, of := open(t), newSource(parameters(5), 3)
	h := weights.NewHolder(d, pages.NewBudget(1300<<10, 0))
	m, err := h.Hold(t.Context(), ref("m", true), of.open)
	testkit.NoError(t, "Hold", err)
	s := stream(t, d)
	if h.Models()[0].Passing < 3 {
		t.Fatalf("%+v: the test needs layers that pass", h.Models()[0])
	}
	p, err := m.Pass(t.Context(), s)
	testkit.NoError(t, "Pass", err)
	var failed error
	for i := 4; i >= 0; i-- {
		failed = errors.Join(failed, p.Layer(i))
	}
	if !errors.Is(failed, device.ErrInvalidArgument) {
		t.Errorf("layers backwards: %v, want a device.ErrInvalidArgument", failed)
	}
	testkit.NoError(t, "End", p.End())
	broken := io.ErrUnexpectedEOF
	of.broken.Store(&broken)
	p, err = m.Pass(t.Context(), s)
	testkit.NoError(t, "Pass", err)
	failed = nil
	for i := 0; i < 5 && failed == nil; i++ {
		failed = p.Layer(i)
	}
	if !errors.Is(failed, broken) {
		t.Errorf("a layer of a broken file: %v, want %v", failed, broken)
	}
	testkit.NoError(t, "End", p.End())
	of.broken.Store(nil)
	walk(t, d, s, m, of, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	held, err := m.Pass(t.Context(), s)
	testkit.NoError(t, "Pass", err)
	cancel(io.EOF)
	if _, err := m.Pass(ctx, s); !errors.Is(err, io.EOF) {
		t.Errorf("a second pass at a time: %v, want the end of its context", err)
	}
	testkit.NoError(t, "End", held.End())
	testkit.NoError(t, "Release", m.Release())
}

// TestFaults: whichever call of the device or of the source fails, nothing stays allocated, and the
// next caller has the model.
func TestFaults(t *testing.T) {
	broken := errors.New("a disk")
	for _, budget := range []int64{64 << 20, 1300 << 10} {
		for _, op := range []faults.Op{faults.Alloc, faults.Pin, faults.Launch, faults.Copy, faults.Wait, -1} {
			for skip := 0; ; skip++ {
				d := faults.New(open(t))
				b := pages.NewBudget(budget, 3<<19)
				h, of := weights.NewHolder(d, b), newSource(parameters(4), 4)
				src := &failing{source: of, after: -1}
				if op < 0 {
					src.after, src.err = skip, broken
				} else {
					d.Fail(op, skip, 1, device.ErrTransient)
				}
				m, err := h.Hold(t.Context(), ref("m", true), src.open)
				if err == nil { // all calls were tried
					testkit.NoError(t, "Release", m.Release())
					unused(t, d, b)
					break
				}
				if want := map[bool]error{true: broken, false: device.ErrTransient}[op < 0]; !errors.Is(err, want) {
					t.Fatalf("call %d of %v fails: %v, want %v", skip, op, err, want)
				}
				unused(t, d, b)
				d.Heal()
				if m, err = h.Hold(t.Context(), ref("m", true), of.open); err != nil {
					t.Fatalf("after call %d of %v has failed: %v", skip, op, err)
				}
				testkit.NoError(t, "Release", m.Release())
				unused(t, d, b)
			}
		}
	}
}

// failing is a source whose calls fail after a number.
type failing struct {
	*source
	after int
	err   error
	n     atomic.Int32
}

func (f *failing) call() error {
	if f.err != nil && int(f.n.Add(1)) > f.after {
		return f.err
	}
	return nil
}

func (f *failing) open(context.Context) (weights.Source, error) { return f, f.call() }

func (f *failing) Tensor(name string) (string, int64, error) {
	if err := f.call(); err != nil {
		return "", 0, err
	}
	return f.source.Tensor(name)
}

func (f *failing) Read(ctx context.Context, name string, off int64, p []byte) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.source.Read(ctx, name, off, p)
}

// TestAudit: a flipped bit on the device is found, told to each user and loaded again. While the
// file cannot be read the model is refused.
func TestAudit(t *testing.T) {
	d, of := open(t), newSource(parameters(3), 5)
	h := weights.NewHolder(d, nil)
	m, err := h.Hold(t.Context(), ref("m", false), of.open)
	testkit.NoError(t, "Hold", err)
	audit := func(checked, violated int, want ...error) {
		t.Helper()
		n, wrong, err := h.Audit(t.Context(), true)
		if n != checked || wrong != violated || err != nil != (len(want) > 0) {
			t.Errorf("Audit: %d claims, %d false, %v; want %d and %d", n, wrong, err, checked, violated)
		}
		for _, w := range want {
			if !errors.Is(err, w) {
				t.Errorf("Audit: %v, want %v", err, w)
			}
		}
	}
	audit(4, 0)
	if h.Models()[0].Checked.IsZero() {
		t.Error("no time of the audit")
	}
	flip := func(name string) {
		t.Helper()
		at, err := m.Tensor(name)
		testkit.NoError(t, "Tensor", err)
		var one [1]byte
		testkit.NoError(t, "Read", at.Buffer.Read(at.Offset+at.Bytes-1, one[:]))
		one[0] ^= 4
		testkit.NoError(t, "Write", at.Buffer.Write(at.Offset+at.Bytes-1, one[:]))
	}
	flip("blk.1.ffn_up.weight")
	flip(architecture.Head)
	testkit.NoError(t, "Intact before the audit", m.Intact())
	audit(4, 2, pages.ErrResidency)
	if err := m.Intact(); !errors.Is(err, pages.ErrResidency) {
		t.Errorf("Intact: %v, want an ErrResidency", err)
	}
	walk(t, d, stream(t, d), m, of, false)
	again, err := h.Hold(t.Context(), ref("m", false), of.open)
	testkit.NoError(t, "Hold of the mended model", err)
	testkit.NoError(t, "Intact", again.Intact())
	audit(4, 0)
	flip("blk.0.attn_q.bias")
	broken := io.ErrUnexpectedEOF
	of.broken.Store(&broken)
	audit(1, 1, pages.ErrResidency, broken)
	if _, err := h.Hold(t.Context(), ref("m", false), of.open); !errors.Is(err, pages.ErrResidency) {
		t.Errorf("Hold of a damaged model: %v, want an ErrResidency", err)
	}
	of.broken.Store(nil)
	audit(4, 1, pages.ErrResidency)
	walk(t, d, stream(t, d), m, of, false)
	testkit.NoError(t, "Release", errors.Join(m.Release(), again.Release()))
	unused(t, d, nil)
}

// TestUsers: users that come and go at the same time, some of whom give up, leave nothing.
func TestUsers(t *testing.T) {
	d, b := open(t), pages.NewBudget(64<<20, 0)
	h, of := weights.NewHolder(d, b), newSource(parameters(2), 6)
	var users sync.WaitGroup
	for k := range 8 {
		users.Go(func() {
			r := rand.New(rand.NewPCG(uint64(k), 7))
			for range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(4) == 0 {
					cancel()
				}
				m, err := h.Hold(ctx, ref(fmt.Sprint(r.IntN(2)), true), of.open)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("Hold: %v", err)
				}
				if m != nil {
					_, _, aerr := h.Audit(t.Context(), false)
					testkit.NoError(t, "Audit and Release", errors.Join(aerr, m.Intact(), m.Release()))
				}
				cancel()
			}
		})
	}
	users.Wait()
	unused(t, d, b)
}
