package cpuagents

import (
	"context"
	"errors"

	arrowmem "github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/internal/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

// Memory of a CPU agent, in bytes. See docs/rfcs/0023-memory-budget.md for the measurements.
const (
	// restMemory is the program itself, the runtime, the connection and the push endpoint.
	restMemory = 128 << 20
	// jobMemory is what a job takes whatever its input: 256 open sources of 192 KiB each, the batches under way, the buffers of output and
	// spool.
	jobMemory = 64 << 20
	// leastInput is what inputs need at least: the largest page of a Parquet file and its packed form.
	leastInput = 64 << 20
)

// Memory bounds what the sources of all jobs of an agent hold while they are decoded. It has two parts. Sources that are read side by side
// share the first. A source that does not fit there decodes alone, in the second, and moves what it has decoded to a temporary file before
// another one is read: see spill. A nil Memory has no limit.
//
// Which of the two a source takes changes no output: the rows and their order are the same.
type Memory struct {
	side  *memory.Budget
	alone *memory.Budget // taken as a whole
}

// NewMemory returns the memory of inputs in a process that may use limit bytes and does concurrency jobs at a time.
func NewMemory(limit int64, concurrency int) (*Memory, error) {
	inputs := HeapLimit(limit) - restMemory - int64(concurrency)*jobMemory
	if inputs < leastInput {
		least := (restMemory + leastInput + int64(concurrency)*jobMemory) / 7 * 8
		return nil, jobs.Errorf(jobs.CodeInput, "%s of memory are too few for %d jobs at a time: they need %s: raise --memory or the container's limit, or lower --concurrency",
			memory.Text(limit), concurrency, memory.Text(least+1<<20))
	}
	return &Memory{side: memory.NewBudget(inputs / 2), alone: memory.NewBudget(inputs / 2)}, nil
}

// HeapLimit returns what the heap may have of a process's memory. The rest is the program's own pages, stacks, SQLite's cache, and what the
// collector overshoots.
func HeapLimit(limit int64) int64 { return limit - limit/8 }

// hold is what one source has of the memory. One goroutine uses it. A nil hold has no limit.
type hold struct {
	of    *Memory
	name  string
	wait  func(n int64) error // takes n bytes of the memory for one source, when it is free
	bytes int64
	alone bool // bytes count in the part for one source, which is this one's until settle or release
}

// hold returns the hold of a source. ctx ends its waiting. Release it.
func (m *Memory) hold(ctx context.Context, name string) *hold {
	if m == nil {
		return nil
	}
	return &hold{of: m, name: name, wait: func(n int64) error { return m.alone.Take(ctx, n) }}
}

// grow takes n more bytes, before they are allocated. It waits where the source must decode alone; then the caller may wait for no other
// source before it has called settle or release.
func (h *hold) grow(n int64) error {
	switch {
	case h == nil || n <= 0:
		return nil
	case h.bytes+n > h.of.alone.Limit():
		return h.tooMuch(n)
	case h.alone:
	case h.of.side.Try(n):
	default:
		if err := h.wait(h.of.alone.Limit()); err != nil {
			return interrupted{err}
		}
		h.of.side.Give(h.bytes)
		h.alone = true
	}
	h.bytes += n
	return nil
}

func (h *hold) tooMuch(n int64) error {
	return overMemory{inputError("%s: reading it takes %s of memory at once, and this agent has %s for one source: write it with smaller record batches, row groups, pages or windows, or raise the agent's --memory",
		h.name, memory.Text(h.bytes+n), memory.Text(h.of.alone.Limit()))}
}

// overMemory marks the error of a source that needs more memory than there is for one.
type overMemory struct{ error }

// Unwrap returns the error.
func (o overMemory) Unwrap() error { return o.error }

// ofMemory reports whether an error says that there is too little memory, or that the wait for some has ended.
func ofMemory(err error) bool {
	var over overMemory
	var ended interrupted
	return errors.As(err, &over) || errors.As(err, &ended)
}

// keep takes n more bytes for something that stays while other sources are read; it does not wait.
func (h *hold) keep(n int64, what string) error {
	if h == nil || n <= 0 {
		return nil
	}
	if !h.of.side.Try(n) {
		return jobs.Errorf(jobs.CodeInput, "%s: %s take %s of memory and more, and this agent has %s for all sources, of which %s are in use: raise the agent's --memory, or make several jobs of it",
			h.name, what, memory.Text(h.bytes+n), memory.Text(h.of.side.Limit()), memory.Text(h.of.side.Used()))
	}
	h.bytes += n
	return nil
}

// shrink gives n bytes back.
func (h *hold) shrink(n int64) {
	if h == nil {
		return
	}
	h.bytes -= n
	if !h.alone {
		h.of.side.Give(n)
	}
}

// settle reports whether other sources may be read now: the source does not hold the memory for one, or has left it.
func (h *hold) settle() bool {
	if h == nil || !h.alone {
		return true
	}
	if !h.of.side.Try(h.bytes) {
		return false
	}
	h.of.alone.Give(h.of.alone.Limit())
	h.alone = false
	return true
}

// release gives everything back. A second call does nothing.
func (h *hold) release() {
	if h == nil {
		return
	}
	if h.alone {
		h.of.alone.Give(h.of.alone.Limit())
	} else {
		h.of.side.Give(h.bytes)
	}
	h.bytes, h.alone = 0, false
}

// metered is an allocator of the Arrow library that takes what it allocates from a hold. Where there is none it panics with the error, which
// damaged returns.
type metered struct {
	arrowmem.Allocator
	hold *hold
}

// newMetered returns the allocator of a source.
func newMetered(h *hold) metered { return metered{arrowmem.NewGoAllocator(), h} }

// Allocate implements memory.Allocator.
func (m metered) Allocate(n int) []byte {
	if err := m.hold.grow(int64(n)); err != nil {
		panic(err)
	}
	return m.Allocator.Allocate(n)
}

// Reallocate implements memory.Allocator. It may copy, so that both exist for a moment.
func (m metered) Reallocate(n int, b []byte) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	if err := m.hold.grow(int64(n)); err != nil {
		panic(err)
	}
	grown := m.Allocator.Reallocate(n, b)
	m.hold.shrink(int64(cap(b)))
	return grown
}

// Free implements memory.Allocator.
func (m metered) Free(b []byte) {
	m.hold.shrink(int64(cap(b)))
	m.Allocator.Free(b)
}
