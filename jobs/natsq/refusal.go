package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/internal/redact"
	"github.com/exoswarm/exoswarm/jobs"
)

// A server that refuses a message does not answer the request; it says on the connection which subject it was. Without this file a call that
// is not allowed would end by its time limit, with a sentence about a server that is away.

// refusals tells calls what the server refuses.
type refusals struct {
	who  identity
	gone chan struct{} // closed when the server has shut this user out for good
	over chan struct{} // closed when the connection is, and gone, if that is to be, before
	left chan struct{} // closed when it has been away for longer than patience

	patience time.Duration // after it is known to be broken
	giveUp   time.Duration // for people
	where    string        // the server, for people

	log *slog.Logger

	mu   sync.Mutex
	lost time.Time       // since when the connection is broken; zero while it is good
	why  error           // it broke
	gave *time.Timer     // gives up, unless the server comes back before
	shut bool            // the last thing heard of the login is that it is refused
	next context.Context // ends with the next refusal as its cause
	end  context.CancelCauseFunc
}

// refusal is one message that was refused.
type refusal struct{ what string } // as the server says it: Publish to "SUBJECT"

func (r refusal) Error() string { return r.what }

func newRefusals(log *slog.Logger) *refusals {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &refusals{log: log, gone: make(chan struct{}), over: make(chan struct{}), left: make(chan struct{})}
	r.next, r.end = context.WithCancelCause(context.Background())
	return r
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to ("\S+")`)

// heard takes an error of the connection; it is the client's error handler.
func (r *refusals) heard(_ *nats.Conn, _ *nats.Subscription, err error) {
	if refusesLogin(err) { // when it is said again the client gives up
		r.mu.Lock()
		defer r.mu.Unlock()
		r.shut = true
		return
	}
	m := violation.FindStringSubmatch(err.Error())
	if !errors.Is(err, nats.ErrPermissionViolation) || m == nil {
		// An ordered consumer whose server restarts reports ErrConsumerNotActive and makes itself anew: no news beside the lost connection.
		if !errors.Is(err, nats.ErrConsumerNotActive) {
			r.log.Warn("the NATS client reports an error", "error", redact.Secrets(err.Error())) // such as a subscription whose messages come too fast
		}
		return
	}
	what := "publish to " + m[2]
	if strings.EqualFold(m[1], "subscription") {
		what = "subscribe to " + m[2]
	}
	r.mu.Lock()
	end := r.end
	r.next, r.end = context.WithCancelCause(context.Background())
	r.mu.Unlock()
	end(refusal{what})
}

// attempt is one try of a call that ends at a refusal.
type attempt struct {
	ctx  context.Context // of the try
	of   context.Context // of the call
	stop func()
}

func (r *refusals) attempt(ctx context.Context) attempt {
	r.mu.Lock()
	next := r.next
	r.mu.Unlock()
	try, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(next, func() { cancel(context.Cause(next)) })
	return attempt{try, ctx, func() { stop(); cancel(nil) }}
}

// end says which refusal cut the try off, if one did.
func (a attempt) end(err error) (by refusal, cut bool) {
	cut = err != nil && a.of.Err() == nil && errors.As(context.Cause(a.ctx), &by)
	a.stop()
	return by, cut
}

// guard calls fn with a context that ends at a refusal. Which of several calls under way it belongs to the server does not say, so a call
// that was cut off begins again, and one that is cut off by the same refusal once more has failed by it: jobs.ErrDenied. So has one that is
// cut off a third time, because the subjects of some have a part that is made anew each time.
func (r *refusals) guard(ctx context.Context, fn func(ctx context.Context) error) error {
	var before refusal
	for tries := 1; ; tries++ {
		a := r.attempt(ctx)
		err := fn(a.ctx)
		by, cut := a.end(err)
		switch {
		case !cut:
			return r.explain(err)
		case by == before, tries == 3:
			return r.denied(by)
		}
		before = by
	}
}

func (r *refusals) denied(by refusal) error {
	return fmt.Errorf("%s may not %s: %s: %w", r.who, by.what, r.who.cure(), jobs.ErrDenied)
}

// explain says why a connection is closed, if it was the server that did.
func (r *refusals) explain(err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		<-r.over // the client says that it is closed after it tells those who wait
	}
	select {
	case <-r.gone:
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, context.Canceled) { // the latter of a call that was under way
			return fmt.Errorf("the NATS server does not let %s in any more: %s: %w", r.who, r.who.renewal(), jobs.ErrDenied)
		}
	default:
	}
	return err
}

// giveUpLater ends a broken connection for good after patience, unless it is back by then. It must be called with mu held.
func (r *refusals) giveUpLater(nc *nats.Conn) {
	if r.patience == 0 || r.gave != nil || nc.IsClosed() {
		return
	}
	r.gave = time.AfterFunc(r.patience, func() {
		close(r.left)
		nc.Close()
	})
}

// errLost is what is to be done about a server that was lost.
var errLost = errors.New("start it again, or wait longer for it with --patience")

func (r *refusals) lostError(err error) error {
	select {
	case <-r.left:
		if err != nil {
			return fmt.Errorf("the NATS server at %s was lost and has not come back within %v: %w: %w", r.where, r.giveUp, errLost, jobs.ErrUnavailable)
		}
	default:
	}
	return err
}

// closed is the client's handler of the end of a connection. Its last error does not always say why: it may be in the server's words.
func (r *refusals) closed(*nats.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gave != nil {
		r.gave.Stop()
	}
	if r.shut {
		close(r.gone)
		r.end(nats.ErrConnectionClosed)
	}
	close(r.over)
}

func refusesLogin(err error) bool {
	if err == nil {
		return false
	}
	// What is said while a connection begins the client hands on as the server's words, which are its own errors for the first of these only.
	words := strings.ToLower(err.Error())
	return errors.Is(err, nats.ErrAuthorization) || strings.Contains(words, "authentication expired") || strings.Contains(words, "authentication revoked")
}
