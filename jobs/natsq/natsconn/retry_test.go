package natsconn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestNoSpace: a call to a server without space waits, reports that once, and ends with the reason.
// After a successful call the next wait is reported again.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	told := 0
	c, err := Open(t.Context(), Options{InProcess: started(t), NoSpace: func() { told++ }, Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.NC.Close)
	full := func(context.Context) error { return &jetstream.APIError{ErrorCode: errCodeAccountFull} }
	began := time.Now()
	err = c.RetryIdempotent(t.Context(), "trim log", 1, full)
	if !errors.Is(err, jobs.ErrFull) || !errors.Is(err, jobs.ErrUnavailable) || jobs.RetryAfter(err) <= 0 ||
		!IsNoSpace(err) || !strings.Contains(err.Error(), "free some of it") {
		t.Errorf("a call without space: %v", err)
	}
	if took := time.Since(began); took < spaceNotice || told != 1 {
		t.Errorf("told %d times in %v, want once after %v", told, took, spaceNotice)
	}
	until := time.Now().Add(spaceNotice + 200*time.Millisecond)
	wait := func(ctx context.Context) error {
		if time.Now().Before(until) {
			return full(ctx)
		}
		return nil
	}
	if err := c.RetryIdempotent(t.Context(), "trim log", 1, wait); err != nil || told != 1 {
		t.Errorf("a call that got space: %v, told %d times, want 1", err, told)
	}
	until = time.Now().Add(spaceNotice + 200*time.Millisecond)
	if err := c.RetryIdempotent(t.Context(), "trim log", 1, wait); err != nil || told != 2 {
		t.Errorf("a later call: %v, told %d times, want 2", err, told)
	}
}
