package natsconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestGuard: a call that a refusal cuts off begins again. The same refusal twice, or any three, end
// it; a call that succeeds or fails for another reason is not repeated.
func TestGuard(t *testing.T) {
	other := errors.New("another reason")
	for name, c := range map[string]struct {
		refused []string // by the server during each try; "" for none
		err     error    // of the last try
		tries   int
		denied  bool
	}{
		"none":                   {refused: []string{""}, tries: 1},
		"another reason":         {refused: []string{""}, err: other, tries: 1},
		"somebody else's":        {refused: []string{"a", ""}, tries: 2},
		"the same twice":         {refused: []string{"a", "a", ""}, tries: 2, denied: true},
		"two":                    {refused: []string{"a", "b", ""}, tries: 3},
		"two, then another":      {refused: []string{"a", "b", ""}, err: other, tries: 3},
		"three":                  {refused: []string{"a", "b", "c", ""}, tries: 3, denied: true},
		"the first again":        {refused: []string{"a", "b", "a", ""}, tries: 3, denied: true},
		"refused after its end":  {refused: []string{"a then fine"}, tries: 1},
		"the same, then no more": {refused: []string{"a", "", "a"}, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, tries := newViolations(slog.New(slog.DiscardHandler)), 0
			say := func(what string) {
				r.onError(nil, nil, fmt.Errorf("%w: Permissions Violation for Publish to %q",
					nats.ErrPermissionViolation, what))
			}
			err := r.do(t.Context(), func(ctx context.Context) error {
				what := c.refused[tries]
				tries++
				switch {
				case what == "":
					return c.err
				case strings.HasSuffix(what, "then fine"):
					say("a")
					return nil
				}
				say(what)
				<-ctx.Done()
				return ctx.Err()
			})
			if tries != c.tries || errors.Is(err, jobs.ErrDenied) != c.denied || !c.denied && !errors.Is(err, c.err) {
				t.Errorf("%d tries: %v", tries, err)
			}
			if c.denied && !strings.Contains(err.Error(), "may not publish to") {
				t.Error(err)
			}
		})
	}
	// The end of the caller's own context is no refusal.
	r := newViolations(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.do(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }); !errors.Is(err,
		context.Canceled) || errors.Is(err, jobs.ErrDenied) {
		t.Error(err)
	}
}

// TestRefusals: a call that the server refuses is tried again once, fails with the subject when it
// is refused again, and three times at most.
func TestRefusals(t *testing.T) {
	r := newViolations(slog.New(slog.DiscardHandler))
	deny := func(text string) { r.onError(nil, nil, fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text)) }
	for name, c := range map[string]struct {
		said  []string // by the server, at each try
		tries int
		want  string
	}{
		"never": {nil, 1, ""}, "once": {[]string{`Permissions Violation for Publish to "a"`}, 2, ""},
		"twice": {
			[]string{`Permissions Violation for Publish to "a"`, `Permissions Violation for Publish to "a"`},
			2,
			`this login may not publish to "a"`,
		},
		"subscription": {[]string{
			`permissions violation for subscription to "b.*"`,
			`permissions violation for subscription to "b.*"`,
		}, 2, `may not subscribe to "b.*"`},
		"others": {[]string{
			`Permissions Violation for Publish to "a1"`,
			`Permissions Violation for Publish to "a2"`,
		}, 3, ""},
		"three others": {
			[]string{
				`Permissions Violation for Publish to "a1"`,
				`Permissions Violation for Publish to "a2"`, `Permissions Violation for Publish to "a3"`,
			},
			3,
			`may not publish to "a3"`,
		},
	} {
		n := 0
		err := r.do(t.Context(), func(ctx context.Context) error {
			if n++; n > len(c.said) {
				return ctx.Err()
			}
			deny(c.said[n-1])
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if n != c.tries || (err == nil) != (c.want == "") || err != nil &&
			(!errors.Is(err, jobs.ErrDenied) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %d tries, %v; want %d, %q", name, n, err, c.tries, c.want)
		}
	}
	failed := errors.New("x")
	if err := r.do(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	n := 0
	if err := r.do(ended, func(ctx context.Context) error {
		n++
		cancel()
		deny(`Permissions Violation for Publish to "a"`)
		<-ctx.Done()
		return ctx.Err()
	}); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("a call that has ended: %d tries, %v", n, err)
	}
	if r.onError(nil, nil, nats.ErrAuthorization); !r.shut {
		t.Error("a refused login is not kept")
	}
	r.onClose(nil)
	if err := r.explain(nats.ErrConnectionClosed); !errors.Is(err, jobs.ErrDenied) ||
		!strings.Contains(err.Error(), "does not let this login in any more") {
		t.Error(err)
	}
	if err := r.explain(failed); !errors.Is(err, failed) {
		t.Error(err)
	}
	open := newViolations(nil)
	open.onClose(nil)
	if err := open.explain(nats.ErrConnectionClosed); !errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, jobs.ErrDenied) {
		t.Error(err)
	}
	if err := open.lostError(failed); !errors.Is(err, failed) {
		t.Error(err)
	}
	close(open.left)
	if err := open.lostError(failed); !errors.Is(err, errLost) || !errors.Is(err, jobs.ErrUnavailable) {
		t.Error(err)
	}
	if err := open.lostError(nil); err != nil {
		t.Error(err)
	}
}
