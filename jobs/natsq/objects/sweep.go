package objects

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Objects belong to jobs (jobs.Owner, in the object's metadata) and have no age of their own. A
// sweeper in each CPU agent removes those whose job is gone for longer than a grace time. Nothing
// is counted, so a process that is killed leaves nothing that has to be set right: what refers to
// an object is what the streams hold.

const (
	objectStream = "OBJ_" + wire.ObjectBucket
	objectMeta   = "$O." + wire.ObjectBucket + ".M."
	objectChunks = "$O." + wire.ObjectBucket + ".C."
	metaJob      = "exo-job"
	metaTenant   = "exo-tenant"
	// Grace is how long an object outlives its job: a submitter stores objects before the job, and
	// an upload takes its time.
	Grace = time.Hour
)

// Object is an object as the store has it.
type Object struct {
	Name string `json:"name"`
	jobs.Owner
	Size   uint64    `json:"size"`
	Stored time.Time `json:"stored"`
	// State says why it is there: its job is known, its job is gone, or it has none.
	State State `json:"state"`

	nuid string
	at   *natsconn.Message // its description; without data
}

// State says what an object's job is.
type State string

// The states of an object.
const (
	Kept     State = "kept"     // its job is known
	Orphaned State = "orphaned" // nothing is known of its job
	Unowned  State = "unowned"  // it belongs to no job and stays until it is deleted
)

// ownerOf reads an object's owner, of one that an earlier version stored from its name.
func ownerOf(info jetstream.ObjectInfo) jobs.Owner {
	if id, ok := info.Metadata[metaJob]; ok {
		return jobs.Owner{Tenant: info.Metadata[metaTenant], Job: id}
	}
	kind, rest, _ := strings.Cut(info.Name, "-")
	switch i := strings.LastIndexByte(rest, '-'); {
	case (kind == "spec" || kind == "input") && i > 0:
		rest = rest[:i]
	case kind == "manifest" || kind == "summary" || kind == "output" || kind == "rejects":
	default:
		return jobs.Owner{}
	}
	if jobs.CheckID("job id", rest) != nil {
		return jobs.Owner{}
	}
	return jobs.Owner{Job: rest}
}

func metaSubject(name string) string {
	return objectMeta + base64.URLEncoding.EncodeToString([]byte(name))
}

// Objects calls fn with every object and its state, in the order in which they were stored, until
// fn returns false. It reads one at a time.
func (st *Store) Objects(ctx context.Context, fn func(Object) bool) error {
	known := map[string]bool{} // by id of the job: objects of one stand together mostly
	return st.eachObject(ctx, func(o Object) (bool, error) {
		if o.Job != "" {
			alive, ok := known[o.Job]
			if !ok {
				var err error
				if alive, err = st.referred(ctx, o.Job); err != nil {
					return false, err
				}
				if len(known) > 10_000 {
					clear(known)
				}
				known[o.Job] = alive
			}
			if o.State = Kept; !alive {
				o.State = Orphaned
			}
		}
		return fn(o), nil
	})
}

// eachObject lists the objects, all in the state Unowned.
func (st *Store) eachObject(ctx context.Context, fn func(Object) (bool, error)) error {
	for seq := uint64(1); ; seq++ {
		var m *natsconn.Message
		err := st.conn.Retry(ctx, "list objects", func(ctx context.Context) (err error) {
			m, err = st.conn.NextOnce(ctx, objectStream, objectMeta+">", seq)
			return err
		})
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		seq = m.Seq
		var info jetstream.ObjectInfo
		if json.Unmarshal(m.Data, &info) != nil || info.Deleted {
			continue
		}
		m.Data = nil
		o := Object{
			Name: info.Name, Owner: ownerOf(info), Size: info.Size, Stored: m.Time, State: Unowned,
			nuid: info.NUID, at: m,
		}
		if more, err := fn(o); err != nil || !more {
			return err
		}
	}
}

// referred reports whether anything is known of a job: that it waits, is delayed, queued or runs,
// its result, its dead letter or its swarm.
func (st *Store) referred(ctx context.Context, id string) (bool, error) {
	if jobs.CheckID("job id", id) != nil {
		return true, nil // nobody can know
	}
	m, err := st.conn.Last(ctx, "KV_"+wire.SwarmBucket, "$KV."+wire.SwarmBucket+"."+id)
	switch {
	case err == nil && m.Header.Get("KV-Operation") == "" && m.Header.Get(jetstream.MarkerReasonHeader) == "":
		return true, nil
	case err != nil && !errors.Is(err, jobs.ErrNotFound):
		return false, err
	}
	return st.known(ctx, id)
}

// remove takes an object away unless it was stored anew since.
func (st *Store) remove(ctx context.Context, o Object) error {
	return st.conn.Retry(ctx, "delete object "+o.Name, func(ctx context.Context) error {
		// The description first: a reader finds the object whole or not at all. Chunks that a kill
		// leaves behind go with the next sweep.
		if _, err := st.conn.PurgeOnce(ctx, objectStream, o.at.Subject, o.at.Seq+1); err != nil {
			return err
		}
		_, err := st.conn.PurgeOnce(ctx, objectStream, objectChunks+o.nuid, 0)
		return err
	})
}

// SweepObjects removes the objects whose job is gone, and which were stored longer than grace ago,
// as were all others of that job; show is called with each. With dry nothing is removed.
func (st *Store) SweepObjects(ctx context.Context, grace time.Duration, dry bool, show func(Object)) error {
	s := &objectSweep{c: st, grace: grace, dry: dry, show: show}
	return s.pass(ctx)
}

// objectSweep is what a sweeper remembers from one pass to the next.
type objectSweep struct {
	c     *Store
	grace time.Duration
	dry   bool
	show  func(Object)
	// seen is when a job was first seen to be gone; nil where one pass decides.
	seen map[string]time.Time
	rest time.Duration // between two jobs, so that a sweep leaves the servers to others
}

// pass looks at all objects once.
func (s *objectSweep) pass(ctx context.Context) error {
	began := time.Now()
	chunks, err := s.chunks(ctx) // before the descriptions: an upload that ends meanwhile has one
	if err != nil {
		return err
	}
	byJob := map[string][]Object{}
	newest := map[string]time.Time{}
	err = s.c.eachObject(ctx, func(o Object) (bool, error) {
		delete(chunks, o.nuid)
		if o.Job != "" {
			byJob[o.Job] = append(byJob[o.Job], o)
			if o.Stored.After(newest[o.Job]) {
				newest[o.Job] = o.Stored
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for id := range s.seen {
		if byJob[id] == nil {
			delete(s.seen, id)
		}
	}
	for id, objects := range byJob {
		if began.Sub(newest[id]) < s.grace {
			delete(s.seen, id)
			continue
		}
		if err := pauseFor(ctx, s.rest); err != nil {
			return err
		}
		alive, err := s.c.referred(ctx, id)
		if err != nil {
			return err
		}
		if alive {
			delete(s.seen, id)
			continue
		}
		if s.seen != nil {
			since, ok := s.seen[id]
			if !ok {
				s.seen[id] = time.Now()
				continue
			}
			if time.Since(since) < s.grace {
				continue
			}
		}
		for _, o := range objects {
			o.State = Orphaned
			if !s.dry {
				if err := s.c.remove(ctx, o); err != nil {
					return err
				}
			}
			s.show(o)
		}
		delete(s.seen, id)
	}
	for nuid := range chunks { // of uploads that were broken off, and of objects half removed
		m, err := s.c.conn.Last(ctx, objectStream, objectChunks+nuid)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && began.Sub(m.Time) < s.grace {
			continue
		}
		if err == nil && !s.dry {
			_, err = s.c.conn.Purge(ctx, objectStream, objectChunks+nuid)
		}
		if err != nil {
			return err
		}
		s.show(Object{Name: "part of an upload, " + nuid, Stored: m.Time, State: Orphaned})
	}
	return nil
}

// chunks lists the contents that the store has, by their names there.
func (s *objectSweep) chunks(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	err := s.c.conn.Retry(ctx, "list the contents of objects", func(ctx context.Context) error {
		stream, err := s.c.conn.JS.Stream(ctx, objectStream)
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(objectChunks+">"))
		if err != nil {
			return err
		}
		for subject := range info.State.Subjects {
			all[strings.TrimPrefix(subject, objectChunks)] = true
		}
		return nil
	})
	return all, err
}

func pauseFor(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// KeepObjects sweeps until ctx ends: an object goes when its job was seen to be gone for as long as
// grace. Several agents may do so at once.
func (st *Store) KeepObjects(ctx context.Context, grace time.Duration, log *slog.Logger) {
	s := &objectSweep{
		c: st, grace: grace, seen: map[string]time.Time{}, rest: 20 * time.Millisecond,
		show: func(o Object) {
			log.Info("removed an object whose job is gone", "object", o.Name, "job", o.Job, "stored", o.Stored)
		},
	}
	if age, err := st.objectAge(ctx); err == nil && age > 0 {
		log.Warn("objects are removed by their age, whoever needs them: run exoswarm init --yes", "age", age)
	}
	every := min(max(grace/4, 100*time.Millisecond), 10*time.Minute)
	for {
		if pauseFor(ctx, every/2+rand.N(every)) != nil {
			return
		}
		if err := s.pass(ctx); err != nil && ctx.Err() == nil {
			log.Warn("looking for objects whose job is gone", "error", err)
		}
	}
}

// objectAge is the age at which the store removes objects: none, unless an earlier version made it.
func (st *Store) objectAge(ctx context.Context) (time.Duration, error) {
	var age time.Duration
	err := st.conn.Retry(ctx, "look at the object store", func(ctx context.Context) error {
		s, err := st.conn.JS.Stream(ctx, objectStream)
		if err == nil {
			age = s.CachedInfo().Config.MaxAge
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("age of objects: %w", err)
	}
	return age, nil
}
