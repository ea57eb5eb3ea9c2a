package state

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs"
)

// run computes a job on the device, or on the host if the device compiles nothing.
func (c *computer) run(ctx context.Context, j *job) ([]expr.Partial, error) {
	if j.group && j.from == j.to {
		return nil, nil
	}
	k, err := c.kernel(j)
	if errors.Is(err, device.ErrNotSupported) {
		return c.onHost(ctx, j)
	}
	if err != nil {
		return nil, err
	}
	results, err := c.onDevice(ctx, j, k)
	if errors.Is(err, device.ErrOutOfMemory) {
		return nil, jobs.Errorf(
			jobs.CodeDevice,
			"compute: the device has no memory for the sums: use fewer outputs, or "+
				"try again when it has less to do",
		)
	}
	return results, err
}

// kernel returns the kernel of a job, which it compiles for the first one of a text.
func (c *computer) kernel(j *job) (device.Kernel, error) {
	key := kernelKey{j.text, j.votes, j.group}
	if k := c.kernels[key]; k != nil {
		return k, nil
	}
	k, err := j.f.PageKernel(c.s.Device, c.layout, j.votes, j.group)
	if errors.Is(err, device.ErrNotSupported) {
		return nil, err
	}
	if source := (*device.SourceError)(nil); errors.As(err, &source) {
		return nil, jobs.Errorf(jobs.CodeInternal, "compute: its kernel was not compiled: %v", err)
	}
	if err != nil {
		return nil, gpubatch.Mark(err)
	}
	if len(c.kernels) >= maxKernels {
		clear(c.kernels)
	}
	c.kernels[key] = k
	return k, nil
}

func (c *computer) grow(b *device.Buffer, n int64) error {
	if *b != nil && (*b).Size() >= n {
		return nil
	}
	if *b != nil {
		if err := (*b).Close(); err != nil {
			return gpubatch.Mark(err)
		}
		*b = nil
	}
	fresh, err := c.s.Device.Alloc(n, "computation")
	if err != nil {
		return fmt.Errorf("computation: %d bytes: %w", n, err)
	}
	*b = fresh
	return nil
}

// prepare makes the stream and the memory of a job with a number of sets of pages.
func (c *computer) prepare(j *job, sets int) (words int, err error) {
	first, end := j.pages()
	results := max(j.votes, 1) * len(j.f.All)
	words = results * 2 * expr.PageBlocks
	if j.group {
		words = (j.to - j.from) * len(j.f.All) * 2
	}
	if c.stream == nil {
		if c.stream, err = c.s.Device.NewStream(); err != nil {
			return 0, gpubatch.Mark(err)
		}
	}
	if c.out == nil || c.out.Size() < int64(8*words) {
		if c.out != nil {
			if err := c.out.Close(); err != nil {
				return 0, gpubatch.Mark(err)
			}
			c.out = nil
		}
		if c.out, err = c.s.Device.AllocHost(int64(8*words), "computation"); err != nil {
			return 0, fmt.Errorf("computation: %d bytes of host memory: %w", 8*words, err)
		}
	}
	state := int64(8)
	if !j.group && sets > 1 {
		state = int64(results) * 16 * expr.PageBlocks * blockThreads
	}
	if err := c.grow(&c.state, state); err != nil {
		return 0, err
	}
	had := c.frames
	if err := c.grow(&c.frames, int64(4*max(end-first, 1))); err != nil {
		return 0, err
	}
	if c.frames != had {
		c.sent = nil
	}
	return words, nil
}

const blockThreads = 256

// onDevice computes a job by launches over the sets of pages. The sets come in the order of their
// pages, which the order of sums depends on.
func (c *computer) onDevice(ctx context.Context, j *job, k device.Kernel) ([]expr.Partial, error) {
	m := c.s.Memory
	m.Forward()
	first, end := j.pages()
	var sets []pages.Set
	for _, s := range m.All() {
		if int(s.Pages[len(s.Pages)-1]) >= first && int(s.Pages[0]) < end {
			sets = append(sets, s)
		}
	}
	words, err := c.prepare(j, len(sets))
	if err != nil {
		return nil, err
	}
	if err := m.Each(ctx, sets, pages.SweepRead, func(i int) error {
		s := sets[i].Pages
		from, to := max(int(s[0]), first), min(int(s[len(s)-1])+1, end)
		return gpubatch.Mark(c.launch(context.WithoutCancel(ctx), j, k, from, to, i == 0, i == len(sets)-1))
	}); err != nil {
		return nil, err
	}
	out := device.Of[uint64](c.out.Bytes())[:words]
	if !j.group {
		return j.f.FoldBlocks(out), nil
	}
	results := make([]expr.Partial, words/2)
	for i := range results {
		results[i] = expr.Partial{N: out[2*i], Bits: out[2*i+1]}
	}
	return results, nil
}

// launch folds the pages from number from to to-1, which are on the device, and waits for it.
func (c *computer) launch(ctx context.Context, j *job, k device.Kernel, from, to int, begin, finish bool) error {
	m := c.s.Memory
	frames := make([]uint32, to-from)
	made := m.Made()
	for i := range frames {
		if frames[i] = expr.PageAbsent; made[from+i] {
			frames[i] = m.Frame(from + i)
		}
	}
	if !slices.Equal(frames, c.sent) {
		c.sent = nil
		if err := c.frames.Write(0, device.Bytes(frames)); err != nil {
			return err
		}
		c.sent = frames
	}
	p, q, blocks, at := uint32(0), uint32(0), expr.PageBlocks, int64(0)
	if j.group {
		slots := c.s.Layout.Slots
		lo, hi := max(j.from, from*slots), min(j.to, to*slots)
		p, q = uint32(lo), uint32(hi-lo)
		each := blockThreads / expr.PageThreads(c.s.Layout.Agents)
		blocks = (hi - lo + each - 1) / each
		at = int64(lo-j.from) * int64(len(j.f.All)) * 16
	} else {
		if !begin {
			p |= expr.PageResume
		}
		if finish {
			p |= expr.PageFinish
		}
	}
	if err := c.stream.Launch(
		k, device.Geometry{Grid: blocks, Block: blockThreads}, device.Ptr(m.Arena()), device.Ptr(c.frames),
		device.Ptr(c.state), device.Mapped(c.out, at, c.out.Size()-at), device.Uint32(uint32(from)),
		device.Uint32(uint32(to-from)), device.Uint32(uint32(c.s.Groups)), device.Uint32(uint32(c.s.First)),
		device.Uint32(p), device.Uint32(q),
	); err != nil {
		return err
	}
	return c.stream.Sync(ctx)
}
