package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var errTest = errors.New("it failed")

// TestDo: a call is repeated until it succeeds, fails for good, or has no tries left.
func TestDo(t *testing.T) {
	exhausted := errors.New("exhausted")
	for name, c := range map[string]struct {
		policy Policy
		errs   []error // of the calls; nil after them
		calls  int
		want   error
	}{
		"at once":        {Policy{Tries: 3}, nil, 1, nil},
		"the third time": {Policy{Tries: 3}, []error{errTest, errTest}, 3, nil},
		"never":          {Policy{Tries: 3}, []error{errTest, errTest, errTest, errTest}, 3, errTest},
		"marked": {
			Policy{Tries: 2, Exhausted: func(err error) error { return errors.Join(exhausted, err) }},
			[]error{errTest, errTest},
			2, exhausted,
		},
		"for good":   {Policy{Tries: 3}, []error{errTest, Permanent(exhausted)}, 2, exhausted},
		"wrapped":    {Policy{Tries: 3}, []error{fmt.Errorf("get: %w", Permanent(exhausted))}, 1, exhausted},
		"zero value": {Policy{}, []error{errTest}, 1, errTest},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			err := c.policy.Do(t.Context(), func() (time.Duration, error) {
				if calls++; calls > len(c.errs) {
					return 0, nil
				}
				return 0, c.errs[calls-1]
			})
			if calls != c.calls || !errors.Is(err, c.want) || IsPermanent(err) {
				t.Errorf("%d calls and %v, want %d and %v", calls, err, c.calls, c.want)
			}
		})
	}
}

// TestPauses: the pause doubles from Base to MaxPause, with jitter, is at least what the call asks
// for, and ends with the context.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		p := Policy{Tries: 12, Base: time.Second}
		if err := p.Do(t.Context(), func() (time.Duration, error) {
			at = append(at, time.Now())
			if len(at) == 2 {
				return 10 * time.Second, errTest
			}
			return 0, errTest
		}); !errors.Is(err, errTest) {
			t.Fatal(err)
		}
		for i := range at[1:] {
			got, want := at[i+1].Sub(at[i]), min(time.Second<<i, MaxPause)
			low, high := want/2, min(want+want/2, MaxPause)
			if i == 1 {
				low, high = 10*time.Second, 10*time.Second
			}
			if got < low || got > high {
				t.Errorf("pause %d is %v, want %v to %v", i+1, got, low, high)
			}
		}
		begun := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errTest) })
		calls := 0
		err := Policy{Tries: 9, Base: time.Hour}.Do(ctx,
			func() (time.Duration, error) { calls++; return time.Hour, errors.New("busy") })
		if err != errTest || calls != 1 || time.Since(begun) != time.Second { //nolint:errorlint // the cause itself
			t.Errorf("%d calls and %v after %v, want the cause of the context after a second", calls, err,
				time.Since(begun))
		}
		if err := (Policy{Tries: 9}).Do(ctx, func() (time.Duration, error) {
			return 0,
				Permanent(errors.New("bad"))
		}); err != errTest { //nolint:errorlint // the cause itself
			t.Errorf("after the end of the context: %v", err)
		}
		if err := Sleep(ctx, 0); err != nil {
			t.Errorf("no pause: %v", err)
		}
	})
}
