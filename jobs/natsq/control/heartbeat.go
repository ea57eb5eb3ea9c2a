package control

import (
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Keeper renews the leases of jobs. The server gives a job that is not renewed within the lease to
// another worker. One goroutine serves all jobs of a worker.
//
// While the worker is unhealthy the keeper renews nothing. The jobs learn of that once, when the
// worker becomes unhealthy. The methods may be called from several goroutines.
type Keeper struct {
	every   time.Duration
	healthy func() error
	log     *slog.Logger

	mu        sync.Mutex
	msgs      map[*nats.Msg]func(error) // called when the job is lost; may be nil
	unhealthy error

	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// StartKeeper returns a keeper that renews every period until Close. A third of the lease is a good
// period. It calls healthy before each renewal, from its own goroutine.
func StartKeeper(every time.Duration, healthy func() error, log *slog.Logger) *Keeper {
	k := &Keeper{
		every: every, healthy: healthy, log: log, msgs: map[*nats.Msg]func(error){}, stop: make(chan struct{}),
	}
	k.ended.Go(k.loop)
	return k
}

// Add begins to renew the lease of a delivery. The caller calls Drop when the job ends.
func (k *Keeper) Add(m *nats.Msg) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.msgs[m] = nil
}

// OnLost makes fn the function that is called when the worker loses the job: because the worker is
// unhealthy, or because of Lose. If that has happened already, OnLost calls fn before it returns.
// fn must not call the keeper.
func (k *Keeper) OnLost(m *nats.Msg, fn func(cause error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unhealthy != nil {
		fn(k.unhealthy)
		return
	}
	if _, ok := k.msgs[m]; !ok { // Lose came first, which only a lost slot causes
		fn(ErrSlotLost)
		return
	}
	k.msgs[m] = fn
}

// Lose gives up a job: its lease is not renewed any more, and its OnLost function gets the cause.
func (k *Keeper) Lose(m *nats.Msg, cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if fn := k.msgs[m]; fn != nil {
		fn(cause)
	}
	delete(k.msgs, m)
}

// Drop ends the renewal of a job without a call of its OnLost function. A job that the keeper does
// not have is ignored.
func (k *Keeper) Drop(m *nats.Msg) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.msgs, m)
}

// Has reports whether the keeper renews the lease of a delivery.
func (k *Keeper) Has(m *nats.Msg) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.msgs[m]
	return ok
}

// Unhealthy reports whether the worker was unhealthy at the last renewal.
func (k *Keeper) Unhealthy() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unhealthy != nil
}

func (k *Keeper) loop() {
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.renew(k.healthy())
		case <-k.stop:
			return
		}
	}
}

// renew renews all leases, or loses all jobs if unhealthy is an error.
func (k *Keeper) renew(unhealthy error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if unhealthy != nil && k.unhealthy == nil {
		k.log.Error("not healthy: the jobs at hand go to other workers", "jobs", len(k.msgs), "error", unhealthy)
		for _, fn := range k.msgs {
			if fn != nil {
				fn(unhealthy)
			}
		}
	}
	if k.unhealthy = unhealthy; unhealthy != nil {
		return
	}
	for m := range k.msgs {
		if err := m.InProgress(); err != nil {
			k.log.Warn("a lease was not renewed", "subject", m.Subject, "error", err)
		}
	}
}

// Close ends the renewals and waits for the goroutine. A second call does nothing.
func (k *Keeper) Close() {
	k.once.Do(func() { close(k.stop) })
	k.ended.Wait()
}
