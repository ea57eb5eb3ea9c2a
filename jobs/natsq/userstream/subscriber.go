// Package userstream reads and writes JetStream streams that belong to users, and the stream of
// pushed rows.
package userstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Streams reads and writes the streams of users. Its methods may be called from several goroutines.
type Streams struct{ conn *natsconn.Conn }

// New returns the streams that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn) *Streams { return &Streams{c} }

// subscriber is a jobs.Subscriber over a durable pull consumer.
type subscriber struct {
	c       *natsconn.Conn
	s       jobs.Subscription
	it      jetstream.MessagesContext // nil: to be made again
	last    uint64                    // number of the last message that was returned
	acked   uint64                    // up to which messages are acknowledged
	pending []jetstream.Msg           // returned, and not acknowledged
}

const (
	// ackPatience is how long the server waits for an acknowledgement. A later attempt does not
	// wait for it, it makes the consumer anew.
	ackPatience = 5 * time.Minute
	// forgotten is how long the server keeps the consumer of a job that does not go on.
	forgotten = 24 * time.Hour
	// leastPull is how many messages a request asks for at least: the client drops what is more
	// than twice as many, what the server says beside the messages counted. The consumer itself
	// gives no more than is wanted.
	leastPull = 256
	// aheadBytes bounds what the client holds of messages that were not asked for yet.
	aheadBytes = 8 << 20
)

// Subscribe makes a subscriber; the caller closes it. A stream of the queue itself is refused, and
// so is one that drops what no consumer wants: the consumer is made anew where an attempt ended
// before its messages were acknowledged, so that they come in their order.
func (u *Streams) Subscribe(ctx context.Context, s jobs.Subscription) (jobs.Subscriber, error) {
	switch {
	case s.Push != "":
		s.Stream, s.Subject = wire.PushStream, pushSubject(s.Push)
	case ownStream(s.Stream):
		return nil, jobs.Errorf(jobs.CodeInvalid, "stream %s: it belongs to the queue or a bucket, and is no source",
			s.Stream)
	}
	r := &subscriber{c: u.conn, s: s, last: s.After, acked: s.After}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// ownStream says whether a stream is the queue's, or a bucket's.
func ownStream(name string) bool {
	for _, own := range []string{"EXO_", "KV_", "OBJ_", "$"} {
		if strings.HasPrefix(name, own) {
			return true
		}
	}
	return false
}

// metaConsumer of a consumer's metadata says whose it is.
const metaConsumer = "exoswarm-owner"

// mark says whose consumer a subscription's is: the job's, or its tenant's where it outlives the
// job.
func (r *subscriber) mark() string {
	switch {
	case r.s.Push != "":
		return "push"
	case r.s.Keep && r.s.Owner.Shared():
		return "tenant:" + jobs.DefaultTenant
	case r.s.Keep:
		return "tenant:" + r.s.Owner.Tenant
	}
	return "job:" + r.s.Owner.Job
}

// ours reports whether a consumer was made here for that mark. Those of an earlier version have no
// mark, and names that say it.
func ours(c jetstream.ConsumerConfig, mark string) bool {
	have, ok := c.Metadata[metaConsumer]
	if !ok {
		return mark == "push" || strings.HasPrefix(mark, "job:") &&
			strings.HasPrefix(c.Durable, "exoswarm-"+strings.TrimPrefix(mark, "job:")+"-")
	}
	return have == mark
}

// Unsubscribe removes a consumer that a job has made for itself. One that is not there, or that
// somebody else has made, is left alone.
func (u *Streams) Unsubscribe(ctx context.Context, stream, consumer string) error {
	return u.conn.Retry(ctx, "remove consumer "+consumer, func(ctx context.Context) error {
		old, err := u.conn.JS.Consumer(ctx, stream, consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if mark, ok := old.CachedInfo().Config.Metadata[metaConsumer]; ok && !strings.HasPrefix(mark, "job:") || !ok &&
			!strings.HasPrefix(consumer, "exoswarm-") {
			return nil
		}
		err = u.conn.JS.DeleteConsumer(ctx, stream, consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// open makes the consumer ready, behind the last message that was returned.
func (r *subscriber) open(ctx context.Context) error {
	what := "subscribe to " + r.s.Subject + " of stream " + r.s.Stream
	err := r.c.Retry(ctx, what, func(ctx context.Context) error {
		stream, err := r.c.JS.Stream(ctx, r.s.Stream)
		if err != nil {
			return err
		}
		config := stream.CachedInfo().Config
		if config.Retention == jetstream.InterestPolicy {
			return jobs.Errorf(jobs.CodeInvalid, "stream %s drops messages that no consumer waits for (interest): "+
				"use one with limits or a work queue", r.s.Stream)
		}
		if len(config.Subjects) > 0 && len(config.Sources) == 0 &&
			!slices.ContainsFunc(config.Subjects, func(s string) bool { return overlap(s, r.s.Subject) }) {
			return jobs.Errorf(jobs.CodeInvalid, "stream %s does not hold %s, it holds %s: correct the source, or "+
				"the stream", r.s.Stream, r.s.Subject, strings.Join(config.Subjects, ", "))
		}
		consumer, err := r.consumer(ctx, stream, config.Retention == jetstream.WorkQueuePolicy)
		if err != nil {
			return err
		}
		r.it, err = consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(max(r.s.Ahead, leastPull),
			max(aheadBytes, 2*int(r.c.NC.MaxPayload()))), jetstream.PullExpiry(20*time.Second),
			jetstream.PullHeartbeat(time.Second))
		return err
	})
	var api *jetstream.APIError
	var typed *jobs.Error
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && r.last > r.s.After:
		return fmt.Errorf("%s: %w", what, jobs.ErrNotFound)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return jobs.Errorf(jobs.CodeInvalid, "there is no stream %s: make one that holds %s, because messages that "+
			"no stream keeps cannot be read again after a failure", r.s.Stream, r.s.Subject)
	case errors.As(err, &typed), errors.Is(err, jobs.ErrDenied):
		return err
	case errors.Is(err, jetstream.ErrNotPullConsumer), errors.As(err, &api) && api.Code >= 400 && api.Code < 500 &&
		!natsconn.IsTransient(err):
		return jobs.Errorf(jobs.CodeInvalid, "%s: %v: correct the source, or the stream", what, err)
	}
	return err
}

// consumer finds the durable consumer, or makes it. One with messages on the way, to an attempt
// that is over or over a connection that was lost, is made anew behind what is stored: those
// messages would come again behind later ones.
func (r *subscriber) consumer(ctx context.Context, stream jetstream.Stream, queue bool) (jetstream.Consumer, error) {
	config := jetstream.ConsumerConfig{
		Durable: r.s.Consumer, FilterSubject: r.s.Subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackPatience,
		MaxAckPending: r.s.Ahead, MaxDeliver: -1,
		Metadata: map[string]string{metaConsumer: r.mark()},
	}
	if !r.s.Keep {
		config.InactiveThreshold = forgotten
		config.MemoryStorage = !r.s.New // the source's position says where to go on
	}
	from := r.last
	old, err := stream.Consumer(ctx, r.s.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		if r.s.New && from == 0 {
			config.DeliverPolicy = jetstream.DeliverNewPolicy
		}
	case err != nil:
		return nil, err
	default:
		info := old.CachedInfo()
		if !ours(info.Config, r.mark()) {
			return nil, jobs.Errorf(jobs.CodeInvalid, "consumer %s of stream %s was not made for this job or its "+
				"tenant: name another", r.s.Consumer, r.s.Stream)
		}
		if info.Config.FilterSubject != r.s.Subject {
			return nil, jobs.Errorf(jobs.CodeInvalid, "consumer %s of stream %s is one of %s, not of %s: name "+
				"another", r.s.Consumer, r.s.Stream, info.Config.FilterSubject, r.s.Subject)
		}
		if info.NumAckPending == 0 && info.Delivered.Stream <= from && info.Config.MaxAckPending == r.s.Ahead ||
			from == 0 && info.Delivered.Consumer == 0 {
			return old, nil
		}
		from = max(from, info.AckFloor.Stream)
		if err := stream.DeleteConsumer(ctx, r.s.Consumer); err != nil &&
			!errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil, err
		}
	}
	if from > 0 && !queue { // a work queue holds nothing that was acknowledged
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from+1
	}
	made, err := stream.CreateConsumer(ctx, config)
	var api *jetstream.APIError
	// the server has not cleared the old one away: it answers that it cannot rename a file
	if errors.As(err, &api) && api.Code >= 500 {
		err = fmt.Errorf("%w: %w", nats.ErrTimeout, err)
	}
	return made, err
}

// overlap says whether a message can have a subject that matches both patterns.
func overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(x) && i < len(y); i++ {
		switch {
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
	return len(x) == len(y)
}

// Next implements jobs.Subscriber.
func (r *subscriber) Next(ctx context.Context) (jobs.Published, error) {
	for {
		if ctx.Err() != nil {
			return jobs.Published{}, context.Cause(ctx)
		}
		if r.it == nil {
			if err := r.open(ctx); err != nil {
				return jobs.Published{}, err
			}
		}
		m, err := r.it.Next(jetstream.NextContext(ctx))
		switch {
		case err == nil:
		case ctx.Err() != nil:
			continue
		case errors.Is(err, jetstream.ErrConsumerDeleted):
			return jobs.Published{}, fmt.Errorf("consumer %s of stream %s was removed: %w", r.s.Consumer, r.s.Stream,
				jobs.ErrFenced)
		default: // the connection was lost, and with it what was on the way
			r.Close()
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return jobs.Published{}, fmt.Errorf("read stream %s: %w", r.s.Stream, err)
		}
		seq := meta.Sequence.Stream
		switch {
		case seq <= r.acked:
			_ = m.Ack()
			continue
		case seq <= r.last:
			r.pending = append(r.pending, m)
			continue
		}
		r.last = seq
		r.pending = append(r.pending, m)
		return jobs.Published{Seq: seq, Data: m.Data()}, nil
	}
}

// Ack implements jobs.Subscriber. Only the last one is waited for: the server takes them in their
// order.
func (r *subscriber) Ack(ctx context.Context, seq uint64) {
	r.acked = max(r.acked, seq)
	var later []jetstream.Msg
	var last jetstream.Msg
	for _, m := range r.pending {
		meta, err := m.Metadata()
		switch {
		case err != nil:
		case meta.Sequence.Stream > seq:
			later = append(later, m)
		default:
			if last != nil {
				_ = last.Ack()
			}
			last = m
		}
	}
	r.pending = later
	if last != nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := last.DoubleAck(ctx); err != nil && !errors.Is(err, nats.ErrTimeout) && ctx.Err() == nil {
			_ = last.Ack()
		}
	}
}

// Close implements jobs.Subscriber.
func (r *subscriber) Close() {
	if r.it != nil {
		r.it.Stop()
		r.it = nil
	}
}
