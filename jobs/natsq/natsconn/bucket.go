package natsconn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// InBucket calls fn with a bucket, and retries both the lookup and fn.
func (c *Conn) InBucket(ctx context.Context, what, bucket string,
	fn func(ctx context.Context, kv jetstream.KeyValue) error,
) error {
	return c.Retry(ctx, what, func(ctx context.Context) (err error) {
		answered := c.Timed(OpBucket)
		defer func() { answered(err) }()
		kv, err := c.JS.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		return fn(ctx, kv)
	})
}

// CreateKey stores a new key of a bucket. It fails with jetstream.ErrKeyExists if there is one. The
// client's own Create reads the mark of a removed key from any replica.
func (c *Conn) CreateKey(ctx context.Context, what, bucket, key string, value []byte) error {
	return c.InBucket(ctx, what, bucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		_, err := kv.Update(ctx, key, value, 0)
		if !IsWrongRevision(err) {
			return err
		}
		m, err := c.LastOnce(ctx, "KV_"+bucket, "$KV."+bucket+"."+key)
		var after uint64
		switch {
		case errors.Is(err, jobs.ErrNotFound): // it was purged meanwhile
		case err != nil:
			return err
		case !IsTombstone(m.Header):
			return jetstream.ErrKeyExists
		default:
			after = m.Seq
		}
		if _, err = kv.Update(ctx, key, value, after); IsWrongRevision(err) {
			return jetstream.ErrKeyExists
		}
		return err
	})
}

// Key returns the last message of a key of a bucket. It fails with jobs.ErrNotFound if the bucket
// surely has no such key, see Sure.
func (c *Conn) Key(ctx context.Context, bucket, key string) (m *Message, err error) {
	stream := "KV_" + bucket
	err = c.Sure(ctx, stream, func() error {
		if m, err = c.Last(ctx, stream, "$KV."+bucket+"."+key); err == nil && IsTombstone(m.Header) {
			err = jobs.ErrNotFound
		}
		return err
	})
	return m, err
}

// IsWrongRevision reports whether a compare-and-set failed because the record has another revision.
func IsWrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// Values calls fn with every entry of a bucket, in the order of the keys. It asks the leader for
// one entry after the other. A watch would need a consumer, and a login that may create consumers
// could make the server publish to any subject.
func (c *Conn) Values(ctx context.Context, what, bucket string, fn func(key string, m *Message)) error {
	all, err := c.LastPerKey(ctx, what, bucket)
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if !IsTombstone(all[k].Header) {
			fn(k, all[k])
		}
	}
	return nil
}

// LastPerKey returns the last message of each key of a bucket, by key. Messages of removed keys are
// included; see IsTombstone.
func (c *Conn) LastPerKey(ctx context.Context, what, bucket string) (map[string]*Message, error) {
	stream, prefix := "KV_"+bucket, "$KV."+bucket+"."
	all := map[string]*Message{}
	for m, err := range c.Each(ctx, what, stream, prefix+">", 1) {
		if err != nil {
			return nil, err
		}
		all[strings.TrimPrefix(m.Subject, prefix)] = m
	}
	return all, nil
}

// IsTombstone reports whether the header of a bucket's message marks the key as removed.
func IsTombstone(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}
