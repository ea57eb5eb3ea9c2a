package natsq

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// pushSubject returns the subject of the rows that are pushed to a name.
func pushSubject(name string) string { return "exo.push." + name }

// Errors of the server for an atomic batch of messages with ids.
const (
	errCodeDuplicateBatch = 10201 // the batch is stored already
	errCodeDuplicateSoon  = 10158 // another batch with these ids is in progress
)

// Push stores frames of rows under a name, in their order, all or none, and returns when the
// servers have them on disk. Of two calls with the same key within ten minutes only the first
// stores its frames, and again is true for the other; with an empty key each call stores its
// frames. It fails with jobs.ErrFull if too many frames wait for a reader. After
// jobs.ErrUnavailable the call may be repeated with its key. The caller owns the frames.
func (u *Streams) Push(ctx context.Context, name, key string, frames [][]byte) (again bool, err error) {
	what := "push to " + name
	if err := jobs.CheckID("name", name); err != nil {
		return false, err
	}
	if key == "" {
		key = natsconn.NewID() // the same for all tries of this call
	}
	msgs, size := make([]*nats.Msg, len(frames)), 0
	for i, f := range frames {
		msgs[i] = &nats.Msg{Subject: pushSubject(name), Data: f}
		natsconn.SetHeader(msgs[i], jetstream.MsgIDHeader, name+"/"+key+"/"+strconv.Itoa(i))
		size += len(f)
	}
	ctx, span := u.conn.StartSend(ctx, "publish", wire.PushStream)
	defer func() { natsconn.EndSpan(span, err) }()
	for _, m := range msgs {
		u.conn.Inject(ctx, m)
	}
	tries := 0
	err = u.conn.RetryUnlessFull(ctx, what, size, func(ctx context.Context) error {
		tries++
		err := u.push(ctx, msgs, &again)
		var api *jetstream.APIError
		if errors.As(err, &api) {
			switch api.ErrorCode {
			case errCodeDuplicateBatch:
				again = true
				return nil
			case errCodeDuplicateSoon, natsconn.ErrCodeManyBatches: // other batches are in progress
				return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
			}
		}
		return err
	})
	if many, full := natsconn.Rejected(err); many || full {
		return false, fmt.Errorf("%s: %w: no job reads it as fast as it comes", what, jobs.ErrFull)
	}
	// After several tries an earlier one of this call has stored the frames.
	return again && tries == 1, err
}

// push is one try, without a repetition by the client: an atomic batch, or a single message, which
// the server tells to be a duplicate in its answer. It sets again if that message was stored
// before.
func (u *Streams) push(ctx context.Context, msgs []*nats.Msg, again *bool) error {
	if len(msgs) > 1 {
		return u.conn.PublishBatchOnce(ctx, msgs)
	}
	for _, m := range msgs {
		answered := u.conn.Timed(natsconn.OpPublish)
		ack, err := u.conn.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		answered(err)
		if err != nil {
			return err
		}
		*again = ack.Duplicate
	}
	return nil
}
