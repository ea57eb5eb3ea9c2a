package natsq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// PutSwarm announces a swarm, or changes its record.
func (c *Conn) PutSwarm(ctx context.Context, s jobs.Swarm) error {
	if err := s.Validate(); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("announce swarm %s: %w", s.ID, err)
	}
	return c.retry(ctx, "announce swarm "+s.ID, func(ctx context.Context) error {
		kv, err := c.js.KeyValue(ctx, swarmBucket)
		if err != nil {
			return err
		}
		_, err = kv.Put(ctx, s.ID, data)
		return err
	})
}

// DeleteSwarm ends a swarm: whoever serves it gives its memory back. A swarm that is not there is no error.
func (c *Conn) DeleteSwarm(ctx context.Context, id string) error {
	return c.retry(ctx, "delete swarm "+id, func(ctx context.Context) error {
		kv, err := c.js.KeyValue(ctx, swarmBucket)
		if err != nil {
			return err
		}
		err = kv.Purge(ctx, id)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		return err
	})
}

// WatchSwarms calls fn for every swarm there is and for every change afterwards, one call at a time, until ctx ends.
func (c *Conn) WatchSwarms(ctx context.Context, fn func(jobs.SwarmChange)) error {
	kv, err := c.js.KeyValue(ctx, swarmBucket)
	if err != nil {
		return fmt.Errorf("watch swarms: %w", err)
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("watch swarms: %w", err)
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case u, ok := <-w.Updates():
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("watch swarms: %w", jobs.ErrUnavailable)
			}
			if u == nil { // end of what was there before
				continue
			}
			ch := jobs.SwarmChange{ID: u.Key(), Gone: u.Operation() != jetstream.KeyValuePut}
			if !ch.Gone {
				ch.Swarm, ch.Err = readSwarm(u.Key(), u.Value())
			}
			fn(ch)
		case <-ctx.Done():
			return nil
		}
	}
}

// Swarms lists the swarms there are, by id. One whose record cannot be read has its error.
func (c *Conn) Swarms(ctx context.Context) (all []jobs.SwarmChange, err error) {
	err = c.retry(ctx, "list swarms", func(ctx context.Context) error {
		all = nil
		kv, err := c.js.KeyValue(ctx, swarmBucket)
		if err != nil {
			return err
		}
		w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			return err
		}
		defer func() { _ = w.Stop() }()
		for {
			select {
			case u, ok := <-w.Updates():
				switch {
				case !ok:
					return jobs.ErrUnavailable
				case u == nil: // that was all
					slices.SortFunc(all, func(a, b jobs.SwarmChange) int { return cmp.Compare(a.ID, b.ID) })
					return nil
				}
				ch := jobs.SwarmChange{ID: u.Key()}
				ch.Swarm, ch.Err = readSwarm(u.Key(), u.Value())
				all = append(all, ch)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return all, err
}

// readSwarm reads a swarm's record, which may be a stranger's.
func readSwarm(key string, value []byte) (s jobs.Swarm, err error) {
	if err := json.Unmarshal(value, &s); err != nil {
		return s, jobs.Errorf(jobs.CodeInvalid, "record of swarm %s: %v", key, err)
	}
	if s.ID != key {
		return s, jobs.Errorf(jobs.CodeInvalid, "record of swarm %s: its id is %.100q", key, s.ID)
	}
	return s, s.Validate()
}
