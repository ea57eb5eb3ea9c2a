package natsconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
)

// Puller asks consumers for messages. The client's own Fetch subscribes in every call; a Puller
// keeps its subscriptions, which saves two protocol messages per call. Its methods may be called
// from several goroutines.
type Puller struct {
	nc    *nats.Conn
	timed PullTimed

	mu     sync.Mutex
	idle   []*nats.Subscription // of calls that have ended
	closed bool
}

// PullTimed begins to measure a request for the messages that a consumer has now. answered is
// called with its error. It may be called from several goroutines.
type PullTimed func() (answered func(err error))

// NewPuller returns a puller over a connection, which stays the caller's. The caller closes the
// puller. A nil timed measures nothing.
func NewPuller(nc *nats.Conn, timed PullTimed) *Puller { return &Puller{nc: nc, timed: timed} }

// pullPatience is how long a call waits for the server. A consumer with too many unacknowledged
// messages does not answer at all, so such a call takes this long.
const pullPatience = 2 * time.Second

// ReadWait is a wait for the first message that is long enough for a server that has to read a
// block of the stream: twice the time that it needs.
const ReadWait = 100 * time.Millisecond

// PullRequest is what a call of Pull asks for.
type PullRequest struct {
	Messages int           // messages at most
	MaxBytes int           // of them together; 0 for no bound
	Wait     time.Duration // how long for the first one, if there is none; 0 for not at all
	KeepOpen bool          // wait for that time, and take more messages as they come
}

// Pull returns the messages that a consumer has now, and none if it has none. Messages that came
// before an error are returned with it.
//
// A request that may wait ends with its time even if messages exist. The server needs 50 ms for the
// first message after a pause, when it has to read a block of the stream again (measured with a
// million jobs queued; with 2 ms of patience nothing was ever handed out). So the first request has
// no time, and a second one waits only if the server knows of no message.
func (p *Puller) Pull(ctx context.Context, stream, consumer string, r PullRequest) (got []*nats.Msg, err error) {
	if r.KeepOpen {
		err = p.each(ctx, stream, consumer, r, false, func(m *nats.Msg) { got = append(got, m) })
		return got, err
	}
	now := r
	now.Wait = 0
	if got, err = p.once(ctx, stream, consumer, now); len(got) > 0 || err != nil || r.Wait == 0 {
		return got, err
	}
	return p.once(ctx, stream, consumer, r)
}

func (p *Puller) once(ctx context.Context, stream, consumer string, r PullRequest) (got []*nats.Msg, err error) {
	err = p.each(ctx, stream, consumer, r, true, func(m *nats.Msg) { got = append(got, m) })
	return got, err
}

// each makes one request and calls fn with every message as it comes. With noWait the server ends
// the request when it has handed out the present messages, or has waited for the first one.
// Otherwise it ends it after the wait, or when no more messages are wanted.
func (p *Puller) each(ctx context.Context, stream, consumer string, r PullRequest, noWait bool,
	fn func(*nats.Msg),
) (err error) {
	sub, err := p.take()
	if err != nil {
		return err
	}
	clean := false
	defer func() { p.put(sub, clean) }()
	req, err := json.Marshal(map[string]any{
		"batch": r.Messages, "no_wait": noWait, "max_bytes": r.MaxBytes,
		"expires": r.Wait,
	})
	if err != nil {
		return err
	}
	if p.timed != nil && r.Wait == 0 {
		answered := p.timed()
		defer func() { answered(err) }()
	}
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, sub.Subject, req); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	for n := 0; n < r.Messages; {
		m, err := sub.NextMsgWithContext(wait)
		if errors.Is(err, nats.ErrNoResponders) { // the client's error for status 503
			return ErrNoConsumer
		}
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				err = nil // whoever holds back what is there will be asked again
			}
			return err
		}
		switch status := m.Header.Get("Status"); {
		case status == "" || len(m.Data) > 0:
			n++
			fn(m)
		case status == "100": // a heartbeat
		case status == "409" && m.Header.Get("Description") == "Consumer Deleted":
			return ErrNoConsumer
		default: // 404 no messages, 408 others wait, 409 a limit: that was all
			clean = true
			return nil
		}
	}
	// Of a request with a bound of bytes the server says too that it is complete. That would be
	// taken for the answer to the next request.
	clean = r.MaxBytes == 0
	return nil
}

func (p *Puller) take() (*nats.Subscription, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nats.ErrConnectionClosed
	}
	if n := len(p.idle); n > 0 {
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return s, nil
	}
	s, err := p.nc.SubscribeSync(p.nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("subscribe for jobs: %w: %w", err, jobs.ErrUnavailable)
	}
	// What waits in it is bounded by the call under way, not by the client's limits.
	return s, s.SetPendingLimits(-1, -1)
}

// put keeps the subscription of a call that the server has ended. Another subscription may still
// receive messages of its call and is not used again.
func (p *Puller) put(s *nats.Subscription, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if clean && !p.closed {
		p.idle = append(p.idle, s)
		return
	}
	_ = s.Unsubscribe()
}

// Close ends the subscriptions. Calls that follow fail.
func (p *Puller) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		_ = s.Unsubscribe()
	}
	p.idle = nil
}
