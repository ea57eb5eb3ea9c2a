package natsq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"

	_ "time/tzdata"

	"github.com/nats-io/nats.go/jetstream"
)

func (c *Conn) inBucket(ctx context.Context, what, bucket string, fn func(ctx context.Context, kv jetstream.KeyValue) error) error {
	return c.retry(ctx, what, func(ctx context.Context) error {
		kv, err := c.js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		return fn(ctx, kv)
	})
}

func wrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// values calls fn with every entry of a bucket, in the order of the keys. It asks the leader for one after the other: a watch would need a
// consumer, and who may make those could have the server publish anything anywhere.
func (c *Conn) values(ctx context.Context, what, bucket string, fn func(key string, m *stored)) error {
	all, err := c.lastMessages(ctx, what, bucket)
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if !isMarker(all[k].Header) {
			fn(k, all[k])
		}
	}
	return nil
}

// lastMessages returns the last message of each key of a bucket, by key, also those that say that the key is gone.
func (c *Conn) lastMessages(ctx context.Context, what, bucket string) (map[string]*stored, error) {
	stream, prefix := "KV_"+bucket, "$KV."+bucket+"."
	all := map[string]*stored{}
	for seq := uint64(1); ; seq++ {
		var m *stored
		err := c.retry(ctx, what, func(ctx context.Context) (err error) {
			m, err = c.next(ctx, stream, prefix+">", seq)
			return err
		})
		if errors.Is(err, jobs.ErrNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		seq = m.Seq
		all[strings.TrimPrefix(m.Subject, prefix)] = m
	}
}

// isMarker reports whether a message of a bucket says that its key is gone.
func isMarker(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}
