package swarmlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Wakes is a swarms.Wakes. The server republishes the headers of every entry of a log of entries
// (Log.Create). A watched log has a subscription to these copies, and all subscriptions share one
// channel, so a log needs no goroutine and no consumer. A copy can be lost with the connection, and
// logs of earlier programs have none. So a sweep compares all watched logs with the server's list
// of streams from time to time, and after each reconnection.
type Wakes struct {
	c      *Swarms
	copies chan *nats.Msg // of all subscriptions
	stop   context.CancelFunc
	ended  sync.WaitGroup
	once   sync.Once
	rung   chan struct{} // has a token when woken is not empty

	mu    sync.Mutex
	asks  map[string]*asleep // by the subject of the copies
	keys  map[string]string  // subject by key
	woken []string           // keys
}

// asleep is a watched log, whose last entry was number last.
type asleep struct {
	key    string
	stream string
	last   uint64
	sub    *nats.Subscription
}

// sweepEvery is how long a lost copy may delay a wake-up. A sweep of 10,000 logs reads 80 pages of
// the server's list.
const sweepEvery = 30 * time.Second

// maxCopies is how many copies may wait. A sweep finds the logs of dropped copies.
const maxCopies = 1 << 14

// wakeSubject returns the subject on which the server republishes the headers of the entries of a
// log.
func wakeSubject(log string) string { return "exo.wake.log" + strings.TrimPrefix(log, "exo.log") }

// OpenWakes starts two goroutines, which run until Close. It sends no request before the first Add.
func (sw *Swarms) OpenWakes() swarms.Wakes {
	w := &Wakes{
		c: sw, copies: make(chan *nats.Msg, maxCopies), rung: make(chan struct{}, 1),
		asks: map[string]*asleep{}, keys: map[string]string{},
	}
	var run context.Context
	run, w.stop = context.WithCancel(context.Background())
	w.ended.Go(func() { w.listen(run) })
	w.ended.Go(func() { w.sweep(run) })
	return w
}

// Add implements swarms.Wakes.
func (w *Wakes) Add(ctx context.Context, key string, log swarms.Log, last uint64) error {
	l, ok := log.(*Log)
	if !ok {
		return fmt.Errorf("watch log %s: it is not one of this queue: %w", key, jobs.ErrNotFound)
	}
	w.Remove(key)
	sub, err := w.c.conn.NC.ChanSubscribe(wakeSubject(l.subject), w.copies)
	if err != nil {
		return fmt.Errorf("watch %s: %w: %w", l.stream, err, jobs.ErrUnavailable)
	}
	w.mu.Lock()
	w.asks[wakeSubject(l.subject)] = &asleep{key: key, stream: l.stream, last: last, sub: sub}
	w.keys[key] = wakeSubject(l.subject)
	w.mu.Unlock()
	// The server has the subscription before this request, so an entry is in its answer or comes as
	// a copy.
	end, err := w.end(ctx, l.stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		w.wake(wakeSubject(l.subject))
	case err != nil:
		w.Remove(key)
		return fmt.Errorf("watch %s: %w", l.stream, err)
	case end != last:
		w.wake(wakeSubject(l.subject))
	}
	return nil
}

func (w *Wakes) end(ctx context.Context, stream string) (last uint64, err error) {
	_, last, err = w.c.conn.Bounds(ctx, "look at "+stream, stream)
	return last, err
}

// Remove implements swarms.Wakes. A key that Next is about to return may still be returned.
func (w *Wakes) Remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if subject, is := w.keys[key]; is {
		w.forget(subject)
	}
}

// forget ends a watch and returns its key. It must be called with mu held.
func (w *Wakes) forget(subject string) string {
	a := w.asks[subject]
	_ = a.sub.Unsubscribe()
	delete(w.asks, subject)
	delete(w.keys, a.key)
	return a.key
}

// wake ends the watch of a log, and makes Next return its key. It does nothing for other subjects.
func (w *Wakes) wake(subject string) {
	w.mu.Lock()
	if w.asks[subject] == nil {
		w.mu.Unlock()
		return
	}
	w.woken = append(w.woken, w.forget(subject))
	w.mu.Unlock()
	select {
	case w.rung <- struct{}{}:
	default:
	}
}

// Next implements swarms.Wakes.
func (w *Wakes) Next(ctx context.Context) (string, error) {
	for {
		w.mu.Lock()
		if n := len(w.woken); n > 0 {
			key := w.woken[0]
			w.woken = w.woken[1:]
			w.mu.Unlock()
			return key, nil
		}
		w.mu.Unlock()
		select {
		case <-w.rung:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Close implements swarms.Wakes. It waits for both goroutines before it ends the subscriptions.
func (w *Wakes) Close() {
	w.once.Do(func() {
		w.stop()
		w.ended.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for subject := range w.asks {
			w.forget(subject)
		}
	})
}

// listen handles the copies until ctx ends. Any client with the permission can publish one, so it
// uses nothing of a copy but its subject.
func (w *Wakes) listen(ctx context.Context) {
	for {
		select {
		case m := <-w.copies:
			w.wake(m.Subject)
		case <-ctx.Done():
			return
		}
	}
}

// sweep checks all watched logs every sweepEvery and after each reconnection, until ctx ends.
func (w *Wakes) sweep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next, seen := time.Now().Add(sweepEvery), w.c.conn.NC.Stats().Reconnects
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if n := w.c.conn.NC.Stats().Reconnects; n == seen && time.Now().Before(next) {
			continue
		} else if !w.c.conn.NC.IsConnected() {
			continue
		} else if w.look(ctx) == nil {
			seen, next = n, time.Now().Add(sweepEvery)
		}
	}
}

// look wakes every watched log whose last entry has changed, or that is gone. It ignores logs that
// are added meanwhile, because Add checks them itself.
func (w *Wakes) look(ctx context.Context) error {
	w.mu.Lock()
	before := make(map[string]*asleep, len(w.asks))
	streams := make(map[string]string, len(w.asks))
	for subject, a := range w.asks {
		before[subject], streams[a.stream] = a, subject
	}
	w.mu.Unlock()
	if len(before) == 0 {
		return nil
	}
	for offset := 0; ; {
		page, err := w.list(ctx, offset)
		if err != nil {
			return err
		}
		for _, s := range page.Streams {
			subject := streams[s.Config.Name]
			if a := before[subject]; a != nil {
				if delete(before, subject); s.State.LastSeq != a.last {
					w.wakeIf(subject, a)
				}
			}
		}
		if offset += len(page.Streams); len(page.Streams) == 0 || offset >= page.Total {
			break
		}
	}
	// A stream that is missing in the list is not always gone: the list omits streams without a
	// leader, and its pages move when streams are removed. So each missing one is asked.
	for subject, a := range before {
		if end, err := w.end(ctx, a.stream); errors.Is(err, jetstream.ErrStreamNotFound) || err == nil &&
			end != a.last {
			w.wakeIf(subject, a)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// wakeIf is wake, unless the log was removed, or added again, since the caller has read a.
func (w *Wakes) wakeIf(subject string, a *asleep) {
	w.mu.Lock()
	same := w.asks[subject] == a
	w.mu.Unlock()
	if same {
		w.wake(subject)
	}
}

// streamPage is a page of the server's list of streams, with the fields that a sweep needs.
type streamPage struct {
	Error   *jetstream.APIError `json:"error"`
	Total   int                 `json:"total"`
	Streams []struct {
		Config struct {
			Name string `json:"name"`
		} `json:"config"`
		State struct {
			LastSeq uint64 `json:"last_seq"`
		} `json:"state"`
	} `json:"streams"`
}

// list returns the page of the list of logs that begins at an offset.
func (w *Wakes) list(ctx context.Context, offset int) (page streamPage, err error) {
	req, err := json.Marshal(map[string]any{"subject": "exo.log.>", "offset": offset})
	if err != nil {
		return page, err
	}
	err = w.c.conn.Retry(ctx, "list logs", func(ctx context.Context) error {
		answered := w.c.conn.Timed(natsconn.OpAPI)
		m, err := w.c.conn.NC.RequestWithContext(ctx, "$JS.API.STREAM.LIST", req)
		answered(err)
		if err != nil {
			return err
		}
		page = streamPage{}
		if err := json.Unmarshal(m.Data, &page); err != nil {
			return fmt.Errorf("list logs: %w", err)
		}
		if page.Error != nil {
			return page.Error
		}
		return nil
	})
	return page, err
}
