package access

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
)

// Memory of a CPU agent, in bytes. See docs/rfcs/archive/0023-memory-budget.md for the
// measurements.
const (
	// restMemory is used by the program itself, the runtime, the connection and the push endpoint.
	restMemory = 128 << 20
	// jobMemory is used by a job whatever its input: 256 open sources of 192 KiB each, the batches
	// in progress, the buffers of output and spool.
	jobMemory = 64 << 20
	// leastInput is the least that inputs need: the largest page of a Parquet file and its packed
	// form.
	leastInput = 64 << 20
)

// Memory bounds what the sources of all jobs of an agent hold while they are decoded. It has two
// parts. Sources that are read at the same time share the first part. A source that does not fit
// there takes the second part as a whole: it decodes alone, and moves its rows to a temporary file
// before another source may have that part.
//
// The part that a source takes changes no output: the rows and their order are the same. A nil
// Memory has no limit. The methods may be called concurrently.
type Memory struct {
	side  *memory.Budget
	alone *memory.Budget // taken as a whole
}

// NewMemory returns the memory of inputs in a process that may use limit bytes and runs up to
// concurrency jobs at a time. A limit that is too small for the jobs is an error of class
// jobs.CodeInput.
func NewMemory(limit int64, concurrency int) (*Memory, error) {
	inputs := HeapLimit(limit) - restMemory - int64(concurrency)*jobMemory
	if inputs < leastInput {
		least := (restMemory + leastInput + int64(concurrency)*jobMemory) / 7 * 8
		return nil, jobs.Errorf(
			jobs.CodeInput,
			"%s of memory are too few for %d jobs at a time: they need %s: raise --memory or the container's limit, "+
				"or lower --concurrency",
			memory.Text(limit), concurrency, memory.Text(least+1<<20),
		)
	}
	return NewMemoryParts(inputs/2, inputs/2), nil
}

// NewMemoryParts returns a Memory with parts of the given sizes in bytes: side is shared, alone is
// for one source at a time.
func NewMemoryParts(side, alone int64) *Memory {
	return &Memory{side: memory.NewBudget(side), alone: memory.NewBudget(alone)}
}

// HeapLimit returns the bytes that the heap may have of a process's memory. The rest is for the
// program's own pages, stacks, SQLite's cache, and what the collector overshoots.
func HeapLimit(limit int64) int64 { return limit - limit/8 }

// Limit returns the bytes of the shared part.
func (m *Memory) Limit() int64 { return m.side.Limit() }

// Used returns the bytes of both parts that are in use.
func (m *Memory) Used() int64 { return m.side.Used() + m.alone.Used() }

// Reserve takes n bytes of the shared part for a purpose other than sources, and reports whether
// they were free. It fails too when less than half of the least input would be left, since no job
// could run then.
func (m *Memory) Reserve(n int64) bool {
	return m.side.Limit()-n >= leastInput/2 && m.side.Try(n)
}

// Unreserve gives back n bytes that Reserve took.
func (m *Memory) Unreserve(n int64) { m.side.Give(n) }

// Hold counts the bytes that one source has of a Memory. One goroutine uses it. A nil hold has no
// limit.
type Hold struct {
	of    *Memory
	name  string              // of the source, for messages
	wait  func(n int64) error // takes n bytes of the part for one source, when they are free
	bytes int64
	alone bool // the source has the part for one source, until settle or release
}

// Hold returns the hold of a source, which name names in messages. The end of ctx ends its waiting.
// The caller releases it.
func (m *Memory) Hold(ctx context.Context, name string) *Hold {
	if m == nil {
		return nil
	}
	return &Hold{of: m, name: name, wait: func(n int64) error { return m.alone.Take(ctx, n) }}
}

// Bytes returns the bytes that the source has.
func (h *Hold) Bytes() int64 { return h.bytes }

// Name returns the name of the source.
func (h *Hold) Name() string { return h.name }

// Grow takes n more bytes. The caller calls it before it allocates. If the shared part is full,
// grow waits for the part for one source; then the caller must not wait for another source before
// it has called settle or release. A wait that ends with the context gives an error marked
// interrupted, and more than one source may have gives overMemory.
func (h *Hold) Grow(n int64) error {
	switch {
	case h == nil || n <= 0:
		return nil
	case h.bytes+n > h.of.alone.Limit():
		return h.tooMuch(n)
	case h.alone:
	case h.of.side.Try(n):
	default:
		if err := h.wait(h.of.alone.Limit()); err != nil {
			return Interrupt(err)
		}
		h.of.side.Give(h.bytes)
		h.alone = true
	}
	h.bytes += n
	return nil
}

func (h *Hold) tooMuch(n int64) error {
	return OverLimit{InputError("%s: reading it takes %s of memory at once, and this agent has %s for one source: "+
		"write it with smaller record batches, row groups, pages or windows, or raise the agent's --memory",
		h.name, memory.Text(h.bytes+n), memory.Text(h.of.alone.Limit()))}
}

// OverLimit marks the error of a source that needs more memory than one source may have.
type OverLimit struct{ error }

// Unwrap returns the error.
func (o OverLimit) Unwrap() error { return o.error }

// IsMemory reports whether an error is one of grow: too little memory, or an interrupted wait for
// some.
func IsMemory(err error) bool {
	var over OverLimit
	var ended Interrupted
	return errors.As(err, &over) || errors.As(err, &ended)
}

// Keep takes n more bytes of the shared part, for something that stays while other sources are
// read. It does not wait. The parameter what names the thing in the error.
func (h *Hold) Keep(n int64, what string) error {
	if h == nil || n <= 0 {
		return nil
	}
	if !h.of.side.Try(n) {
		return jobs.Errorf(
			jobs.CodeInput,
			"%s: %s take %s of memory and more, and this agent has %s for all sources, and %s of it are in use: "+
				"raise the agent's --memory, or make several jobs of it",
			h.name,
			what,
			memory.Text(h.bytes+n),
			memory.Text(h.of.side.Limit()),
			memory.Text(h.of.side.Used()),
		)
	}
	h.bytes += n
	return nil
}

// Shrink gives n bytes back.
func (h *Hold) Shrink(n int64) {
	if h == nil {
		return
	}
	h.bytes -= n
	if !h.alone {
		h.of.side.Give(n)
	}
}

// Settle reports whether other sources may be read now. It returns false while the source has the
// part for one source and its bytes do not fit into the shared part.
func (h *Hold) Settle() bool {
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

// Release gives everything back. A second call does nothing.
func (h *Hold) Release() {
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
