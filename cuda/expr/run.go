package expr

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Options are options of Compile.
type Options struct {
	// Unfused makes a kernel for each operation: what the benefit of fusion is measured against.
	Unfused bool
	// Fast lets the compiler fuse multiplications and additions. Results then differ between
	// devices.
	Fast bool
	// Rows is the length that the plan is made for; 0: 16 million. Any length can be run.
	Rows int64
	// Model has the rates of the device; nil: the rates of an H200. Compile copies it.
	Model *plan.Model
}

// Compiled is a program for one device. Its methods may be called from several goroutines. It holds
// kernels of the device, which end with the device, and nothing to close.
type Compiled struct {
	p       *Program
	dev     device.Device
	plan    *plan.Plan // nil: the host interprets
	kernels map[string]device.Kernel
}

// Compile plans and compiles a program for a device. On a device that compiles nothing, the cores
// of the host interpret it. Errors of the program are ErrType, and ErrLimit if an operation has no
// kernel; errors of the compiler of the device keep their classes.
//
// If a kernel needs more registers than a thread has, the program is planned again with at most
// half of its operations in a kernel, until none does or no smaller kernels are possible.
func Compile(dev device.Device, p *Program, o Options) (*Compiled, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	m := plan.Default
	if o.Model != nil {
		m = *o.Model
	}
	if o.Rows <= 0 {
		o.Rows = 1 << 24
	}
	lengths := make([]int64, len(p.g.Symbols))
	for s := range lengths {
		lengths[s] = p.g.Symbols[s].Fixed
	}
	lengths[ir.FreeLength] = o.Rows
	var before *Compiled
	for most := plan.MaxInside; ; {
		l, err := plan.New(&p.g, m, lengths, o.Unfused, most)
		if err != nil && before != nil {
			return before, nil // no smaller kernels are possible: kernels that spill are right, too
		}
		if err != nil {
			return nil, fmt.Errorf("expr: %w: %w", err, ErrLimit)
		}
		c := &Compiled{p: p, dev: dev, plan: l, kernels: map[string]device.Kernel{}}
		for _, t := range l.Parts {
			t.Source, t.Shape = codegen.Source(l, t, sharedMemory(dev.Properties()))
		}
		spilled, err := c.loadAll(o.Fast)
		if errors.Is(err, device.ErrNotSupported) {
			return &Compiled{p: p, dev: dev}, nil
		}
		if err != nil {
			return nil, err
		}
		if spilled < 2 || o.Unfused {
			return c, nil
		}
		before = c
		most = (spilled + 1) / 2 // registers do not suffice: plan again with smaller kernels
	}
}

// sharedMemory returns the bytes of shared memory that a block may have on a chip, without the
// kernel's own variables. A device that is no GPU has the maximum.
func sharedMemory(p device.Properties) int {
	most := map[[2]int]int{
		{7, 0}: 96, {7, 2}: 96, {7, 5}: 64, {8, 0}: 163, {8, 6}: 99, {8, 7}: 163, {8, 9}: 99, {9, 0}: 227, {10, 0}: 227,
	}
	kib, known := most[[2]int{p.ComputeMajor, p.ComputeMinor}]
	switch {
	case p.ComputeMajor == 0:
		kib = 227
	case !known:
		kib = 64
	}
	return kib<<10 - 2<<10
}

// maxSpilled is the maximum of bytes of a thread that a kernel may spill to memory. A few cost less
// than another kernel.
const maxSpilled = 64

// loadAll compiles the kernels of all parts, at the same time: a compiler takes 0.1 to 0.5 s for
// each. It returns the operations of the largest kernel that keeps values in memory for lack of
// registers, 0 if none does. The error is the error of the first part that failed.
func (c *Compiled) loadAll(fast bool) (spilled int, err error) {
	compile := c.dev.CompileExact
	if fast {
		compile = c.dev.Compile
	}
	parts := c.plan.Parts
	loaded, errs := make([]device.Kernel, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	slots := make(chan struct{}, max(runtime.GOMAXPROCS(0), 1))
	for i, t := range parts {
		if t.Source == "" {
			continue
		}
		name := named(t.Source)
		t.Source = strings.ReplaceAll(t.Source, t.Name, name)
		t.Name = name
		slots <- struct{}{}
		all.Go(func() {
			loaded[i], errs[i] = compile(name, t.Source)
			<-slots
		})
	}
	all.Wait()
	for i, t := range parts {
		if errs[i] != nil {
			return 0, fmt.Errorf("expr: kernel of %v: %w", t.Roots[0], errs[i])
		}
		if loaded[i] == nil {
			continue
		}
		c.kernels[t.Name] = loaded[i]
		if u, known := loaded[i].(interface{ Registers() (used, spilled int) }); known && len(t.Inside) > 1 {
			if _, bytes := u.Registers(); bytes > maxSpilled {
				spilled = max(spilled, len(t.Inside))
			}
		}
	}
	return spilled, nil
}

func named(source string) string {
	digest := sha256.Sum256([]byte(source))
	return "expr_" + hex.EncodeToString(digest[:8])
}

// compileNamed compiles a text exactly, with the name that its digest gives it in place of another.
func compileNamed(dev device.Device, name, source string) (device.Kernel, error) {
	unique := named(source)
	return dev.CompileExact(unique, strings.ReplaceAll(source, name, unique))
}

// Interpreted reports whether the cores of the host execute the program.
func (c *Compiled) Interpreted() bool { return c.plan == nil }

// Kernels returns the number of launches of a run without filters, 0 for an interpreted program.
func (c *Compiled) Kernels() int {
	if c.plan == nil {
		return 0
	}
	return len(c.plan.Parts)
}

// Sources returns the CUDA C++ of the program's kernels by their names. The map is the caller's. It
// has none for an interpreted program and for products of the library.
func (c *Compiled) Sources() map[string]string {
	all := map[string]string{}
	if c.plan != nil {
		for _, t := range c.plan.Parts {
			if t.Source != "" {
				all[t.Name] = t.Source
			}
		}
	}
	return all
}

// Memory is an array in the memory of the device, or a scalar. It does not own the buffer.
type Memory struct {
	Buffer device.Buffer
	Off    int64 // bytes to the first element, a multiple of an element's size
	Rows   int64
	Bits   uint32 // of a scalar input
}

// Run puts an execution into a stream and returns the outputs by name. out may have memory for
// outputs, which may be memory of inputs. Run allocates the other outputs, and the caller closes
// them. Run waits only for the length of what is filtered. The results are there, and the memory of
// the inputs may change, when the stream is synced. A program without inputs of the free length
// takes it from Rows of the input "".
//
// A given output must have as much memory as its array. Memory of an input is written only after
// everything that reads the input. After an error of a launch, the outputs that Run made are
// released, and the memory of given ones has any content. Arrays that do not fit the program are
// ErrArgs.
func (c *Compiled) Run(ctx context.Context, s device.Stream, in, out map[string]Memory) (map[string]Memory, error) {
	lengths, err := c.p.lengths(func(name string) (rows, bytes int64, found bool) {
		m, found := in[name]
		if m.Buffer == nil {
			return m.Rows, math.MaxInt64, found
		}
		return m.Rows, m.Buffer.Size() - m.Off, found
	})
	if err != nil {
		return nil, err
	}
	for _, i := range c.p.g.Inputs {
		m := in[i.Name]
		if !i.Scalar && m.Buffer == nil && lengths[i.Node.Lead] > 0 {
			return nil, fmt.Errorf("expr: input %q has no memory: %w", i.Name, ErrArgs)
		}
		if m.Off < 0 || m.Off%i.Node.Type.Bytes() != 0 {
			return nil, fmt.Errorf("expr: input %q starts at byte %d, not at an element: %w", i.Name, m.Off,
				ErrArgs)
		}
	}
	r := &run{c: c, ctx: ctx, s: s, in: in, lengths: lengths, at: map[*ir.Node]Memory{}}
	if c.plan == nil {
		return r.interpret(out)
	}
	results, err := r.launch(out)
	for _, b := range r.temporary {
		err = errors.Join(err, s.Release(b))
	}
	return results, err
}

// run is one execution. One goroutine uses it, once.
type run struct {
	c         *Compiled
	ctx       context.Context //nolint:containedctx // the context of one call
	s         device.Stream
	in        map[string]Memory
	lengths   []int64             // of the symbols; lengths of filters are set when the filters have run
	at        map[*ir.Node]Memory // results of parts
	temporary []device.Buffer     // released into the stream behind the last launch
	times     []time.Duration     // of the parts, when they are measured
	measure   bool
}

func (r *run) bytes(n *ir.Node) int64 { return r.lengths[n.Lead] * n.Width * n.Type.Bytes() }

// temp returns memory that is given back behind the last launch.
func (r *run) temp(n int64) (device.Buffer, error) {
	b, err := r.s.Alloc(max(n, 64), "expression")
	if err != nil {
		return nil, fmt.Errorf("expr: %d bytes: %w", n, err)
	}
	r.temporary = append(r.temporary, b)
	return b, nil
}

// launch executes the plan, part by part. Roots that are outputs go into memory of the caller if
// target allows it, all others into new memory. After an error, outputs that it made are released.
func (r *run) launch(out map[string]Memory) (map[string]Memory, error) {
	results := map[string]Memory{}
	var own []device.Buffer
	fail := func(err error) (map[string]Memory, error) {
		for _, b := range own {
			err = errors.Join(err, r.s.Release(b))
		}
		return nil, err
	}
	for _, t := range r.c.plan.Parts {
		for _, n := range t.Roots {
			memory, o, given := r.target(n, out)
			if !given {
				b, err := r.s.Alloc(max(r.upper(n), 64), "expression")
				if err != nil {
					return fail(fmt.Errorf("expr: %d bytes: %w", r.upper(n), err))
				}
				memory = Memory{Buffer: b}
				if o == "" {
					r.temporary = append(r.temporary, b)
				} else {
					own = append(own, b)
				}
			}
			r.at[n] = memory
		}
		if err := r.part(t); err != nil {
			return fail(fmt.Errorf("expr: %v: %w", t.Roots[0], err))
		}
	}
	for _, o := range r.c.p.g.Outputs {
		m := r.at[o.Node]
		m.Rows = r.lengths[o.Node.Lead]
		if given, found := out[o.Name]; found && (given.Buffer != m.Buffer || given.Off != m.Off) {
			given.Rows = m.Rows
			n := r.bytes(o.Node)
			if n > given.Buffer.Size()-given.Off {
				return fail(fmt.Errorf("expr: output %q: %d bytes of memory, want %d: %w", o.Name,
					given.Buffer.Size()-given.Off, n, ErrArgs))
			}
			if err := r.s.Copy(given.Buffer, given.Off, m.Buffer, m.Off, n); err != nil {
				return fail(fmt.Errorf("expr: output %q: %w", o.Name, err))
			}
			m = given
		}
		results[o.Name] = m
	}
	// An output of two names is allocated only once.
	return results, nil
}

// upper is the size of a node's array, or an upper bound if its filter has not run.
func (r *run) upper(n *ir.Node) int64 {
	if n.Op == ir.OpCompact {
		return r.lengths[n.Args[1].Lead] * n.Type.Bytes()
	}
	return r.bytes(n)
}

// target returns the caller's memory for a result, and the name of the first output that it is. A
// result goes there directly unless the memory belongs to an input, too, or does not fit.
func (r *run) target(n *ir.Node, out map[string]Memory) (m Memory, name string, given bool) {
	for _, o := range r.c.p.g.Outputs {
		if o.Node != n {
			continue
		}
		m, found := out[o.Name]
		if !found {
			return Memory{}, o.Name, false
		}
		shared := m.Off < 0 || m.Off%n.Type.Bytes() != 0 || m.Buffer.Size()-m.Off < r.upper(n)
		for _, i := range r.in {
			shared = shared || i.Buffer == m.Buffer
		}
		for _, other := range out {
			shared = shared || other != m && other.Buffer == m.Buffer
		}
		return m, "", !shared
	}
	return Memory{}, "", false
}

// array returns the arguments of an array: its memory from a multiple of device.RangeAlign on, and
// the elements from there to the first.
func (r *run) array(m Memory, of ir.Type) []device.Arg {
	start := m.Off / device.RangeAlign * device.RangeAlign
	return []device.Arg{
		device.Range(m.Buffer, start,
			m.Buffer.Size()-start), device.Uint32(uint32((m.Off - start) / of.Bytes())),
	}
}

// args returns the arguments of a part in the order that codegen.Source describes, up to the
// arguments of the frame.
func (r *run) args(t *plan.Part, reads, writes []*ir.Node) ([]device.Arg, error) {
	var all []device.Arg
	for _, n := range reads {
		m := r.at[n]
		if n.Op == ir.OpInput {
			i := r.c.p.g.Inputs[n.Imm]
			m = r.in[i.Name]
			if i.Scalar {
				all = append(all, scalar(n.Type, m))
				continue
			}
		}
		if m.Buffer == nil {
			b, err := r.temp(0)
			if err != nil {
				return nil, err
			}
			m.Buffer, m.Off = b, 0
		}
		all = append(all, r.array(m, n.Type)...)
		if t.Gathers(n) {
			all = append(all, device.Uint64(uint64(r.lengths[n.Lead])))
		}
	}
	for _, n := range writes {
		all = append(all, r.array(r.at[n], n.Type)...)
	}
	for _, n := range t.Inside {
		if n.Op == ir.OpLength {
			all = append(all, device.Float32(float32(r.lengths[n.Imm])))
		}
	}
	return all, nil
}

// scalar returns the argument of a scalar input.
func scalar(t ir.Type, m Memory) device.Arg {
	switch t {
	case ir.F32:
		return device.Float32(math.Float32frombits(m.Bits))
	case ir.BF16:
		return device.Float32(device.FromBF16(uint16(m.Bits)))
	case ir.I32:
		return device.Int32(int32(m.Bits))
	case ir.U8:
		return device.Uint32(m.Bits & 0xff)
	case ir.Bool:
		return device.Uint32(min(m.Bits, 1))
	}
	return device.Uint32(m.Bits)
}

// start puts the launch of a part into the stream. The grid has one dimension.
func (r *run) start(t *plan.Part, blocks int64, args []device.Arg) error {
	if blocks > math.MaxInt32 {
		return fmt.Errorf("%d blocks: %w", blocks, ErrLimit)
	}
	g := device.Geometry{Grid: int(blocks), Block: t.Shape.Threads, Shared: t.Shape.Shared}
	return r.s.Launch(r.c.kernels[t.Name], g, args...)
}

func blocks(n, size int64) int64 { return (n + size - 1) / size }
