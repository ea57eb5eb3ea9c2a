package userstream

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

func pushSubject(name string) string { return "exo.push." + name }

// What the server says of messages with ids in an atomic batch.
const (
	errCodeDuplicateBatch = 10201
	errCodeDuplicateSoon  = 10158
)

// Push stores what was pushed to a name, frames of rows in their order, all or none, and returns
// when that is on the disk of the servers. Of two calls with one key within ten minutes the first
// is stored, and again is true for the other. It fails with jobs.ErrFull when too much waits to be
// read, and with jobs.ErrUnavailable after which the same call may be repeated under its key. The
// frames stay the caller's.
func (u *Streams) Push(ctx context.Context, name, key string, frames [][]byte) (again bool, err error) {
	what := "push to " + name
	if err := jobs.CheckID("name", name); err != nil {
		return false, err
	}
	if key == "" {
		key = natsconn.NewID() // tells the tries of this call apart
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
			case errCodeDuplicateSoon, natsconn.ErrCodeManyBatches: // others are on their way
				return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
			}
		}
		return err
	})
	if many, full := natsconn.Rejected(err); many || full {
		return false, fmt.Errorf("%s: %w: no job reads it as fast as it comes", what, jobs.ErrFull)
	}
	// A try whose answer was lost has stored it.
	return again && tries == 1, err
}

func (u *Streams) push(ctx context.Context, msgs []*nats.Msg, again *bool) error {
	if len(msgs) > 1 {
		return u.conn.PublishBatchOnce(ctx, msgs)
	}
	for _, m := range msgs {
		ack, err := u.conn.JS.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return err
		}
		*again = ack.Duplicate
	}
	return nil
}
