package cpuagents

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
)

// TestEntitiesAhead: decisions wait until the rows of their batch were read again, or for the end
// of the attempt.
func TestEntitiesAhead(t *testing.T) {
	s := &stream{entities: feed.NewEntities(2, nil), ahead: make(chan struct{}, 1)}
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
