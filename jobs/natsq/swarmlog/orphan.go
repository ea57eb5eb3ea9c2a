package swarmlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Orphan is what is left of a swarm that nobody removes: the job that it belonged to is over, or
// its removal was interrupted.
type Orphan struct {
	Swarm  swarms.Swarm `json:"swarm"`         // its record; of logs without one an id and a nonce
	Logs   []string     `json:"logs"`          // the streams of its logs
	Job    string       `json:"job,omitempty"` // whose run it was, where its record says so
	Reason string       `json:"reason"`
	record bool         // it has a record
}

// Orphans lists the orphans, by id. A swarm that is being removed at this moment may be among them.
func (sw *Swarms) Orphans(ctx context.Context) ([]Orphan, error) {
	logs, err := sw.logsByKey(ctx) // before the records: each swarm has its record before its logs
	if err != nil {
		return nil, err
	}
	records, err := sw.Swarms(ctx)
	if err != nil {
		return nil, err
	}
	var all []Orphan
	for _, r := range records {
		key := r.Swarm.Key()
		o := Orphan{Swarm: r.Swarm, Logs: logs[key], Job: r.Swarm.OwnerJob(), record: true}
		delete(logs, key)
		switch {
		case r.Err != nil:
			continue // who repairs it decides
		case r.Swarm.Ending:
			o.Reason = "its removal was interrupted"
		case o.Job == "":
			continue
		default:
			over, err := sw.jobs.Over(ctx, o.Job)
			if err != nil {
				return nil, err
			}
			if !over {
				continue
			}
			o.Reason = fmt.Sprintf("job %s is over", o.Job)
		}
		all = append(all, o)
	}
	for key, streams := range logs {
		id, nonce, _ := strings.Cut(key, "=")
		s := swarms.Swarm{ID: id, Nonce: nonce}
		r, err := sw.swarmRecord(ctx, id) // the list may be that of a replica that lags behind
		switch {
		case err == nil && r.swarm.Key() == key:
			continue
		case err != nil && !errors.Is(err, jobs.ErrNotFound):
			return nil, err
		}
		all = append(all, Orphan{Swarm: s, Logs: streams, Reason: "its record is gone"})
	}
	slices.SortFunc(all, func(a, b Orphan) int { return cmp.Compare(a.Swarm.Key(), b.Swarm.Key()) })
	return all, nil
}

// RemoveOrphan removes an orphan, unless it is none any more.
func (sw *Swarms) RemoveOrphan(ctx context.Context, o Orphan) error {
	if o.record && !o.Swarm.Ending {
		if over, err := sw.jobs.Over(ctx, o.Job); err != nil || !over {
			return err
		}
	}
	return sw.RemoveSwarm(ctx, o.Swarm)
}

// logsByKey lists the streams of all logs by the key of their swarm.
func (sw *Swarms) logsByKey(ctx context.Context) (map[string][]string, error) {
	var all map[string][]string
	err := sw.conn.Retry(ctx, "list the logs of swarms", func(ctx context.Context) error {
		all = map[string][]string{}
		names := sw.conn.JS.StreamNames(ctx, jetstream.WithStreamListSubject("exo.log.>"))
		for name := range names.Name() {
			if key, ok := logKey(name); ok {
				all[key] = append(all[key], name)
			}
		}
		return names.Err()
	})
	for _, streams := range all {
		slices.Sort(streams)
	}
	return all, err
}

// logKey is the key of the swarm that a log's stream is of; ok is false for a stream that is no
// log.
func logKey(stream string) (key string, ok bool) {
	name, ok := strings.CutPrefix(stream, logPrefix)
	cut := strings.LastIndexByte(name, '_')
	if !ok || cut < 0 || name[cut+1:] != string(swarms.In) && name[cut+1:] != string(swarms.Out) {
		return "", false
	}
	name = name[:cut]
	if cut = strings.LastIndexByte(name, '_'); cut < 0 {
		return "", false
	}
	_, err := strconv.ParseUint(name[cut+1:], 10, 16)
	return name[:cut], err == nil && swarms.CheckKey(name[:cut]) == nil
}

// SweepOrphans removes orphans until ctx ends. It looks once every so often, some earlier and some
// later, and removes what was an orphan at two looks: what is being made or removed at one of them
// is left to whoever does so. Several may sweep at a time.
func (sw *Swarms) SweepOrphans(ctx context.Context, every time.Duration, log *slog.Logger) {
	before := map[string]bool{} // by identity
	for {
		t := time.NewTimer(every/2 + rand.N(every))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		all, err := sw.Orphans(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.Warn("looking for what ended runs have left", "error", err)
			}
			continue
		}
		now := map[string]bool{}
		for _, o := range all {
			id := o.Swarm.Identity()
			if !before[id] {
				now[id] = true
				continue
			}
			if err := sw.RemoveOrphan(ctx, o); err != nil {
				now[id] = true
				log.Warn("an orphaned swarm was not removed", "swarm", o.Swarm.ID, "reason", o.Reason, "error", err)
				continue
			}
			log.Info("an orphaned swarm was removed", "swarm", o.Swarm.ID, "reason", o.Reason, "logs", len(o.Logs))
		}
		before = now
	}
}
