package command

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestSharedProfile: callers at the same time get the same CPU profile, one that leaves does not
// end it for the others, and the last one that leaves ends it.
func TestSharedProfile(t *testing.T) {
	var s sharedProfile
	gone, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	got := make([][]byte, 3)
	errs := make([]error, 3)
	for i := range got {
		ctx := t.Context()
		if i == 0 {
			ctx = gone
		}
		all.Go(func() { got[i], errs[i] = s.take(ctx, 600*time.Millisecond) })
	}
	testkit.Until(t, "all three callers", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.now != nil && s.now.waiters == 3
	})
	leave()
	all.Wait()
	if !errors.Is(errs[0], context.Canceled) {
		t.Errorf("the caller that left: %v, want %v", errs[0], context.Canceled)
	}
	if errs[1] != nil || errs[2] != nil || len(got[1]) == 0 || !bytes.Equal(got[1], got[2]) {
		t.Errorf("profiles of %d and %d bytes, %v, %v; want the same", len(got[1]), len(got[2]), errs[1], errs[2])
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.take(short, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want %v", err, context.DeadlineExceeded)
	}
	// The profile of an hour has ended with its last caller.
	testkit.Until(t, "a later profile", func() bool {
		data, err := s.take(t.Context(), 10*time.Millisecond)
		return err == nil && len(data) > 0
	})
}
