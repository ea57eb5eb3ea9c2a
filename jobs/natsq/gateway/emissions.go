package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Emissions writes and reads emissions. Its methods may be called from several goroutines.
type Emissions struct{ conn *natsconn.Conn }

// NewEmissions returns the emissions that a connection reaches. The connection stays the caller's.
func NewEmissions(c *natsconn.Conn) *Emissions { return &Emissions{c} }

// Emit stores an emission of the swarm with a key, unless it is stored. It returns when it is. The
// callers of one swarm and name emit in the order of the log, and a process that has lost the shard
// may emit at the same time as its successor: both make the same emissions, and the stream takes
// each once. It names the message before it, so what another writer stores in between is seen,
// however long ago the first call was.
func (l *Emissions) Emit(ctx context.Context, key string, e swarms.Emission) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an emission: %w", err)
	}
	subject := wire.EmissionSubject(key, e.Name)
	err = l.conn.Retry(ctx, "emit to "+subject, func(ctx context.Context) error {
		for {
			after := uint64(0)
			switch last, err := l.conn.LastOnce(ctx, wire.EmissionStream, subject); {
			case errors.Is(err, jobs.ErrNotFound):
			case err != nil:
				return err
			default:
				after = last.Seq
				// A message that cannot be read is not of this protocol, and is no emission.
				of, err := swarms.DecodeEmission(last.Data)
				if err == nil && of.Identity == e.Identity && !of.Before(e) {
					return nil
				}
			}
			m := &nats.Msg{Subject: subject, Data: data}
			natsconn.SetHeader(m, "Nats-Expected-Stream", wire.EmissionStream)
			answered := l.conn.Timed(natsconn.OpPublish)
			_, err := l.conn.JS.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(after),
				jetstream.WithRetryAttempts(0))
			answered(err)
			var api *jetstream.APIError
			if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
				api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
				continue // another writer, or the first try of this one, was faster
			}
			return err
		}
	})
	if err != nil {
		return fmt.Errorf("emit %s of round %d: %w", e.Name, e.Round, err)
	}
	return nil
}

// StoredEmission is an emission with its place in the stream.
type StoredEmission struct {
	swarms.Emission
	Seq  uint64    `json:"seq"`  // in the stream of all swarms
	Time time.Time `json:"time"` // when the server stored it, by its clock
}

// List calls fn with the emissions of the swarm with a key behind number after of the stream, in
// their order, until fn returns false. An empty name lists the emissions of all names. Messages
// that are no emissions are left out.
func (l *Emissions) List(ctx context.Context, key, name string, after uint64, fn func(StoredEmission) bool) error {
	if name == "" {
		name = "*"
	}
	subject := wire.EmissionSubject(key, name)
	for m, err := range l.conn.Each(ctx, "read "+subject, wire.EmissionStream, subject, after+1) {
		if err != nil {
			return fmt.Errorf("list emissions behind %s: %w", strconv.FormatUint(after, 10), err)
		}
		after = m.Seq
		e, err := swarms.DecodeEmission(m.Data)
		if err == nil && !fn(StoredEmission{e, m.Seq, m.Time}) {
			return nil
		}
	}
	return nil
}

// followEvery is the time between two reads of Follow.
const followEvery = 200 * time.Millisecond

// Follow is List that continues with later emissions. It returns nil when ctx ends.
func (l *Emissions) Follow(ctx context.Context, key, name string, after uint64, fn func(StoredEmission) bool) error {
	more := true
	for more {
		err := l.List(ctx, key, name, after, func(s StoredEmission) bool {
			after, more = s.Seq, fn(s)
			return more
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
	return nil
}
