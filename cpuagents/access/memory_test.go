package access

import (
	"context"
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestParts: a source that does not fit with others takes the part for one source, gives it up as
// soon as its bytes fit into the shared part, and gives everything back at its release.
func TestParts(t *testing.T) {
	m := NewMemoryParts(100, 200)
	a, b := m.Hold(t.Context(), "a"), m.Hold(t.Context(), "b")
	for _, n := range []int64{60, 0, -5, 30} {
		if err := a.Grow(n); err != nil {
			t.Fatalf("Grow(%d): %v", n, err)
		}
	}
	if err := b.Grow(20); err != nil {
		t.Fatalf("Grow(20) of a second source: %v", err)
	}
	if m.Used() != 90+200 || b.Settle() {
		t.Errorf("%d bytes are used beside a source of 90 and one that decodes alone, want 290", m.Used())
	}
	a.Shrink(80)
	if !b.Settle() || m.Used() != 30 || b.Bytes() != 20 {
		t.Errorf("after Settle %d bytes are used, and %d are of the second source, want 30 and 20", m.Used(), b.Bytes())
	}
	a.Release()
	a.Release()
	b.Release()
	if m.Used() != 0 {
		t.Errorf("%d bytes are used after the release", m.Used())
	}
}

// TestGrowFails: a source that needs more than one source may have fails, and a wait ends with its
// context.
func TestGrowFails(t *testing.T) {
	m := NewMemoryParts(0, 200)
	ctx, cancel := context.WithCancelCause(t.Context())
	a, b := m.Hold(ctx, "a"), m.Hold(ctx, "b")
	var over OverLimit
	if err := a.Grow(201); !errors.As(err, &over) || !IsMemory(err) {
		t.Errorf("201 bytes of 200: %v", err)
	}
	if err := a.Grow(1); err != nil {
		t.Fatalf("a.Grow: %v, want no error", err)
	}
	cancel(jobs.ErrDrain)
	if err := b.Grow(1); !errors.Is(err, jobs.ErrDrain) || !IsMemory(err) {
		t.Errorf("a wait that ended: %v, want the cause of the context", err)
	}
	var e *jobs.Error
	if err := b.Keep(1, "its series"); !errors.As(err, &e) || e.Code != jobs.CodeInput {
		t.Errorf("Keep of a byte that is not free: %v", err)
	}
	a.Release()
}

// TestNoMemory: a nil Memory has no limit, and a limit that is too small for the jobs is an error.
func TestNoMemory(t *testing.T) {
	var m *Memory
	h := m.Hold(t.Context(), "a")
	if err := errors.Join(h.Grow(1<<60), h.Keep(1<<60, "its series")); err != nil || !h.Settle() {
		t.Errorf("a source without limit: %v", err)
	}
	h.Shrink(1)
	h.Release()
	if _, err := NewMemory(256<<20, 1); err == nil {
		t.Error("256 MiB are enough for a job")
	}
	whole, err := NewMemory(1<<30, 4)
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	if whole.Reserve(whole.Limit() - leastInput/4) {
		t.Error("Reserve left less than a job needs")
	}
	if !whole.Reserve(1) {
		t.Error("Reserve refused a byte")
	}
	whole.Unreserve(1)
	if whole.Used() != 0 {
		t.Errorf("%d bytes are used", whole.Used())
	}
}
