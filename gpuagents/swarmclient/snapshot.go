package swarmclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// CheckSnapshotName returns an error for a name that no snapshot of the swarm can have. The parts
// of a swarm of several shards have longer names.
func (s *Swarm) CheckSnapshotName(name string) error {
	if err := jobs.CheckID("snapshot", name); err != nil {
		return err
	}
	if n := s.record.ShardCount(); n > 1 {
		if err := jobs.CheckID("snapshot", snapshot.PartName(name, n-1)); err != nil {
			return fmt.Errorf("the part of a shard: %w", err)
		}
	}
	return nil
}

// Snapshot has the GPU agents write a snapshot of all agents, as the entries before it have left
// them, into the place of snapshots that they were started with. It returns when every shard is
// complete and durable, with one element for each. The swarm answers nothing else meanwhile.
func (s *Swarm) Snapshot(ctx context.Context, name string) ([]swarms.Snapshotted, error) {
	if err := s.CheckSnapshotName(name); err != nil {
		return nil, err
	}
	return askAll(ctx, s, swarms.EntrySnapshot, swarms.Snapshot{Version: jobs.Version, Name: name},
		swarms.EntrySnapshotted,
		swarms.DecodeSnapshotted)
}

// StartSnapshot is Snapshot without the wait. It returns the numbers of the entries that ask for
// the snapshot, by shard.
func (s *Swarm) StartSnapshot(ctx context.Context, name string) (entries []uint64, err error) {
	if err := s.CheckSnapshotName(name); err != nil {
		return nil, err
	}
	data, err := json.Marshal(swarms.Snapshot{Version: jobs.Version, Name: name})
	if err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	entries = make([]uint64, s.record.ShardCount())
	deadline := time.Now().Add(s.timeout)
	return entries, s.each(nil, func(k shard) (err error) {
		_, entries[k.number], err = k.append(ctx, deadline, swarms.EntrySnapshot, data)
		return err
	})
}

// Trim removes the entries that a snapshot of this swarm contains from the logs, with their
// answers. It reads and checks every file of the snapshot first. progress, unless it is nil,
// returns a function, or nil, that gets the number of checked bytes of a part. From then on an
// agent without a checkpoint starts from the snapshot, which must stay until the log is trimmed to
// a later one.
//
// It returns the bases of the shards, by shard: the part of the snapshot, and the first remaining
// entry of the log. A snapshot of another swarm is refused with jobs.CodeInput.
func (s *Swarm) Trim(ctx context.Context, store snapshot.Store, name string,
	progress func(total int64) func(done int64),
) ([]swarms.Base, error) {
	bases, err := s.Rebase(ctx, store, name, progress)
	if err != nil {
		return nil, err
	}
	return bases, s.TrimTo(ctx, bases)
}

// Rebase is Trim without the removal: an agent without a checkpoint starts from the snapshot. The
// snapshot may be older than the present one if no later entry was removed. Without a name agents
// start from the first entry, if it was not removed.
func (s *Swarm) Rebase(ctx context.Context, store snapshot.Store, name string,
	progress func(total int64) func(done int64),
) (bases []swarms.Base, err error) {
	if name == "" {
		deadline := time.Now().Add(s.timeout)
		err = s.each(nil, func(k shard) error {
			_, err := k.answered(ctx, deadline, 1)
			return err
		})
	} else {
		bases, err = s.bases(ctx, store, name, progress)
	}
	if err != nil {
		return nil, err
	}
	// The record is first: a reader of a log without a checkpoint must know of the snapshot before
	// entries go.
	record, err := s.store.ChangeSwarm(ctx, s.record, func(now *swarms.Swarm) {
		if now.Base, now.Bases = nil, bases; len(bases) == 1 {
			now.Base, now.Bases = &bases[0], nil
		}
	})
	if err != nil {
		return nil, err
	}
	s.record = record
	return bases, nil
}

// CheckBase returns why the snapshot from which agents start is not whole; nil: it is whole, or
// there is none.
func (s *Swarm) CheckBase(ctx context.Context, store snapshot.Store) error {
	for k := range s.record.ShardCount() {
		base := s.record.BaseOf(k)
		if base == nil {
			continue
		}
		m, digest, err := snapshot.ReadManifest(ctx, store, base.Name)
		if err != nil {
			return err
		}
		if digest != base.SHA256 {
			return fmt.Errorf("snapshot %s: %w: its manifest has changed", base.Name, snapshot.ErrCorrupt)
		}
		if err := snapshot.Verify(ctx, store, m, nil); err != nil {
			return err
		}
	}
	return nil
}

// TrimTo removes the entries before the entries of snapshots, with their answers. The entry of a
// snapshot stays, so that a log always has a last one, and so do the entries from the last one with
// a note on.
func (s *Swarm) TrimTo(ctx context.Context, bases []swarms.Base) error {
	deadline := time.Now().Add(s.timeout)
	return s.each(nil, func(k shard) error {
		entry := bases[k.number].Entry
		answer, err := k.answered(ctx, deadline, entry)
		if err != nil {
			return err
		}
		first, err := k.firstKept(ctx, entry)
		if err != nil {
			return err
		}
		return errors.Join(k.log(swarms.In).Trim(ctx, first), k.log(swarms.Out).Trim(ctx, answer.Seq))
	})
}

// firstKept returns the first entry that stays if a log is trimmed to the entry of a snapshot. The
// last entry with a note stays, since a detector finds its position there. The search goes back to
// the last batch.
func (k shard) firstKept(ctx context.Context, entry uint64) (uint64, error) {
	for n := uint64(8); ; n *= 8 { // back from the end, further each time: questions are few
		from, first, kept, found := entry-min(n, entry-1), uint64(0), entry, false
		if err := statelog.Rest(ctx, k.log(swarms.In), from, entry-1, func(e swarms.Entry) error {
			if first == 0 {
				first = e.Seq
			}
			switch {
			case e.Note != "":
				kept, found = e.Seq, true
			case !swarms.Asks(e.Kind):
				kept, found = entry, true
			}
			return nil
		}); err != nil {
			return 0, err
		}
		if found || from == 1 || first > from || first == 0 {
			return kept, nil
		}
	}
}

// bases checks the parts of a snapshot against the shards of the swarm.
func (s *Swarm) bases(ctx context.Context, store snapshot.Store, name string,
	progress func(total int64) func(done int64),
) ([]swarms.Base, error) {
	if s.spec.OfRun() {
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s: it is the swarm of a run, whose job reads the log "+
			"from the start when it goes on elsewhere: nothing is removed from the log", s.record.ID)
	}
	// The record of this moment, because another caller may have trimmed the logs.
	record, err := s.store.Swarm(ctx, s.record.ID)
	if err != nil {
		return nil, err
	}
	bases := make([]swarms.Base, s.record.ShardCount())
	for k := range bases {
		part := name
		if len(bases) > 1 {
			part = snapshot.PartName(name, k)
		}
		m, digest, err := snapshot.ReadManifest(ctx, store, part)
		if err != nil {
			return nil, err
		}
		if first, end := s.record.ShardGroups(k); !m.Swarm.Of(s.record) || m.First() != first ||
			m.Groups != end-first {
			return nil, jobs.Errorf(jobs.CodeInput, "swarm trim: snapshot %s is of another swarm, %s of %s", part,
				m.Swarm.ID, m.Swarm.Created.Format(time.RFC3339))
		}
		if base := record.BaseOf(k); base != nil && m.Entry < base.Entry {
			answer, err := shard{s, k}.answered(ctx, time.Now().Add(s.timeout), m.Entry)
			if err != nil {
				return nil, jobs.Errorf(jobs.CodeInput, "swarm trim: snapshot %s is of entry %d, and the log is "+
					"trimmed to %d already", part, m.Entry, base.Entry)
			}
			// The record has no digest of it any more, and the log has.
			if done, err := swarms.DecodeSnapshotted(answer.Data); err != nil || done.SHA256 != digest {
				return nil, fmt.Errorf("snapshot %s: %w: the log has another one of entry %d", part,
					snapshot.ErrCorrupt, m.Entry)
			}
		}
		var tell func(int64)
		if progress != nil {
			tell = progress(m.Bytes())
		}
		if err := snapshot.Verify(ctx, store, m, tell); err != nil {
			return nil, err
		}
		bases[k] = swarms.Base{SnapshotRef: swarms.SnapshotRef{Name: part, SHA256: digest}, Entry: m.Entry}
	}
	return bases, nil
}

// answered returns the answer to an entry. It has the number of the entry: each entry has one
// answer, in their order.
func (k shard) answered(ctx context.Context, deadline time.Time, entry uint64) (e swarms.Entry, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, k.late(entry))
	defer cancel()
	r, err := k.log(swarms.Out).Read(ctx, entry)
	if err != nil {
		return e, err
	}
	defer r.Close()
	if e, err = r.Next(ctx); err != nil {
		return e, ended(ctx, err)
	}
	if e.Seq != entry || e.Ref != entry {
		return e, jobs.Errorf(jobs.CodeInternal, "%v: answer %d is to entry %d: the logs were changed by somebody "+
			"else", k, e.Seq, e.Ref)
	}
	return e, nil
}
