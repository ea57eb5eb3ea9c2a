package natsq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Bounds of what was pushed and is not read yet. One name fills a quarter of the messages at most; what it fills of the bytes is bounded by the
// endpoint's frames alone.
const (
	maxPushed     = 16 << 30 // bytes
	maxPushedName = 32 << 10 // messages
	maxPushedAll  = 4 * maxPushedName
	pushedAge     = 14 * 24 * time.Hour
	// pushMemory is how long the server knows the key of a push. It takes about 100 bytes of its memory for each: 60 MB at 1,000 pushes a second.
	pushMemory = 10 * time.Minute
)

func pushSubject(name string) string { return "exo.push." + name }

// pushed is the stream of what was pushed: a queue, so that what a job holds in its journal takes no room any more, and a full one refuses.
func pushed() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 wire.PushStream,
		Subjects:             []string{pushSubject("*")},
		Retention:            jetstream.WorkQueuePolicy,
		Discard:              jetstream.DiscardNew,
		MaxAge:               pushedAge,
		MaxBytes:             maxPushed,
		MaxMsgs:              maxPushedAll,
		MaxMsgSize:           jobs.MaxMessage,
		MaxMsgsPerSubject:    maxPushedName,
		DiscardNewPerSubject: true,
		AllowAtomicPublish:   true,
		Duplicates:           pushMemory,
		Compression:          jetstream.S2Compression, // rows of text: a third of their size and less
	}
}

// What the server says of messages with ids in an atomic batch, and of more batches at a time than it keeps.
const (
	errCodeDuplicateBatch = 10201
	errCodeDuplicateSoon  = 10158
	errCodeManyBatches    = 10210
)

// Push stores what was pushed to a name, frames of rows in their order, all or none, and returns when that is on the disk of the servers. Of two calls
// with one key within ten minutes the first is stored, and again is true for the other. It fails with jobs.ErrFull when too much waits to be read, and with
// jobs.ErrUnavailable after which the same call may be repeated under its key. The frames stay the caller's.
func (c *Conn) Push(ctx context.Context, name, key string, frames [][]byte) (again bool, err error) {
	what := "push to " + name
	if err := jobs.CheckID("name", name); err != nil {
		return false, err
	}
	if key == "" {
		key = NewID() // tells the tries of this call apart
	}
	msgs, size := make([]*nats.Msg, len(frames)), 0
	for i, f := range frames {
		msgs[i] = &nats.Msg{Subject: pushSubject(name), Data: f}
		setHeader(msgs[i], jetstream.MsgIDHeader, name+"/"+key+"/"+strconv.Itoa(i))
		size += len(f)
	}
	ctx, span := c.sending(ctx, "publish", wire.PushStream)
	defer func() { endSpan(span, err) }()
	for _, m := range msgs {
		c.inject(ctx, m)
	}
	tries := 0
	err = c.offer(ctx, what, size, func(ctx context.Context) error {
		tries++
		err := c.push(ctx, msgs, &again)
		var api *jetstream.APIError
		if errors.As(err, &api) {
			switch api.ErrorCode {
			case errCodeDuplicateBatch:
				again = true
				return nil
			case errCodeDuplicateSoon, errCodeManyBatches: // others are on their way
				return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
			}
		}
		return err
	})
	if many, full := refused(err); many || full {
		return false, fmt.Errorf("%s: %w: no job reads it as fast as it comes", what, jobs.ErrFull)
	}
	// A try whose answer was lost has stored it.
	return again && tries == 1, err
}

func (c *Conn) push(ctx context.Context, msgs []*nats.Msg, again *bool) error {
	if len(msgs) > 1 {
		return c.batch(ctx, msgs)
	}
	for _, m := range msgs {
		ack, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		*again = ack.Duplicate
	}
	return nil
}
