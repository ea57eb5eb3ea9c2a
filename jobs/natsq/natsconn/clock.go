package natsconn

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

const (
	// clockPeriod is the minimum time between two readings of the server's clock.
	clockPeriod = 15 * time.Second
	// clockPatience bounds a reading of the clock, for which a scrape of the metrics waits.
	clockPatience = time.Second
)

// clock compares the clock of this machine with the server's clock. The zero value has not compared
// yet.
type clock struct {
	now func() time.Time // nil: time.Now

	mu    sync.Mutex
	next  time.Time // when to read the clock again
	ahead time.Duration
	known bool // the last reading had an answer
}

// offset returns how far the clock of this machine is ahead of the server's clock, to half of the
// time of a round trip. It asks the server at most once in clockPeriod. ok is false if the last
// question had no answer.
func (k *clock) offset(ctx context.Context, c *Conn) (ahead time.Duration, ok bool) {
	if c.JS == nil || !c.NC.IsConnected() {
		return 0, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.After(k.next) {
		k.next = now.Add(clockPeriod)
		ctx, cancel := context.WithTimeout(ctx, clockPatience)
		defer cancel()
		var err error
		k.ahead, err = k.ask(ctx, c)
		k.known = err == nil
	}
	return k.ahead, k.known
}

// ask asks for the description of a small stream, which has the time of the server. The caller
// holds mu.
func (k *clock) ask(ctx context.Context, c *Conn) (ahead time.Duration, err error) {
	now := k.now
	if now == nil {
		now = time.Now
	}
	began := now()
	answered := c.Timed(OpAPI)
	m, err := c.NC.RequestWithContext(ctx, "$JS.API.STREAM.INFO.KV_"+wire.ControlBucket, nil)
	answered(err)
	if err != nil {
		return 0, err
	}
	ended := now()
	var info struct {
		Error *jetstream.APIError `json:"error"`
		Time  time.Time           `json:"ts"`
	}
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return 0, err
	}
	if info.Error != nil {
		return 0, info.Error
	}
	return began.Add(ended.Sub(began) / 2).Sub(info.Time), nil
}
