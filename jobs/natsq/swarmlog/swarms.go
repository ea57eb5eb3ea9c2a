// Package swarmlog keeps the state of swarms on the server: their records, the logs of their
// shards, and the leases of the agents that serve them.
package swarmlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/publishmode"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Swarms reads and writes the state of swarms. Its methods may be called from several goroutines.
type Swarms struct {
	conn   *natsconn.Conn
	agents Agents
	jobs   Jobs
	mode   publishmode.Mode // of appends
}

// Agents lists the agents that are alive. It is a *registry.Registry.
type Agents interface {
	Agents(ctx context.Context) ([]jobs.Agent, error)
}

// Jobs reports whether a job has ended, or never existed. Swarms of such jobs are orphans.
type Jobs interface {
	Over(ctx context.Context, id string) (bool, error)
}

// New returns the swarms that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn, a Agents, j Jobs) *Swarms { return &Swarms{conn: c, agents: a, jobs: j} }

// CreateSwarm announces a swarm and claims its id. It is called before the swarm's logs are made,
// so that no log is without a record. It fails with jobs.ErrExists when another swarm has the id;
// one that is being removed is removed first. A call that is repeated with the same record
// succeeds.
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
			return fmt.Errorf("swarm %s: %w: it is that of the run of job %s: choose another name, or wait until "+
				"that is over", s.ID, jobs.ErrExists, r.swarm.Owner)
		default:
			return fmt.Errorf("swarm %s: %w: remove it with exoswarm swarm delete %s, or choose another name", s.ID,
				jobs.ErrExists, s.ID)
		}
		err = sw.conn.InBucket(ctx, "announce swarm "+s.ID, wire.SwarmBucket,
			func(ctx context.Context, kv jetstream.KeyValue) error {
				_, err := kv.Create(ctx, s.ID, data)
				return err
			})
		// else somebody was faster, or it was this call and its answer was lost
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}

// ChangeSwarm has change change the record of the swarm that s is a record of, and returns the new
// one. It fails with jobs.ErrNotFound when that swarm is not there any more. change may be called
// several times.
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

// RemoveSwarm ends the swarm that s is a record of: whoever serves it gives its memory back, its
// logs go, and then its record. It never touches another swarm of the same id. A swarm that is not
// there is no error, and what is left of its logs goes.
func (sw *Swarms) RemoveSwarm(ctx context.Context, s swarms.Swarm) error {
	for {
		r, err := sw.swarmRecord(ctx, s.ID)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			return sw.removeLogs(ctx, s.Key())
		case err != nil:
			return err
		case r.swarm.Identity() != s.Identity() && r.swarm.Key() == s.Key():
			// of earlier versions, whose logs have one name
			return nil
		case r.swarm.Identity() != s.Identity():
			return sw.removeLogs(ctx, s.Key())
		case r.err == nil && !r.swarm.Ending: // first of all nobody is to serve it, or to write its logs anew
			if _, err := sw.ChangeSwarm(ctx, s, func(s *swarms.Swarm) { s.Ending = true }); err != nil &&
				!errors.Is(err, jobs.ErrNotFound) {
				return err
			}
			continue
		}
		if err := sw.removeLogs(ctx, s.Key()); err != nil {
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

// removeLogs removes all logs of the swarm with that key.
func (sw *Swarms) removeLogs(ctx context.Context, key string) error {
	var all []string
	what := "list the logs of swarm " + key
	err := sw.conn.Retry(ctx, what, func(ctx context.Context) error {
		all = nil
		names := sw.conn.JS.StreamNames(ctx, jetstream.WithStreamListSubject("exo.log."+key+".>"))
		for name := range names.Name() {
			if strings.HasPrefix(name, logPrefix+key+"_") { // a stream of somebody else's may have such a subject too
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

// forgetLeases removes the leases of the swarm with that key and the marks of those that were given
// back: no later swarm has leases of these names, so they would stay for ever. Agents, who remove
// the swarms of runs, may not purge leases.
func (sw *Swarms) forgetLeases(ctx context.Context, key string) error {
	_, err := sw.conn.Purge(ctx, "KV_"+wire.LeaseBucket, "$KV."+wire.LeaseBucket+"."+key+".*")
	if errors.Is(err, jobs.ErrDenied) {
		return nil
	}
	return err
}

// record is a swarm's record as the leader of the bucket has it.
type record struct {
	swarm    swarms.Swarm
	err      error // why it cannot be read
	data     []byte
	revision uint64
}

// swarmRecord reads a record; jobs.ErrNotFound when there is none.
func (sw *Swarms) swarmRecord(ctx context.Context, id string) (r record, err error) {
	if err := jobs.CheckID("swarm", id); err != nil {
		return r, err
	}
	var m *natsconn.Message
	err = sw.conn.Retry(ctx, "read the record of swarm "+id, func(ctx context.Context) (err error) {
		m, err = sw.conn.LastOnce(ctx, "KV_"+wire.SwarmBucket, "$KV."+wire.SwarmBucket+"."+id)
		return err
	})
	if err == nil && (m.Header.Get("KV-Operation") != "" || m.Header.Get(jetstream.MarkerReasonHeader) != "") {
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

// Swarm returns the record of a swarm, as the leader of the records has it; jobs.ErrNotFound when
// there is none.
func (sw *Swarms) Swarm(ctx context.Context, id string) (swarms.Swarm, error) {
	r, err := sw.swarmRecord(ctx, id)
	return r.swarm, cmp.Or(err, r.err)
}

// Swarms lists the swarms there are, by id, those that are being removed too. One whose record
// cannot be read has its error.
func (sw *Swarms) Swarms(ctx context.Context) (all []swarms.Change, err error) {
	err = sw.conn.Retry(ctx, "list swarms", func(ctx context.Context) error {
		all = nil
		kv, err := sw.conn.JS.KeyValue(ctx, wire.SwarmBucket)
		if err != nil {
			return err
		}
		w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
		if err != nil {
			return err
		}
		defer func() { _ = w.Stop() }()
		for {
			select {
			case u, ok := <-w.Updates():
				switch {
				case !ok:
					return jobs.ErrUnavailable
				case u == nil: // that was all
					slices.SortFunc(all, func(a, b swarms.Change) int { return cmp.Compare(a.ID, b.ID) })
					return nil
				}
				ch := swarms.Change{ID: u.Key()}
				ch.Swarm, ch.Err = readSwarm(u.Key(), u.Value())
				all = append(all, ch)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return all, err
}

// readSwarm reads a swarm's record, which may be a stranger's. Beside an error what could be read
// is returned, with the id.
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

// WatchSwarms calls fn for every swarm there is and for every change afterwards, one call at a
// time, until ctx ends. When the records are put back to an earlier state, or made anew, fn hears
// what there is then, and which swarms are gone. It fails when the records cannot be watched at
// all.
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
