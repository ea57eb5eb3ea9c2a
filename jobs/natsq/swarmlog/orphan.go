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

// Orphan is a swarm, or logs of a swarm, that no job refers to: its job has ended, its removal was
// interrupted, or its record is gone.
type Orphan struct {
	Swarm  swarms.Swarm `json:"swarm"`         // its record; for logs without a record only id and nonce
	Logs   []string     `json:"logs"`          // the streams of its logs
	Job    string       `json:"job,omitempty"` // the job to which it belonged, if its record names it
	Reason string       `json:"reason"`        // for people
	record bool         // it has a record
}

// Orphans returns the orphans in the order of their keys. A swarm that is being removed at this
// moment may be among them.
func (sw *Swarms) Orphans(ctx context.Context) ([]Orphan, error) {
	// The logs are listed before the records, because a swarm has its record before its logs.
	logs, err := sw.logsByKey(ctx)
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
			continue // an operator has to repair or remove it
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
		r, err := sw.swarmRecord(ctx, id) // asks the leader; the list may come from a replica that is behind
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

// RemoveOrphan removes an orphan. It does nothing if the job of the swarm has not ended.
func (sw *Swarms) RemoveOrphan(ctx context.Context, o Orphan) error {
	if o.record && !o.Swarm.Ending {
		if over, err := sw.jobs.Over(ctx, o.Job); err != nil || !over {
			return err
		}
	}
	return sw.RemoveSwarm(ctx, o.Swarm)
}

// logsByKey returns the streams of all logs, sorted, by the key of their swarm.
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

// logKey returns the key of the swarm of a log, from the name of its stream. ok is false for a
// stream that is not a log.
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

// SweepOrphans removes orphans until ctx ends. It makes one pass per period, at a random time in
// it, so that sweeps of several agents do not coincide. It removes an orphan that two passes in a
// row have seen, because a swarm that is being made or removed looks the same. Several processes
// may sweep at the same time.
func (sw *Swarms) SweepOrphans(ctx context.Context, every time.Duration, log *slog.Logger) {
	before := map[string]bool{} // the orphans of the last pass, by swarms.Swarm.Identity
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
