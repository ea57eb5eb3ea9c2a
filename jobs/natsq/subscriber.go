package natsq

// This file reads and writes JetStream streams that belong to users, and the stream of pushed rows.
//
// A subscriber delivers the messages of a stream in their order, each once, although JetStream
// redelivers out of order. It keeps the messages that it has returned and that are not
// acknowledged. After a lost connection, or in a new attempt of the job, it removes the consumer
// and makes another one after the last stored message, so a redelivery never overtakes.

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

// Streams reads and writes the streams of users: sources subscribe to them, sinks publish to them,
// and the push server stores rows in a stream of the queue that works alike. Its methods may be
// called from several goroutines. It changes no stream, and only the consumers that it has made.
type Streams struct{ conn *natsconn.Conn }

// newStreams returns the streams that a connection reaches. The connection stays the caller's, and
// outlives all subscribers.
func newStreams(c *natsconn.Conn) *Streams { return &Streams{c} }

// subscriber is a jobs.Subscriber over a durable pull consumer. It is for one goroutine.
type subscriber struct {
	c       *natsconn.Conn
	s       jobs.Subscription
	it      jetstream.MessagesContext // nil if the consumer must be opened
	last    uint64                    // number of the last message that was returned
	acked   uint64                    // the last message that Ack has acknowledged
	pending []jetstream.Msg           // messages that were returned and not acknowledged
	next    uint64                    // number of the next delivery of the consumer
}

const (
	// ackPatience is how long the server waits for an acknowledgement. A later attempt does not
	// wait for that, because it makes a new consumer.
	ackPatience = 5 * time.Minute
	// forgotten is how long the server keeps the consumer of a job that is not read.
	forgotten = 24 * time.Hour
	// leastPull is the smallest number of messages per request. The client drops messages beyond
	// twice that number, and counts status messages of the server too. The limit of the consumer
	// (MaxAckPending) bounds the messages that come.
	leastPull = 256
	// aheadBytes bounds the memory of the client for messages that Next has not returned yet.
	aheadBytes = 8 << 20
)

// Subscribe returns a subscriber, which the caller closes. It fails with jobs.CodeInvalid for a
// stream of the queue itself, for a stream that does not have the subject, and for one with
// interest retention: such a stream could drop messages while the subscriber makes its consumer
// again.
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

func ownStream(name string) bool {
	for _, own := range []string{"EXO_", "KV_", "OBJ_", "$"} {
		if strings.HasPrefix(name, own) {
			return true
		}
	}
	return false
}

// metaConsumer is the key in the metadata of a consumer for its owner, see subscriber.mark.
const metaConsumer = "exoswarm-owner"

// mark returns the owner of the consumer: the job, or the tenant if the consumer outlives the job.
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

// ours reports whether a consumer was made for the owner in a mark. Consumers of earlier versions
// have no mark; their names show the owner.
func ours(c jetstream.ConsumerConfig, mark string) bool {
	have, ok := c.Metadata[metaConsumer]
	if !ok {
		return mark == "push" || strings.HasPrefix(mark, "job:") &&
			strings.HasPrefix(c.Durable, "exoswarm-"+strings.TrimPrefix(mark, "job:")+"-")
	}
	return have == mark
}

// Unsubscribe removes a consumer that a job has made for itself. It returns nil and changes nothing
// if there is no such consumer, or if it has another owner.
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

// open opens the consumer, so that it continues after the last message that was returned.
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
		r.next = consumer.CachedInfo().Delivered.Consumer + 1
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

// consumer finds the durable consumer, or makes it. A consumer with unacknowledged messages, of an
// ended attempt or a lost connection, is removed and made again after the last stored message.
// Otherwise those messages would come again after later ones.
func (r *subscriber) consumer(ctx context.Context, stream jetstream.Stream, queue bool) (jetstream.Consumer, error) {
	config := jetstream.ConsumerConfig{
		Durable: r.s.Consumer, FilterSubject: r.s.Subject, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackPatience,
		MaxAckPending: r.s.Ahead, MaxDeliver: -1,
		Metadata: map[string]string{metaConsumer: r.mark()},
	}
	if !r.s.Keep {
		config.InactiveThreshold = forgotten
		config.MemoryStorage = !r.s.New // the position of the source is enough to continue
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
	if from > 0 && !queue { // a work queue has no acknowledged messages
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, from+1
	}
	made, err := stream.CreateConsumer(ctx, config)
	var api *jetstream.APIError
	// While the server still removes the old consumer it answers that it cannot rename a file.
	if errors.As(err, &api) && api.Code >= 500 {
		err = fmt.Errorf("%w: %w", nats.ErrTimeout, err)
	}
	return made, err
}

// overlap reports whether a subject can match both patterns. A token "*" matches any token, and ">"
// one or more tokens at the end.
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

// Next implements jobs.Subscriber. It skips messages that it has returned before: one that is
// acknowledged is acknowledged again, and another one waits for Ack. When the connection is lost it
// opens the consumer again, after the last message that it has returned.
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
		default: // the connection was lost, with the messages on their way
			r.reset()
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return jobs.Published{}, fmt.Errorf("read stream %s: %w", r.s.Stream, err)
		}
		seq := meta.Sequence.Stream
		// A delivery is missing if another attempt reads the same consumer for a moment, and this one
		// was faster in the journal. Its messages would come later, behind those with higher numbers,
		// so the consumer is made again after the last message.
		if meta.Sequence.Consumer != r.next {
			r.reset()
			continue
		}
		r.next++
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

// Ack implements jobs.Subscriber. It waits only for the answer to the last acknowledgement, because
// the server handles them in their order.
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

// Close implements jobs.Subscriber. It gives the messages that are not acknowledged back, so that
// the server delivers them to the next subscriber at once and not after ackPatience.
func (r *subscriber) Close() {
	if r.it == nil {
		return
	}
	r.it.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for { // messages that have come and were not returned
		m, err := r.it.Next(jetstream.NextContext(ctx))
		if err != nil {
			break
		}
		r.pending = append(r.pending, m)
	}
	for _, m := range r.pending {
		_ = m.Nak()
	}
	r.pending = nil
	r.reset()
}

// reset ends the reading, so that Next opens the consumer again.
func (r *subscriber) reset() {
	if r.it != nil {
		r.it.Stop()
		r.it = nil
	}
}
