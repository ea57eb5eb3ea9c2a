package swarmlog

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Headers of an entry. Its number is the sequence number of the message.
const (
	headerKind   = "Exo-Kind"
	headerRef    = "Exo-Ref"
	headerWriter = "Exo-Writer"
	headerNote   = "Exo-Note"
)

// Log is a swarms.Log: a stream with a single subject. It has no state but single, so a caller may
// make one per use.
type Log struct {
	c       *Swarms
	conn    *natsconn.Conn // of all messages of the log
	stream  string
	subject string

	template string // the name of the stream with placeholders, for traces

	single atomic.Bool // the stream takes no atomic batches: an earlier version made it
}

const logPrefix = "EXO_LOG_"

// Log returns a log of a shard without a request to the server. swarm is the key of the swarm
// (swarms.Swarm.Key), so two swarms of one id have different logs. The log need not exist.
func (sw *Swarms) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	stream := fmt.Sprintf("%s%s_%d_%s", logPrefix, swarm, shard, d)
	return &Log{
		c:       sw,
		conn:    sw.conn.Spread(swarm, shard),
		stream:  stream,
		subject: fmt.Sprintf("exo.log.%s.%d.%s", swarm, shard, d),

		template: logPrefix + "{swarm}_{shard}_" + string(d),
	}
}

// Create implements swarms.Log. A log that exists keeps its configuration, except for the replicas.
func (l *Log) Create(ctx context.Context, of ...swarms.Consistency) error {
	var want swarms.Consistency
	if len(of) > 0 {
		want = of[0]
	}
	if err := want.Validate(); err != nil {
		return fmt.Errorf("create log %s: %w", l.stream, err)
	}
	replicas, persist, fast := cmp.Or(want.Replicas, l.conn.Replicas), jetstream.DefaultPersistMode,
		want.Durability == swarms.Fast
	if fast { // which the server does not offer for replicated streams
		replicas, persist = 1, jetstream.AsyncPersistMode
	}
	began := time.Now()
	return l.conn.Retry(ctx, "create log "+l.stream, func(ctx context.Context) error {
		_, err := l.conn.JS.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name:     l.stream,
			Subjects: []string{l.subject},
			Replicas: replicas,
			// The server acknowledges messages of an asynchronous stream before they are on the
			// disk, and takes no atomic batches for it.
			PersistMode: persist,
			Retention:   jetstream.LimitsPolicy,
			Discard:     jetstream.DiscardNew,
			// Callers decide by the end of a log, so a replica that is behind must not answer.
			AllowDirect: false,

			AllowAtomicPublish: !fast,
			RePublish:          l.wakes(),
		})
		if replicas > 1 && natsconn.TooFewServers(err, time.Since(began)) {
			return jobs.Errorf(jobs.CodeInvalid, "%d replicas: the NATS server has not as many servers for streams "+
				"(%v): use fewer replicas, or add servers", replicas, err)
		}
		return err
	})
}

// wakes returns the configuration with which the server republishes the headers of the entries of a
// log of entries, for agents that have parked its shard (Wakes). It is nil for a log of answers.
func (l *Log) wakes() *jetstream.RePublish {
	if !strings.HasSuffix(l.template, "_"+string(swarms.In)) {
		return nil
	}
	return &jetstream.RePublish{Source: l.subject, Destination: wakeSubject(l.subject), HeadersOnly: true}
}

// Delete implements swarms.Log.
func (l *Log) Delete(ctx context.Context) error { return l.conn.DeleteStream(ctx, l.stream) }

// Trim removes the entries before number first.
func (l *Log) Trim(ctx context.Context, first uint64) error {
	return l.conn.Retry(ctx, "trim "+l.stream, func(ctx context.Context) error {
		s, err := l.conn.JS.Stream(ctx, l.stream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(first))
	})
}
