package natsconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
)

// A server that denies a message does not answer the request. It reports the subject on the
// connection, without the request. So this file interrupts all calls in progress and repeats them:
// without it a denied call would end by its time limit, as if the server were away.

// violations tracks what the server denies this login, and whether the connection is up.
type violations struct {
	who  identity
	gone chan struct{} // closed when the server has refused this login for good
	over chan struct{} // closed when the connection is closed, after gone if both are
	left chan struct{} // closed when the connection was down for longer than patience

	patience time.Duration // how long a broken connection may stay down; 0: for ever
	giveUp   time.Duration // the same with the time until a break is noticed, for texts
	where    string        // the server, for texts

	log   *slog.Logger
	calls interrupts

	mu   sync.Mutex
	lost time.Time   // since when the connection is down; zero while it is up
	why  error       // it went down
	gave *time.Timer // runs while the connection is down and patience is not 0
	shut bool        // the last report about the login is that it is refused

	losses  atomic.Uint64 // how often the connection was lost
	denials atomic.Uint64 // messages that the server has denied
	slow    atomic.Uint64 // other errors that the client has reported, such as a slow consumer
}

// Violation is one denied message, in the words of the server: publish to "SUBJECT".
type Violation struct{ what string }

// Error returns the words of the server.
func (v Violation) Error() string { return v.what }

func newViolations(log *slog.Logger) *violations {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &violations{log: log, gone: make(chan struct{}), over: make(chan struct{}), left: make(chan struct{})}
}

var violationText = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to ("\S+")`)

func (r *violations) onError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if refusesLogin(err) { // the client gives up when it is reported a second time
		r.mu.Lock()
		defer r.mu.Unlock()
		r.shut = true
		return
	}
	m := violationText.FindStringSubmatch(err.Error())
	if !errors.Is(err, nats.ErrPermissionViolation) || m == nil {
		// An ordered consumer whose server restarts reports ErrConsumerNotActive and is made again:
		// the log already says that the connection was lost.
		if !errors.Is(err, nats.ErrConsumerNotActive) {
			// for example a slow consumer
			r.slow.Add(1)
			r.log.Warn("the NATS client reports an error", "error", redact.Secrets(err.Error()))
		}
		return
	}
	what := "publish to " + m[2]
	if strings.EqualFold(m[1], "subscription") {
		what = "subscribe to " + m[2]
	}
	r.denials.Add(1)
	r.calls.interrupt(Violation{what})
}

// attempt returns the context of one try of a call, which ends at a violation. The caller calls end
// with the result of the try; cut reports whether the violation by ended it.
func (r *violations) attempt(ctx context.Context) (try context.Context, end func(err error) (by Violation, cut bool)) {
	try, remove := r.calls.add(ctx)
	return try, func(err error) (by Violation, cut bool) {
		cut = err != nil && ctx.Err() == nil && errors.As(context.Cause(try), &by)
		remove()
		return by, cut
	}
}

// do calls fn with a context that ends at a violation. The server does not say which of the calls
// in progress a violation belongs to, so a call that was interrupted begins again. It has failed
// with jobs.ErrDenied if the same violation interrupts it twice, or if any interrupt it three
// times: some subjects have a part that is made anew for each try.
func (r *violations) do(ctx context.Context, fn func(ctx context.Context) error) error {
	var before Violation
	for tries := 1; ; tries++ {
		try, end := r.attempt(ctx)
		err := fn(try)
		by, cut := end(err)
		switch {
		case !cut:
			return r.explain(err)
		case by == before, tries == 3:
			return r.denied(by)
		}
		before = by
	}
}

func (r *violations) denied(by Violation) error {
	return fmt.Errorf("%s may not %s: %s: %w", r.who, by.what, r.who.cure(), jobs.ErrDenied)
}

func (r *violations) explain(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		<-r.over // the client fails calls before it calls onClose
	}
	select {
	case <-r.gone:
		// The second error comes from a call in progress.
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("the NATS server does not let %s in any more: %s: %w", r.who, r.who.renewal(),
				jobs.ErrDenied)
		}
	default:
	}
	return err
}

// giveUpLater closes a broken connection after patience, unless it is up again by then. The caller
// holds mu.
func (r *violations) giveUpLater(nc *nats.Conn) {
	if r.patience == 0 || r.gave != nil || nc.IsClosed() {
		return
	}
	r.gave = time.AfterFunc(r.patience, func() {
		close(r.left)
		nc.Close()
	})
}

// lostError replaces an error by one that says that the server was lost, if it was.
func (r *violations) lostError(err error) error {
	select {
	case <-r.left:
		if err != nil {
			return fmt.Errorf("the NATS server at %s was lost and has not come back within %v: %w: %w", r.where,
				r.giveUp, errLost, jobs.ErrUnavailable)
		}
	default:
	}
	return err
}

// onClose is the client's handler of the end of a connection. The client's last error does not
// always say why, so shut decides whether the login was refused.
func (r *violations) onClose(*nats.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gave != nil {
		r.gave.Stop()
	}
	if r.shut {
		close(r.gone)
		r.calls.close(nats.ErrConnectionClosed)
	}
	close(r.over)
}

// refusesLogin reports whether an error of the client says that the server does not accept the
// login.
func refusesLogin(err error) bool {
	if err == nil {
		return false
	}
	// While a connection begins, the client hands on the server's words. Only the first of these
	// errors is a sentinel of the client then.
	words := strings.ToLower(err.Error())
	return errors.Is(err, nats.ErrAuthorization) || strings.Contains(words, "authentication expired") ||
		strings.Contains(words, "authentication revoked")
}
