package cpuagents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
)

// TestEntitiesAhead: decisions wait until the rows of their batch were read again, or for the end
// of the attempt.
func TestEntitiesAhead(t *testing.T) {
	s := &stream{entities: newEntities(2, nil), ahead: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() { done <- s.awaitEntities(t.Context(), 2) }()
	s.reached(1)
	select {
	case err := <-done:
		t.Fatalf("batch 2 is there after batch 1 was read: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	s.reached(2)
	if err := <-done; err != nil {
		t.Errorf("batch 2: %v", err)
	}
	ended := errors.New("ended")
	ctx, end := context.WithCancelCause(t.Context())
	end(ended)
	if err := s.awaitEntities(ctx, 3); !errors.Is(err, ended) {
		t.Errorf("batch 3: %v, want %v", err, ended)
	}
}

// TestEntities: keys have groups in the order of their first rows, up to the bound, and their memory
// is that of the inputs.
func TestEntities(t *testing.T) {
	e := newEntities(2, nil)
	for _, c := range []struct {
		key         string
		group       int
		isNew, full bool
	}{{"b", 0, true, false}, {"a", 1, true, false}, {"b", 0, false, false}, {"c", 0, false, true}} {
		group, isNew, full, err := e.add(c.key)
		if group != c.group || isNew != c.isNew || full != c.full || err != nil {
			t.Errorf("%s: group %d, new %v, full %v, %v", c.key, group, isNew, full, err)
		}
	}
	if key, ok := e.Key(1); key != "a" || !ok || e.len() != 2 {
		t.Errorf("group 1 is %q of %d", key, e.len())
	}
	if _, ok := e.Key(2); ok {
		t.Error("there is a group 2")
	}
	memory := inputmem.WithParts(1<<20, 1<<20)
	small := newEntities(1<<20, memory.Hold(t.Context(), "job"))
	for n := 0; ; n++ {
		if _, _, _, err := small.add(strings.Repeat("k", 1000) + string(rune(n))); err != nil {
			if n < 300 || n > 500 || !inputmem.IsMemory(err) && !strings.Contains(err.Error(), "entities") {
				t.Errorf("after %d entities: %v", n, err)
			}
			return
		}
		if n > 1000 {
			t.Fatal("a thousand keys fit into a megabyte")
		}
	}
}
