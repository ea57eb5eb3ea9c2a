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

	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

const (
	objectStream = "OBJ_" + wire.ObjectBucket
	objectMeta   = "$O." + wire.ObjectBucket + ".M."
	objectChunks = "$O." + wire.ObjectBucket + ".C."
	metaJob      = "exo-job"
	metaTenant   = "exo-tenant"
	// Grace is how long an object outlives its job. It covers the time from the upload of an object
	// to the submission of its job.
	Grace = time.Hour
)

// Object describes a stored object.
type Object struct {
	Name string `json:"name"`
	jobs.Owner
	Size   uint64    `json:"size"`
	Stored time.Time `json:"stored"`
	State  State     `json:"state"`

	nuid string
	at   *natsconn.Message // its description, without data
}

// State tells whether a job needs an object. It is found out when the object is listed, and not
// stored.
type State string

// The states of an object. A sweep removes orphaned objects after the grace time, and no others.
const (
	Kept     State = "kept"     // its job is known
	Orphaned State = "orphaned" // nothing is known of its job
	Unowned  State = "unowned"  // it belongs to no job and stays until it is deleted
)

// ownerOf returns the owner of an object, or the zero owner for an object that belongs to no job.
// It reads it from its metadata. The objects of earlier versions have none; their names contain the
// id of the job.
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
// fn returns false. It reads one description at a time.
func (st *Store) Objects(ctx context.Context, fn func(Object) bool) error {
	known := map[string]bool{} // by id of the job; objects of one job are mostly next to each other
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

// eachObject calls fn with every object, in the state Unowned, until fn returns false or an error.
func (st *Store) eachObject(ctx context.Context, fn func(Object) (bool, error)) error {
	for m, err := range st.conn.Each(ctx, "list objects", objectStream, objectMeta+">", 1) {
		if err != nil {
			return err
		}
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
	return nil
}

// referred reports whether a job may still need its objects: it has not ended, or its result, its
// dead letter or its swarm exists.
func (st *Store) referred(ctx context.Context, id string) (bool, error) {
	if jobs.CheckID("job id", id) != nil {
		return true, nil // no stream can be asked for such an id
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

// remove removes an object, unless it was replaced since o was read.
func (st *Store) remove(ctx context.Context, o Object) error {
	return st.conn.Retry(ctx, "delete object "+o.Name, func(ctx context.Context) error {
		// The description goes first, so that a reader finds a complete object or none. A sweep
		// removes chunks that are left when the process dies in between.
		if _, err := st.conn.PurgeOnce(ctx, objectStream, o.at.Subject, o.at.Seq+1); err != nil {
			return err
		}
		_, err := st.conn.PurgeOnce(ctx, objectStream, objectChunks+o.nuid, 0)
		return err
	})
}

// SweepObjects makes one pass: it removes the objects whose job is not known, if all objects of
// that job are older than grace. It calls show with each of them. With dry it removes nothing.
func (st *Store) SweepObjects(ctx context.Context, grace time.Duration, dry bool, show func(Object)) error {
	s := &objectSweep{c: st, grace: grace, dry: dry, show: show}
	return s.pass(ctx)
}

// objectSweep is a sweeper with its state between two passes. It is for one goroutine.
//
// A job may be unknown for a moment although it exists, for example between the upload of its
// objects and its submission. So one pass removes the objects of a job only if all of them are old,
// and a sweeper with several passes only if the job was unknown for the whole grace time.
type objectSweep struct {
	c     *Store
	grace time.Duration
	dry   bool
	show  func(Object)
	// seen is when a job was first found to be unknown; nil if one pass decides.
	seen map[string]time.Time
	rest time.Duration // pause between two jobs, which limits the load of the servers
}

// pass reads all objects once, and removes the objects that may go.
func (s *objectSweep) pass(ctx context.Context) error {
	began := time.Now()
	// The chunks are listed before the descriptions, so an upload that ends meanwhile has a
	// description.
	chunks, err := s.chunks(ctx)
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
		if err := retry.Sleep(ctx, s.rest); err != nil {
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
	for nuid := range chunks { // of interrupted uploads, and of objects that were removed in part
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

// chunks returns the ids of all contents in the store. The server reads the subjects of all chunks
// for it, so a pass is expensive for a store with many objects.
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

// KeepObjects makes passes until ctx ends. It removes an object when its job was unknown for as
// long as grace, at two passes at least. Several agents may do so at the same time.
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
		if retry.Sleep(ctx, every/2+rand.N(every)) != nil {
			return
		}
		if err := s.pass(ctx); err != nil && ctx.Err() == nil {
			log.Warn("looking for objects whose job is gone", "error", err)
		}
	}
}

// objectAge returns the age at which the server removes objects, or 0. Only a bucket that an
// earlier version has made has such an age.
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
