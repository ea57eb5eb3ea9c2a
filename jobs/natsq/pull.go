package natsq

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

// puller asks consumers for the messages that are there now. The client's own Fetch subscribes anew in every call; a puller
// keeps its subscriptions, which is two protocol messages less a call. Methods may be called from several goroutines.
type puller struct {
	nc *nats.Conn

	mu     sync.Mutex
	idle   []*nats.Subscription // of calls that have ended
	closed bool
}

// A call waits this long for the server. A consumer that hands out nothing because too much is unacknowledged does not
// answer at all, so this is also how long such a call takes.
const pullPatience = 2 * time.Second

var errNoConsumer = errors.New("no consumer answers")

// request says what a call of pull asks for.
type request struct {
	n        int           // messages at most
	maxBytes int           // of them together; 0 for no bound
	wait     time.Duration // how long for the first one, if there is none; 0 for not at all
	stand    bool          // go on for that time, and take more as they come
}

// pull returns messages of a consumer, and none when there are none. Messages that came before an error are returned with it.
//
// A request that may wait ends with its time even where messages are there: the server needs 50 ms for the first one behind a pause, when it has to
// read a block of the stream again (measured with a million jobs queued; with 2 ms of patience alone nothing was ever handed out). So the
// first request has no time, and only when the server knows of nothing a second one waits.
func (p *puller) pull(ctx context.Context, stream, consumer string, r request) (got []*nats.Msg, err error) {
	if r.stand {
		err = p.each(ctx, stream, consumer, r, false, func(m *nats.Msg) { got = append(got, m) })
		return got, err
	}
	now := r
	now.wait = 0
	if got, err = p.once(ctx, stream, consumer, now); len(got) > 0 || err != nil || r.wait == 0 {
		return got, err
	}
	return p.once(ctx, stream, consumer, r)
}

// once is one request.
func (p *puller) once(ctx context.Context, stream, consumer string, r request) (got []*nats.Msg, err error) {
	err = p.each(ctx, stream, consumer, r, true, func(m *nats.Msg) { got = append(got, m) })
	return got, err
}

// each is one request; it hands every message on as it comes. With noWait the server ends it when it has handed out what is there, or waited for
// the first one; else when it has waited, or nothing more is wanted.
func (p *puller) each(ctx context.Context, stream, consumer string, r request, noWait bool, fn func(*nats.Msg)) error {
	sub, err := p.take()
	if err != nil {
		return err
	}
	clean := false
	defer func() { p.put(sub, clean) }()
	req, err := json.Marshal(map[string]any{"batch": r.n, "no_wait": noWait, "max_bytes": r.maxBytes, "expires": r.wait})
	if err != nil {
		return err
	}
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, sub.Subject, req); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	for n := 0; n < r.n; {
		m, err := sub.NextMsgWithContext(wait)
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
		case status == "503":
			return errNoConsumer
		case status == "100": // a heartbeat
		case status == "409" && m.Header.Get("Description") == "Consumer Deleted":
			return errNoConsumer
		default: // 404 no messages, 408 others wait, 409 a limit: that was all
			clean = true
			return nil
		}
	}
	// Of a request with a bound of bytes the server says too that it is complete. That would be taken for the answer to the next request.
	clean = r.maxBytes == 0
	return nil
}

func (p *puller) take() (*nats.Subscription, error) {
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

// put keeps the subscription of a call that got its answer. Another one may still receive what it asked for and is not
// used again.
func (p *puller) put(s *nats.Subscription, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if clean && !p.closed {
		p.idle = append(p.idle, s)
		return
	}
	_ = s.Unsubscribe()
}

func (p *puller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		_ = s.Unsubscribe()
	}
	p.idle = nil
}
