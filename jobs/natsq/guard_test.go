package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/quota"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestGuard: a call that a refusal cuts off begins again. The same refusal twice, or any three, end it; a call that succeeds or fails for another
// reason is not repeated.
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
			r, tries := newRefusals(slog.New(slog.DiscardHandler)), 0
			say := func(what string) {
				r.heard(nil, nil, fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, what))
			}
			err := r.guard(t.Context(), func(ctx context.Context) error {
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
	r := newRefusals(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.guard(ctx, func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }); !errors.Is(err, context.Canceled) || errors.Is(err, jobs.ErrDenied) {
		t.Error(err)
	}
}

// TestDialErrors: what is in the way of a connection is said with its cure, and only what passes by waiting is ErrUnavailable.
func TestDialErrors(t *testing.T) {
	known := jobs.Errorf(jobs.CodeInvalid, "known")
	for name, c := range map[string]struct {
		err  error
		who  identity
		want string
		wait bool
	}{
		"known":         {err: known, want: "known"},
		"login":         {err: nats.ErrAuthorization, want: "does not let us in"},
		"expired":       {err: errors.New("nats: User Authentication Expired"), want: "does not let us in"},
		"revoked":       {err: errors.New("nats: user authentication revoked"), want: "does not let us in"},
		"somebody":      {err: nats.ErrAuthorization, who: identity{name: "ann", role: "submitter"}, want: "does not let"},
		"TLS":           {err: nats.ErrSecureConnRequired, want: "TLS"},
		"TLS unwanted":  {err: nats.ErrSecureConnWanted, want: "TLS"},
		"certificate":   {err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, want: "TLS"},
		"refused":       {err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}, want: "no NATS server answers at here", wait: true},
		"no servers":    {err: nats.ErrNoServers, want: "no NATS server answers at here", wait: true},
		"no connection": {err: nats.ErrTimeout, who: identity{name: "ann"}, want: "no NATS server answers at here", wait: true},
	} {
		err := dialError("here", c.who, c.err)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, jobs.ErrUnavailable) != c.wait {
			t.Errorf("%s: %v", name, err)
		}
		if c.who.name != "" && !c.wait && !strings.Contains(err.Error(), c.who.name) {
			t.Errorf("%s does not name the user: %v", name, err)
		}
	}
	if refusesLogin(nil) || refusesLogin(nats.ErrTimeout) {
		t.Error("a login is refused")
	}
}

// TestSlots: slots and tokens of a tenant are taken and given back once, within its limits.
func TestSlots(t *testing.T) {
	poked := 0
	q := quota.Quota{Weight: 1, Concurrency: 3}
	l := &limiter{
		quota: func(string) quota.Quota { return q }, poke: func() { poked++ }, wake: make(chan struct{}, 1), base: time.Now(),
		tenants: map[string]*tenant{}, of: map[*nats.Msg]string{},
	}
	s := wire.Source{Pool: jobs.PoolCPU, Kind: "k", Lane: jobs.Normal, Tenant: "a"}
	a := l.tenant("a")
	a.spare, a.mine, a.lowSpare = 3, 3, 3
	check := func(what string, running, spare int) {
		t.Helper()
		if a.running != running || a.spare != spare {
			t.Errorf("%s: %d running, %d spare, want %d and %d", what, a.running, a.spare, running, spare)
		}
	}
	if n := l.reserve(s, 2); n != 2 {
		t.Fatalf("reserved %d of 2", n)
	}
	check("two reserved", 2, 1)
	one, two := &nats.Msg{}, &nats.Msg{}
	l.began(s, 2, []*nats.Msg{one})
	check("one began", 1, 2)
	if n := l.reserve(s, 5); n != 2 {
		t.Fatalf("reserved %d of 5 with 2 slots", n)
	}
	l.began(s, 2, []*nats.Msg{two})
	check("two run", 2, 1)
	for range 2 { // the second time it has no slot
		l.end(one)
		check("one ended", 1, 2)
	}
	l.end(&nats.Msg{})
	check("a stranger ended", 1, 2)
	if poked != 1 {
		t.Errorf("the worker was told %d times of one slot", poked)
	}
	// A slot that the account has not, because the limit was lowered, is not spare again.
	a.mine = 2
	l.end(two)
	check("the limit was lowered", 0, 2)
	if poked != 1 {
		t.Errorf("the worker was told of a slot that it has not")
	}
	// Without a limit of concurrency nothing is counted as spare.
	q.Concurrency = 0
	a.spare = 0
	if n := l.reserve(s, 9); n != 9 {
		t.Errorf("reserved %d of 9 without a limit", n)
	}
	// An account that holds more slots than a lowered limit gives none.
	q.Concurrency, a.spare = 2, 2
	a.acc.Holders = map[string]quota.Holder{"other": {Slots: 3}}
	if n := a.free(q, 1); n != 0 {
		t.Errorf("%d slots beyond a lowered limit", n)
	}
	a.acc.Holders = map[string]quota.Holder{"other": {Slots: 2}}
	if n := a.free(q, 1); n != 1 {
		t.Errorf("%d slots of an account at its limit with 2 spare", n)
	}
	// Tokens bound what begins, whatever is spare.
	q.Rate, a.tokens = 1, 1
	if n := a.free(q, 2); n != 1 {
		t.Errorf("%d jobs with one token", n)
	}
}

// TestSwarmsAreListed: every record is listed with its id, also one that cannot be read.
func TestSwarmsAreListed(t *testing.T) {
	_, c := inside(t)
	if all, err := c.Swarms(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, id := range []string{"a", "b"} {
		if err := c.CreateSwarm(t.Context(), jobs.Swarm{Version: jobs.Version, ID: id, Name: "n", Groups: 3}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.RemoveSwarm(t.Context(), jobs.Swarm{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	all, err := c.Swarms(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "b" || all[0].Err != nil || all[0].Swarm.Groups != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}
