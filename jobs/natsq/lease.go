package natsq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// Lease is a jobs.Lease: a key whose revision its holder keeps moving.
type Lease struct {
	c     *Conn
	key   string
	ttl   time.Duration
	log   *slog.Logger
	rev   uint64
	lost  chan struct{}
	stop  chan struct{}
	ended sync.WaitGroup
	once  sync.Once
}

// Acquire tries to take the lease named key for holder. When somebody else has it, it watches for ttl whether they renew it
// and takes it over if they do not; jobs.ErrHeld when they do. Clocks of different machines are never compared.
func (c *Conn) Acquire(ctx context.Context, key, holder string, ttl time.Duration, log *slog.Logger) (jobs.Lease, error) {
	var l *Lease
	err := c.retry(ctx, "acquire lease "+key, func(ctx context.Context) error {
		kv, err := c.js.KeyValue(ctx, leaseBucket)
		if err != nil {
			return err
		}
		rev, err := kv.Create(ctx, key, []byte(holder))
		if err == nil {
			l = &Lease{c: c, key: key, ttl: ttl, log: log, rev: rev, lost: make(chan struct{}), stop: make(chan struct{})}
		}
		return err
	})
	if errors.Is(err, jetstream.ErrKeyExists) {
		l, err = c.takeOver(ctx, key, holder, ttl, log)
	}
	if err != nil {
		return nil, err
	}
	l.ended.Add(1)
	go func() { defer l.ended.Done(); l.renew(holder) }()
	return l, nil
}

func (c *Conn) takeOver(ctx context.Context, key, holder string, ttl time.Duration, log *slog.Logger) (*Lease, error) {
	kv, err := c.js.KeyValue(ctx, leaseBucket)
	if err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	before, err := kv.Get(ctx, key)
	if err != nil {
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, fmt.Errorf("lease %s was released this moment: %w", key, jobs.ErrHeld)
		}
		return nil, fmt.Errorf("acquire lease %s: %w", key, err)
	}
	t := time.NewTimer(ttl)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("acquire lease %s: %w", key, context.Cause(ctx))
	}
	rev, err := kv.Update(ctx, key, []byte(holder), before.Revision())
	if err != nil {
		return nil, fmt.Errorf("lease %s is renewed by %s: %w", key, before.Value(), jobs.ErrHeld)
	}
	log.Info("lease taken over", "lease", key, "from", string(before.Value()))
	return &Lease{c: c, key: key, ttl: ttl, log: log, rev: rev, lost: make(chan struct{}), stop: make(chan struct{})}, nil
}

// Lost is closed when the lease could not be renewed in time.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

func (l *Lease) renew(holder string) {
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	good := time.Now()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.ttl/3)
		kv, err := l.c.js.KeyValue(ctx, leaseBucket)
		if err == nil {
			var rev uint64
			if rev, err = kv.Update(ctx, l.key, []byte(holder), l.rev); err == nil {
				l.rev, good = rev, time.Now()
			}
		}
		cancel()
		var api *jetstream.APIError
		taken := errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
		if taken || time.Since(good) > l.ttl {
			l.log.Warn("lease lost", "lease", l.key, "error", err)
			close(l.lost)
			return
		}
	}
}

// Release gives the lease back. A second call does nothing.
func (l *Lease) Release(ctx context.Context) error {
	var err error
	l.once.Do(func() {
		close(l.stop)
		l.ended.Wait()
		select {
		case <-l.lost:
			return
		default:
		}
		err = l.c.retry(ctx, "release lease "+l.key, func(ctx context.Context) error {
			kv, err := l.c.js.KeyValue(ctx, leaseBucket)
			if err != nil {
				return err
			}
			return kv.Delete(ctx, l.key, jetstream.LastRevision(l.rev))
		})
		if wrongRevision(err) { // somebody has taken it, or its swarm was removed with it
			err = nil
		}
	})
	return err
}

// Leases lists who was the last to hold each lease that has not been given back, by its key: a holder that has ended without that is
// there until another takes it.
func (c *Conn) Leases(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	err := c.values(ctx, "list leases", leaseBucket, func(key string, m *stored) { all[key] = string(m.Data) })
	return all, err
}
