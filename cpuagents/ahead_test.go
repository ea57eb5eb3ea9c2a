package cpuagents

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestReadAhead: decisions wait until the rows of their batch were read again, or for the end of
// the attempt.
func TestReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newExchange()
		done := make(chan error, 1)
		go func() { done <- x.awaitRead(t.Context(), 2) }()
		x.noteRead(1)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("batch 2 is there after batch 1 was read: %v", err)
		default:
		}
		x.noteRead(2)
		if err := <-done; err != nil {
			t.Errorf("batch 2: %v", err)
		}
		ended := errors.New("ended")
		ctx, end := context.WithCancelCause(t.Context())
		end(ended)
		if err := x.awaitRead(ctx, 3); !errors.Is(err, ended) {
			t.Errorf("batch 3: %v, want %v", err, ended)
		}
	})
}
