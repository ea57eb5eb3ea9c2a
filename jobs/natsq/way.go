package natsq

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// way is what a connection has learned about how the messages of one kind of stream are stored fastest: side by side or as one atomic
// batch. It depends on the server, which does not tell. One on its own makes a folder and files for every atomic batch and syncs them: 3 to
// 3.5 ms and 2.1 ms of processor time for 1 message as for 64, while 64 by themselves took 0.75 ms where it does not sync each and 12 ms where it
// does (medians of 40, 2 cores). A cluster keeps batches in memory until they are complete.
type way struct {
	mu            sync.Mutex
	single, whole time.Duration // of a message among others, and of an atomic batch; 0 before the first
	together      bool          // what was the faster last time
	next          time.Time     // when the slower is tried again
	pause         time.Duration // until then, from the time before
}

const (
	// wayGroup is the fewest messages that tell anything: fewer are side by side in no time, and what they take is the way there and back.
	wayGroup = 4
	// What is supposed until it was measured: a synced server on its own, and of a message by itself a part of that.
	firstWhole = 3500 * time.Microsecond
	firstPart  = 14
	// The way that seems the slower is tried after a second, and ever more rarely as long as it is: a try in a second would itself be
	// seen in the 99th percentile. One that would take too many times as long is not made: 256 messages by themselves took seconds on a busy disk.
	firstDoubt = time.Second
	lastDoubt  = time.Minute
	tooLong    = 4
	// weight of a new measurement: a disk that stalls once is forgotten after ten.
	weight = 0.2
)

// choose says whether n messages are to be an atomic batch.
func (w *way) choose(n int) (together bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < wayGroup {
		return false
	}
	whole := cmp.Or(w.whole, firstWhole)
	single := time.Duration(n) * cmp.Or(w.single, whole/firstPart)
	together = single > whole
	switch now := time.Now(); {
	case together != w.together || w.pause == 0:
		w.together, w.pause, w.next = together, firstDoubt, now.Add(firstDoubt)
	case now.After(w.next) && max(single, whole) <= tooLong*min(single, whole):
		w.pause = min(2*w.pause, lastDoubt)
		w.next = now.Add(w.pause)
		return !together
	}
	return together
}

// took learns how long n messages took.
func (w *way) took(together bool, n int, d time.Duration) {
	if n < wayGroup {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := &w.whole
	if !together {
		of = &w.single
		d /= time.Duration(n)
	}
	if *of == 0 || together != w.together { // the slower, after a while: what was measured before is no guide
		*of = d
	} else if together {
		d = min(d, 2**of) // a disk that stalls would stall many times as long with messages by themselves
	}
	*of += time.Duration(weight * float64(d-*of))
}

// publishMany stores messages of one stream, each or not whatever becomes of the others, and says of each what publish would. They are
// jobs.MaxBatch at most. Whoever cannot have a message refused because an earlier try of it was stored names them first; the server
// remembers every name for two minutes.
func (c *Conn) publishMany(ctx context.Context, t tries, w *way, what string, msgs []*nats.Msg) []error {
	together := w.choose(len(msgs))
	began := time.Now()
	if together {
		_, err := c.publishAll(ctx, t, what, msgs)
		if err == nil {
			w.took(true, len(msgs), time.Since(began))
			return make([]error, len(msgs))
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) {
			errs := make([]error, len(msgs))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		// One of them is refused, or an earlier try has stored them all and its answer was lost: by its id each tells.
	}
	errs := c.publishEach(ctx, t, what, msgs)
	if !together && !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		w.took(false, len(msgs), time.Since(began))
	}
	return errs
}

// publishEach stores messages side by side. They are stored in their order, but for those that have to be tried again.
func (c *Conn) publishEach(ctx context.Context, t tries, what string, msgs []*nats.Msg) []error {
	errs := make([]error, len(msgs))
	if len(msgs) == 1 {
		errs[0] = c.publish(ctx, t, what, msgs[0])
		return errs
	}
	size := 0
	for _, m := range msgs {
		size += len(m.Data)
	}
	a := c.refused.attempt(ctx)
	try, cancel := context.WithTimeout(a.ctx, tryFor(0, size))
	answers := make([]jetstream.PubAckFuture, len(msgs))
	for i, m := range msgs {
		answers[i], errs[i] = c.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	}
	for i, f := range answers {
		if errs[i] != nil {
			continue
		}
		select {
		case <-f.Ok():
		case errs[i] = <-f.Err():
		case <-try.Done():
			errs[i] = try.Err()
		}
	}
	cancel()
	a.stop()
	var again sync.WaitGroup
	for i, err := range errs {
		if transient(err) || errors.Is(err, context.Canceled) || errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			again.Go(func() { errs[i] = c.publish(ctx, t, what, msgs[i]) }) // under its id: it is stored once
		}
	}
	again.Wait()
	return errs
}
