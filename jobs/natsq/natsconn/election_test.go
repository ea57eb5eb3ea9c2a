package natsconn

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestElections: a try that waits for a leader that is gone ends with the election, and the call
// continues with the next leader.
func TestElections(t *testing.T) {
	c := &Conn{elected: &elections{}, refused: newViolations(nil), Patience: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked, tries := make(chan int), 0
	done := make(chan error, 1)
	go func() {
		done <- c.retryIn(ctx, "ask", shortPause, func(time.Duration) time.Duration { return time.Hour },
			func(ctx context.Context) error {
				return c.elected.try(ctx, func(ctx context.Context) error {
					if tries++; tries == 3 {
						return nil
					}
					asked <- tries
					<-ctx.Done() // no answer
					return ctx.Err()
				})
			})
	}()
	for want := range 2 {
		select {
		case n := <-asked:
			if n != want+1 {
				t.Fatalf("try %d, want %d", n, want+1)
			}
		case <-ctx.Done():
			t.Fatal("it does not try again")
		}
		c.elected.onElection()
	}
	if err := <-done; err != nil || tries != 3 {
		t.Fatalf("%d tries, %v", tries, err)
	}
	// A try that has an answer keeps it, and a try whose caller gives up returns that cause.
	boom := errors.New("boom")
	if err := c.elected.try(ctx, func(context.Context) error { return boom }); !errors.Is(err, boom) ||
		IsTransient(err) {
		t.Error(err)
	}
	if err := c.elected.try(ctx, func(context.Context) error { c.elected.onElection(); return nil }); err != nil {
		t.Error(err)
	}
	gone, end := context.WithCancel(ctx)
	if err := c.elected.try(gone, func(ctx context.Context) error {
		end()
		<-ctx.Done()
		return ctx.Err()
	}); errors.Is(err, errElected) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
