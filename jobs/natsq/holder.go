package natsq

import (
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// holder renews the leases of the jobs that a worker has: the server gives a job that is not
// renewed in time to another worker. One goroutine serves all jobs. When the worker is not healthy
// it renews nothing any more and says so by lost.
type holder struct {
	every   time.Duration
	healthy func() error
	log     *slog.Logger

	mu   sync.Mutex
	msgs map[*nats.Msg]func(error) // what to call when the worker is not healthy; may be nil
	sick error

	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

func newHolder(every time.Duration, healthy func() error, log *slog.Logger) *holder {
	h := &holder{every: every, healthy: healthy, log: log, msgs: map[*nats.Msg]func(error){}, stop: make(chan struct{})}
	h.ended.Go(h.renew)
	return h
}

func (h *holder) add(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.msgs[m] = nil
}

// onSick has fn called when the worker is found not to be healthy, which may be at once.
func (h *holder) onSick(m *nats.Msg, fn func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sick != nil {
		fn(h.sick)
		return
	}
	if _, ok := h.msgs[m]; !ok { // lost
		fn(errSlotLost)
		return
	}
	h.msgs[m] = fn
}

// lose gives up a job, with a cause for what runs: its lease is renewed no more.
func (h *holder) lose(m *nats.Msg, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fn := h.msgs[m]; fn != nil {
		fn(cause)
	}
	delete(h.msgs, m)
}

// ill says whether the worker was found not to be healthy, and is not since.
func (h *holder) ill() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sick != nil
}

func (h *holder) drop(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.msgs, m)
}

func (h *holder) renew() {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.beat(h.healthy())
		case <-h.stop:
			return
		}
	}
}

func (h *holder) beat(sick error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sick != nil && h.sick == nil {
		h.log.Error("not healthy: the jobs at hand go to other workers", "jobs", len(h.msgs), "error", sick)
		for _, fn := range h.msgs {
			if fn != nil {
				fn(sick)
			}
		}
	}
	if h.sick = sick; sick != nil {
		return
	}
	for m := range h.msgs {
		if err := m.InProgress(); err != nil {
			h.log.Warn("a lease was not renewed", "subject", m.Subject, "error", err)
		}
	}
}

func (h *holder) close() {
	h.once.Do(func() { close(h.stop) })
	h.ended.Wait()
}
