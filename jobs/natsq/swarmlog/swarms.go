package swarmlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Swarms reads and writes the state of swarms. Its methods may be called from several goroutines.
// Each call ends with its context, or with the patience of the connection.
type Swarms struct {
	conn   *natsconn.Conn
	agents Agents
	jobs   Jobs
	mode   wire.PublishMode // of appends
	// noConsumers reports whether the login may make no consumers: Scan was denied one.
	noConsumers atomic.Bool
}

// Agents lists the agents that are alive. It is a *telemetry.Registry. Its answers are hints, and
// only Census uses them.
type Agents interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
}

// Jobs reports whether a job has ended, or is not known. It is a *queue.Queue. Swarms of such jobs
// are orphans, so a wrong answer of true removes a swarm that is in use.
type Jobs interface {
	Over(ctx context.Context, id string) (bool, error)
}

// New returns the swarms that a connection reaches. The connection stays the caller's, and must not
// be closed before all readers, sessions and wake-ups have ended.
func New(c *natsconn.Conn, a Agents, j Jobs) *Swarms { return &Swarms{conn: c, agents: a, jobs: j} }

// CreateSwarm stores the record of a swarm and so claims its id. The caller creates the logs after
// it, so that no log is without a record. It fails with jobs.ErrExists if another swarm has the id;
// if the other swarm is being removed, its removal is completed first. A repeated call with the
// same record succeeds.
func (sw *Swarms) CreateSwarm(ctx context.Context, s swarms.Swarm) error {
	if err := s.Validate(); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("announce swarm %s: %w", s.ID, err)
	}
	for {
		r, err := sw.swarmRecord(ctx, s.ID)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
		case err != nil:
			return err
		case bytes.Equal(r.data, data):
			return nil
		case r.err == nil && r.swarm.Ending:
			if err := sw.RemoveSwarm(ctx, r.swarm); err != nil {
				return err
			}
			continue
		case r.swarm.Owner != "":
			return fmt.Errorf("swarm %s: %w: it is the swarm of the run of job %s: choose another name, or "+
				"wait until the job is over", s.ID, jobs.ErrExists, r.swarm.Owner)
		default:
			return fmt.Errorf("swarm %s: %w: remove it with exoswarm swarm delete %s, or choose another name", s.ID,
				jobs.ErrExists, s.ID)
		}
		err = sw.conn.CreateKey(ctx, "announce swarm "+s.ID, wire.SwarmBucket, s.ID, data)
		// Otherwise the next read tells whether another call stored a record, or this one.
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}

// ChangeSwarm applies change to the record of the swarm that s identifies, and returns the new
// record. It fails with jobs.ErrNotFound if the swarm was removed. change may be called several
// times, each time with the present record, and must not keep it.
func (sw *Swarms) ChangeSwarm(ctx context.Context, s swarms.Swarm, change func(*swarms.Swarm)) (swarms.Swarm, error) {
	for {
		r, err := sw.swarmRecord(ctx, s.ID)
		if err == nil && r.swarm.Identity() != s.Identity() {
			err = fmt.Errorf("swarm %s: %w: it was removed, and another one was made in its place", s.ID,
				jobs.ErrNotFound)
		}
		if err != nil {
			return s, err
		}
		changed := r.swarm
		change(&changed)
		if err := changed.Validate(); err != nil {
			return s, err
		}
		data, err := json.Marshal(changed)
		if err != nil {
			return s, fmt.Errorf("change swarm %s: %w", s.ID, err)
		}
		if bytes.Equal(data, r.data) {
			return changed, nil
		}
		err = sw.conn.InBucket(ctx, "change swarm "+s.ID, wire.SwarmBucket,
			func(ctx context.Context, kv jetstream.KeyValue) error {
				_, err := kv.Update(ctx, s.ID, data, r.revision)
				return err
			})
		if err == nil || !natsconn.IsWrongRevision(err) {
			return changed, err
		}
	}
}

// RemoveSwarm removes the swarm that s identifies. In this order: the record is marked as ending,
// so that agents stop to serve it; its logs are removed; then its leases and its record. It never
// changes another swarm of the same id. For a swarm without a record it removes the logs that are
// left. The call may be repeated after an error.
func (sw *Swarms) RemoveSwarm(ctx context.Context, s swarms.Swarm) error {
	for {
		r, err := sw.swarmRecord(ctx, s.ID)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return sw.removeLogs(ctx, s.Key())
		case err != nil:
			return err
		case r.swarm.Identity() != s.Identity() && r.swarm.Key() == s.Key():
			// Records of earlier versions share the names of their logs, which may be in use.
			return nil
		case r.swarm.Identity() != s.Identity():
			return sw.removeLogs(ctx, s.Key())
		case r.err == nil && !r.swarm.Ending: // no agent may serve it, or make its logs again
			if _, err := sw.ChangeSwarm(ctx, s, func(s *swarms.Swarm) { s.Ending = true }); err != nil &&
				!errors.Is(err, jobs.ErrNotFound) {
				return err
			}
			continue
		}
		if err := sw.removeLogs(ctx, s.Key()); err != nil {
			return err
		}
		if err := sw.forgetSubmissions(ctx, r.swarm); err != nil {
			return err
		}
		if s.OwnerJob() == "" {
			if err := sw.forgetLeases(ctx, s.Key()); err != nil {
				return err
			}
		}
		err = sw.conn.InBucket(ctx, "delete swarm "+s.ID, wire.SwarmBucket,
			func(ctx context.Context, kv jetstream.KeyValue) error {
				return kv.Purge(ctx, s.ID, jetstream.LastRevision(r.revision))
			})
		if err == nil || !natsconn.IsWrongRevision(err) {
			return err
		}
	}
}

func (sw *Swarms) removeLogs(ctx context.Context, key string) error {
	var all []string
	what := "list the logs of swarm " + key
	err := sw.conn.Retry(ctx, what, func(ctx context.Context) error {
		all = nil
		names := sw.conn.JS.StreamNames(ctx, jetstream.WithStreamListSubject("exo.log."+key+".>"))
		for name := range names.Name() {
			if strings.HasPrefix(name, logPrefix+key+"_") { // a stream of another program may have such a subject
				all = append(all, name)
			}
		}
		return names.Err()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for _, name := range all {
		if err := sw.conn.DeleteStream(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// forgetLeases removes the leases of the swarm with a key, and the marks of leases that were given
// back. No later swarm has leases of these names, so they would stay for ever. CPU agents, which
// remove the swarms of runs, are not allowed to purge leases, and skip this.
func (sw *Swarms) forgetLeases(ctx context.Context, key string) error {
	_, err := sw.conn.Purge(ctx, "KV_"+wire.LeaseBucket, "$KV."+wire.LeaseBucket+"."+key+".*")
	if errors.Is(err, jobs.ErrDenied) {
		return nil
	}
	return err
}

// forgetSubmissions removes the marks of jobs that rules of the swarm have submitted. A submission
// in progress names a mark that is gone then, so it reads the record again, and finds the end of
// the swarm.
func (sw *Swarms) forgetSubmissions(ctx context.Context, s swarms.Swarm) error {
	all, err := s.JobsOf()
	if err != nil {
		return nil //nolint:nilerr // a record that cannot be read has submitted none
	}
	for name := range all {
		if jobs.CheckID("job", name) != nil {
			continue
		}
		_, err := sw.conn.Purge(ctx, wire.WaitStream, wire.SubmittedSubject(s.Key(), name, "*"))
		if err != nil {
			return err
		}
	}
	return nil
}

type record struct {
	swarm    swarms.Swarm
	err      error // why it cannot be read
	data     []byte
	revision uint64
}

// swarmRecord reads a record. It fails with jobs.ErrNotFound if there is none. A record that cannot
// be decoded is no error of the call; record.err has it.
func (sw *Swarms) swarmRecord(ctx context.Context, id string) (r record, err error) {
	if err := jobs.CheckID("swarm", id); err != nil {
		return r, err
	}
	var m *natsconn.Message
	err = sw.conn.Retry(ctx, "read the record of swarm "+id, func(ctx context.Context) (err error) {
		m, err = sw.conn.LastOnce(ctx, "KV_"+wire.SwarmBucket, "$KV."+wire.SwarmBucket+"."+id)
		return err
	})
	if err == nil && natsconn.IsTombstone(m.Header) {
		err = jobs.ErrNotFound
	}
	if errors.Is(err, jobs.ErrNotFound) {
		err = fmt.Errorf("swarm %s: %w: exoswarm swarm list shows those there are", id, jobs.ErrNotFound)
	}
	if err != nil {
		return r, err
	}
	r = record{data: m.Data, revision: m.Seq}
	r.swarm, r.err = readSwarm(id, m.Data)
	return r, nil
}

// Swarm returns the record of a swarm as the leader of the bucket has it. It fails with
// jobs.ErrNotFound if there is surely none, see natsconn.Conn.Sure: callers end jobs by that.
func (sw *Swarms) Swarm(ctx context.Context, id string) (swarms.Swarm, error) {
	var r record
	err := sw.conn.Sure(ctx, "KV_"+wire.SwarmBucket, func() (err error) {
		r, err = sw.swarmRecord(ctx, id)
		return err
	})
	return r.swarm, cmp.Or(err, r.err)
}

// Swarms lists the swarms, ordered by id, including swarms that are being removed. A swarm whose
// record cannot be read has an error. It needs no consumer, so a viewer may call it.
func (sw *Swarms) Swarms(ctx context.Context) (all []swarms.Change, err error) {
	err = sw.conn.Values(ctx, "list swarms", wire.SwarmBucket, func(key string, m *natsconn.Message) {
		ch := swarms.Change{ID: key}
		ch.Swarm, ch.Err = readSwarm(key, m.Data)
		all = append(all, ch)
	})
	return all, err
}

// readSwarm decodes the record of a swarm, which any client with the permission may have written.
// With an error it returns the fields that it could read, and the id of the key.
func readSwarm(key string, value []byte) (s swarms.Swarm, err error) {
	err = json.Unmarshal(value, &s)
	was := s.ID
	s.ID = key
	switch {
	case err != nil:
		return s, jobs.Errorf(jobs.CodeInvalid, "record of swarm %s: %v", key, err)
	case was != key:
		return s, jobs.Errorf(jobs.CodeInvalid, "record of swarm %s: its id is %.100q", key, was)
	}
	return s, s.Validate()
}

// WatchSwarms calls fn for every swarm and for every later change, one call at a time, until ctx
// ends. If the bucket is restored to an earlier state or made again, fn gets the swarms that exist
// then, and the removal of swarms that do not exist any more. It returns an error only if the
// bucket cannot be watched at all.
func (sw *Swarms) WatchSwarms(ctx context.Context, fn func(swarms.Change)) error {
	err := sw.conn.WatchBucket(ctx, wire.SwarmBucket, func(u jetstream.KeyValueEntry) {
		ch := swarms.Change{ID: u.Key(), Gone: u.Operation() != jetstream.KeyValuePut}
		if !ch.Gone {
			ch.Swarm, ch.Err = readSwarm(u.Key(), u.Value())
			ch.Gone = ch.Err == nil && ch.Swarm.Ending
		}
		fn(ch)
	})
	if err != nil {
		return fmt.Errorf("watch swarms: %w", err)
	}
	return nil
}
