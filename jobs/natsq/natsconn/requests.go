package natsconn

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// Op is a kind of request to the server, the label op of its metrics.
type Op string

// The kinds of requests. A request that waits for messages is not counted: its time depends on the
// queue.
const (
	OpPublish Op = "publish" // stores messages
	OpFetch   Op = "fetch"   // asks a consumer for the messages that it has now
	OpGet     Op = "get"     // reads a stored message
	OpBucket  Op = "kv"      // reads or writes a key of a bucket, with the lookup of the bucket
	OpAPI     Op = "api"     // creates, changes, lists or removes streams, consumers or messages
)

// Reasons for which a request has no answer, or one of a server that cannot do its work. Another
// error of the server, such as a wrong revision, is an answer.
const (
	reasonTimeout      = "timeout"
	reasonNoResponders = "no_responders"
	reasonNoLeader     = "no_leader"
	reasonFull         = "full"
	reasonUnreachable  = "unreachable"
)

type requests struct {
	seconds  *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// newRequests returns the metrics of requests. All series exist from the start, at 0.
func newRequests() *requests {
	r := &requests{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exoswarm_nats_request_seconds", Help: "Time of a request to the NATS server until its answer, by " +
				"operation, requests without an answer included. Each try of a request counts; one that waits for " +
				"new messages does not.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 4, 9), // to 16 s
		}, []string{"op"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exoswarm_nats_request_failures_total", Help: "Tries of requests to the NATS server that failed, " +
				"by operation and reason. Most are tried again. full: the server stores nothing more.",
		}, []string{"op", "reason"}),
	}
	for _, op := range []Op{OpPublish, OpFetch, OpGet, OpBucket, OpAPI} {
		r.seconds.WithLabelValues(string(op))
		for _, reason := range []string{
			reasonTimeout, reasonNoResponders, reasonNoLeader, reasonFull, reasonUnreachable,
		} {
			r.failures.WithLabelValues(string(op), reason)
		}
	}
	return r
}

// Timed begins to measure a request. The caller calls answered with the error of the request once.
// A request that its caller has cancelled is not counted.
func (c *Conn) Timed(op Op) (answered func(err error)) {
	if c.requests == nil {
		return func(error) {}
	}
	began := time.Now()
	return func(err error) {
		if errors.Is(err, context.Canceled) {
			return
		}
		c.requests.seconds.WithLabelValues(string(op)).Observe(time.Since(began).Seconds())
		if reason := failure(err); reason != "" {
			c.requests.failures.WithLabelValues(string(op), reason).Inc()
		}
	}
}

// failure returns the reason for which a request failed, or the empty string for an answer.
func failure(err error) string {
	switch {
	case err == nil:
		return ""
	case IsNoSpace(err):
		return reasonFull
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return reasonNoResponders
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return reasonTimeout
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrReconnectBufExceeded):
		return reasonUnreachable
	case IsTransient(err):
		return reasonNoLeader
	}
	return ""
}
