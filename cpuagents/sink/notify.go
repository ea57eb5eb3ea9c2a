package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const (
	// maxQueued bounds the messages that wait for a destination, and maxQueuedBytes their bodies.
	maxQueued      = 1000
	maxQueuedBytes = 16 << 20
	// longestRetry bounds the pause between two tries of a message.
	longestRetry = 30 * time.Second
	// endPatience bounds the wait of End for the messages that are queued.
	endPatience = 10 * time.Second
	// resumedPatience is endPatience with Resources.Resumes.
	resumedPatience = time.Second
	// noteDelay is the time between two notes of a position, where a repeated message does no harm.
	noteDelay = time.Second
)

// Why messages and decisions are dropped.
const (
	DroppedFull    = "full"    // the destination was away for too long
	DroppedRefused = "refused" // the destination does not accept the message
	DroppedBound   = "bound"   // too many series or incidents
	DroppedOrder   = "order"   // a sample that is not after the previous sample
)

type message struct {
	first, last uint64 // batches that it has decisions of
	body        []byte
	lines       []string // in place of body, where messages are merged
	more        int      // decisions without a line
	state       []byte   // of the sink behind the message, for its position
}

// notifier is the common part of the sinks that tell other systems of decisions: a destination that
// is away never stops the job. Messages wait in a queue with a bound, in memory. A goroutine sends
// them in order, and repeats a message until the destination accepts or refuses it. If the queue is
// full, the oldest message is dropped and counted.
type notifier struct {
	base
	positionLog
	resources Resources
	kind      string
	url       string // may have references to secrets in its path
	media     string
	header    map[string]string
	client    *http.Client
	secrets   *access.Store
	limit     *rate.Limiter
	merges    bool // messages that wait are merged
	// encode returns the body of a message; nil: it has one.
	encode func(m message) []byte
	// idle is called by the goroutine every idleEvery while nothing waits; nil for nothing.
	idle      func(ctx context.Context) error
	idleEvery time.Duration

	// resumed is the last batch that earlier attempts have sent. sent is of the goroutine alone.
	resumed uint64
	cancel  context.CancelCauseFunc
	logged  sync.Mutex           // of dropped
	dropped map[string]time.Time // when the log got the last line of a reason
	done    chan struct{}
	wake    chan struct{}

	mu      sync.Mutex
	queue   []message
	size    int  // bytes of queue
	sending bool // the first one is being sent
	away    bool // End has waited in vain, and no message was sent since
	failed  error
	changed chan struct{} // closed and replaced when a message leaves the queue
}

// newNotifier checks what all such sinks have in common. The destination is reached at address.
func newNotifier(b base, s Resources, kind, address, media string, perSecond float64) (*notifier, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || strings.ContainsAny(u.Host, "{}") || u.User != nil ||
		u.Scheme != "http" && u.Scheme != "https" {
		return nil, b.bad("write %s:https://HOST:PORT/PATH or %s:http://HOST:PORT/PATH", kind, kind)
	}
	if err := s.Egress.Check(u); err != nil {
		return nil, b.bad("%v", err)
	}
	if b.spec.Tries != 0 {
		return nil, b.bad("tries: a message is repeated until it is accepted or refused: leave it out")
	}
	if err := remote.CheckHeaders(b.spec.Headers); err != nil {
		return nil, b.bad("%v", err)
	}
	limits, err := remote.Limits{Timeout: b.spec.Timeout, Backoff: b.spec.Backoff, Rate: perSecond}.WithDefaults()
	if err != nil {
		return nil, b.bad("%v", err)
	}
	b.limits = limits
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	n := &notifier{
		base: b, resources: s, kind: kind, url: address, media: media, client: s.Egress.Client(false),
		secrets: s.Secrets.At(u.Hostname()), limit: rate.NewLimiter(rate.Limit(limits.Rate), 1),
		wake: make(chan struct{}, 1), dropped: map[string]time.Time{},
		changed: make(chan struct{}),
	}
	if _, err := n.target(); err != nil {
		return nil, b.bad("%v", err)
	}
	return n, nil
}

// target returns the URL with its secrets.
func (n *notifier) target() (string, error) {
	v, used, err := n.secrets.Expand(n.url)
	if err != nil || !used {
		return n.url, err
	}
	want, werr := url.Parse(n.url)
	got, gerr := url.Parse(v.Reveal())
	if werr != nil || gerr != nil || got.Host != want.Host || got.Scheme != want.Scheme {
		return "", errors.New("a secret of its path is not a path")
	}
	return v.Reveal(), nil
}

// drop counts decisions or messages that are dropped. The log has the first ones of each minute.
func (n *notifier) drop(reason string, count int, err error) {
	if n.resources.Dropped != nil {
		n.resources.Dropped(n.kind, reason, count)
	}
	n.logged.Lock()
	late := time.Since(n.dropped[reason]) > time.Minute
	if late {
		n.dropped[reason] = time.Now()
	}
	n.logged.Unlock()
	if !late {
		return
	}
	n.resources.Logger.Warn("a sink drops messages", "sink", n.where, "reason", reason, "count", count, "error", err)
}

// Open implements Sink: it finds the position and begins to send.
func (n *notifier) Open(ctx context.Context, log swarms.Log) error {
	if err := n.positionLog.Open(ctx, log); err != nil {
		return err
	}
	n.resumed = n.sent
	ctx, n.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	n.done = make(chan struct{})
	go func() {
		defer close(n.done)
		if err := n.run(ctx); err != nil && ctx.Err() == nil {
			n.mu.Lock()
			n.failed = err
			n.mu.Unlock()
		}
	}()
	return nil
}

// Close implements Sink. Messages that wait are sent by the next attempt.
func (n *notifier) Close() {
	if n.cancel != nil {
		n.cancel(context.Canceled)
		<-n.done
	}
	n.client.CloseIdleConnections()
}

// Held implements Holder: the first batch whose message waits.
func (n *notifier) Held() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return 0
	}
	return n.queue[0].first
}

// End implements Sink. It waits a while for the messages that wait, once for a destination that is
// away. Held reports what is left, so that the next job of a detector sends it.
func (n *notifier) End(ctx context.Context) error {
	after := endPatience
	if n.resources.Resumes {
		after = resumedPatience
	}
	patience := time.NewTimer(after)
	defer patience.Stop()
	for {
		n.mu.Lock()
		waiting, changed, failed := len(n.queue) > 0 && !n.away, n.changed, n.failed
		n.mu.Unlock()
		if !waiting || failed != nil {
			return failed
		}
		select {
		case <-changed:
		case <-patience.C:
			n.mu.Lock()
			n.away = true
			n.mu.Unlock()
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put queues a message. It does not wait.
func (n *notifier) put(m message) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		return n.failed
	}
	if last := len(n.queue) - 1; n.merges && last >= 0 && (last > 0 || !n.sending) {
		to := &n.queue[last]
		room := max(0, maxLines-len(to.lines))
		to.more += m.more + max(0, len(m.lines)-room)
		to.lines = append(to.lines, m.lines[:min(room, len(m.lines))]...)
		to.last, to.state = m.last, m.state
		return nil
	}
	n.queue = append(n.queue, m)
	n.size += len(m.body)
	for len(n.queue) > 1 && (len(n.queue) > maxQueued || n.size > maxQueuedBytes) {
		at := 0
		if n.sending {
			at = 1
		}
		if at == len(n.queue)-1 {
			break
		}
		n.size -= len(n.queue[at].body)
		n.queue = append(n.queue[:at], n.queue[at+1:]...)
		n.drop(DroppedFull, 1, nil)
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return nil
}

func (n *notifier) next() (m message, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return m, false
	}
	n.sending = true
	return n.queue[0], true
}

func (n *notifier) took(m message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size -= len(m.body)
	n.queue = n.queue[1:]
	n.sending, n.away = false, false
	close(n.changed)
	n.changed = make(chan struct{})
}

// run sends messages until ctx ends. Its error is from the log of the position: another attempt has
// it.
func (n *notifier) run(ctx context.Context) error {
	var idle <-chan time.Time
	if n.idle != nil {
		t := time.NewTicker(n.idleEvery)
		defer t.Stop()
		idle = t.C
	}
	note := time.NewTicker(noteDelay)
	defer note.Stop()
	var done *message // its position is not noted yet
	noted := time.Now()
	for {
		m, ok := n.next()
		if !ok {
			select {
			case <-n.wake:
			case <-idle:
				if err := n.idle(ctx); err != nil && ctx.Err() == nil {
					n.resources.Logger.Warn("a sink cannot refresh its alerts", "sink", n.where, "error", err)
				}
			case <-note.C:
				if done != nil {
					if err := n.note(ctx, *done); err != nil {
						return err
					}
					done = nil
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		if err := n.deliver(ctx, m); err != nil {
			return err
		}
		done = &m
		if n.merges || time.Since(noted) > noteDelay { // a person would read a repeated message
			if err := n.note(ctx, m); err != nil {
				return err
			}
			done, noted = nil, time.Now()
		}
		n.took(m)
	}
}

func (n *notifier) note(ctx context.Context, m message) error {
	return n.advanceWith(ctx, m.last, m.state)
}

// deliver sends a message until the destination accepts or refuses it, or ctx ends.
func (n *notifier) deliver(ctx context.Context, m message) error {
	body := m.body
	if n.encode != nil {
		body = n.encode(m)
	}
	for pause := time.Duration(n.limits.Backoff * float64(time.Second)); ; pause = min(2*pause, longestRetry) {
		if err := n.limit.Wait(ctx); err != nil {
			return err
		}
		after, err := n.post(ctx, body)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case retry.IsPermanent(err):
			n.drop(DroppedRefused, 1, err)
			return nil
		}
		n.resources.Logger.Warn("a sink does not reach its destination: it tries again", "sink", n.where, "error", err)
		if err := retry.Sleep(ctx, max(min(after, retry.MaxPause), pause)); err != nil {
			return err
		}
	}
}

// post makes one request. It returns the least pause that the destination asks for.
func (n *notifier) post(ctx context.Context, body []byte) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, n.limits.RequestTimeout())
	defer cancel()
	target, err := n.target()
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "sink %s: %v", n.where, access.ErrURL))
	}
	req.Header.Set("User-Agent", "exoswarm")
	req.Header.Set("Content-Type", n.media)
	for name, value := range n.header {
		req.Header.Set(name, value)
	}
	if err := remote.SetHeaders(req, n.spec.Headers, n.secrets, true); err != nil {
		return 0, fmt.Errorf("sink %s: %w", n.where, err)
	}
	return remote.Post(n.client, req, n.where)
}
