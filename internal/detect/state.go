package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Logs of the swarm beside that of its only shard. The entries of each are JSON. Those of a swarm with
// several shards have numbers behind all shards.
const (
	positionShard = 1 // of mark
	keyShard      = 2 // of the dictionary, entries before each batch with new keys
	outputShard   = 3 // of written
	summaryShard  = 4 // of the summaries of entities
	statesShard   = 5 // of entities without a group
	orderShard    = 6 // of the answers of several shards
)

// logShard returns the number of one of these logs.
func logShard(record swarms.Swarm, of int) int {
	if record.ShardCount() > 1 {
		return swarms.MaxShards + of
	}
	return of
}

// The kinds of their entries.
const (
	entryMark    = "mark"
	entryWritten = "written"
)

// mark says where the input continues behind a batch. It is the note of the entry of the batch in
// the log of the swarm, so the batch commits the state of the agents, the dictionary and the
// position with one write. The log of positions has a mark now and then, so that few entries are
// read to find the last note, and one before entries are removed. Earlier programs have stored a
// mark there before each batch, which counts if the log of the swarm has the batch.
//
// With several shards each part of a batch has the note. The batch counts if one part is stored, and
// the next process appends the others (RFC 0047).
type mark struct {
	// Batch is the number of its entry in the log of the swarm. With several shards it is the number of
	// the batch, from 1.
	Batch    uint64   `json:"batch"`
	Entities int      `json:"entities"` // in the dictionary, those of the batch included
	At       position `json:"at"`
	// Before is the position before the batch, and Shards have its parts; for several shards.
	Before *position `json:"before,omitempty"`
	Shards []int     `json:"shards,omitempty"`
	// Entries are by shard entries up to which the mark includes all notes; in the log of positions.
	Entries []uint64 `json:"entries,omitempty"`
}

// written says how far the output is.
type written struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that is written
	// File and IncidentsFile mark the files then.
	File          fileMark `json:"file,omitzero"`
	IncidentsFile fileMark `json:"incidents_file,omitzero"`
	// Size and IncidentsSize are the sizes in notes of earlier programs, whose marks have none.
	Size          int64 `json:"size,omitempty"`
	IncidentsSize int64 `json:"incidents_size,omitempty"`
}

// decisions returns the mark of the file of decisions.
func (w *written) decisions() fileMark {
	w.File.Bytes = max(w.File.Bytes, w.Size)
	return w.File
}

// incidents returns the mark of the file of incidents.
func (w *written) incidents() fileMark {
	w.IncidentsFile.Bytes = max(w.IncidentsFile.Bytes, w.IncidentsSize)
	return w.IncidentsFile
}

// state is what a detector keeps between two processes beside its agents.
type state struct {
	groups        feed.Groups
	in            []swarms.Log // of the swarm, by shard
	marks, output *statelog.Log
	keys          *statelog.Keys
	known         commitlog.Dictionary

	now     mark
	missing []int // shards that lack their part of the last batch
	out     written
	last    []uint64 // by shard: entry of the log of the swarm
	marked  uint64   // the batch of the last mark in the log of positions
}

// markEvery is the number of batches after which the log of positions gets a mark.
const markEvery = 256

// openState reads the state of a swarm. It undoes what was stored for a batch that is not in the
// log of the swarm. No entry may be appended to that log before.
func openState(ctx context.Context, record swarms.Swarm, log func(shard int, d swarms.Direction) swarms.Log,
	known commitlog.Dictionary,
) (*state, error) {
	own := func(of int) swarms.Log { return log(logShard(record, of), swarms.In) }
	s := &state{
		groups: feed.Groups{Record: record, Keyed: true}, known: known,
		marks:  statelog.New(own(positionShard), entryMark),
		keys:   statelog.NewKeys(own(keyShard)),
		output: statelog.New(own(outputShard), entryWritten),
	}
	for k := range record.ShardCount() {
		s.in = append(s.in, log(k, swarms.In))
	}
	for _, l := range []*statelog.Log{s.marks, s.keys.Log, s.output} {
		if err := l.Open(ctx); err != nil {
			return nil, err
		}
	}
	s.last = make([]uint64, len(s.in))
	if err := s.findEnds(ctx); err != nil {
		return nil, err
	}
	undo := false
	err := s.marks.Read(ctx, max(s.marks.Last(), 2)-1, func(data []byte) error {
		var m mark
		err := json.Unmarshal(data, &m)
		if undo = len(s.in) == 1 && m.Batch > s.last[0]; !undo {
			s.now = m
		}
		return err
	})
	if err != nil {
		return nil, damaged(err)
	}
	if undo {
		if err := s.marks.Add(ctx, s.now); err != nil {
			return nil, err
		}
	}
	s.marked = s.now.Batch
	if err := s.readNotes(ctx); err != nil {
		return nil, err
	}
	all, err := s.keys.Load(ctx, s.now.Entities)
	if err != nil {
		return nil, damaged(err)
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Group = record.GroupEntity(all[i].Group)
	}
	if err := s.known.Restore(all); err != nil {
		return nil, err
	}
	return s, damaged(s.output.Read(ctx, s.output.Last(), func(data []byte) error {
		return json.Unmarshal(data, &s.out)
	}))
}

// damaged returns an error of the logs of the detector, with the cure if they are damaged.
func damaged(err error) error {
	if !errors.Is(err, statelog.ErrDamaged) {
		return err
	}
	return jobs.Errorf(jobs.CodeInternal, "%v: name another --data-dir", err)
}

// findEnds finds the ends of the logs of the swarm, to which only this process appends.
func (s *state) findEnds(ctx context.Context) error {
	for k, l := range s.in {
		end, err := l.Last(ctx)
		if err != nil {
			return err
		}
		s.last[k] = end.Seq
	}
	return nil
}

// readNotes sets now to the last note behind its entries in the logs of the swarm, if there is one,
// and finds the shards that lack its batch.
func (s *state) readNotes(ctx context.Context) error {
	from := s.now.Entries
	if len(s.in) == 1 {
		from = []uint64{s.now.Batch}
	} else if from == nil {
		from = make([]uint64, len(s.in))
	}
	has := make([]uint64, len(s.in)) // by shard: its last batch
	for k, l := range s.in {
		base := uint64(0)
		if b := s.groups.Record.BaseOf(k); b != nil {
			base = b.Entry
		}
		if err := statelog.Each(ctx, l, max(from[k]+1, base), s.last[k], func(e swarms.Entry) error {
			if e.Note == "" { // a question, or a batch of an earlier program
				return nil
			}
			next := mark{}
			if err := json.Unmarshal([]byte(e.Note), &next); err != nil {
				return fmt.Errorf("the note of entry %d: %w: %w", e.Seq, statelog.ErrDamaged, err)
			}
			if has[k] = next.Batch; next.Batch >= s.now.Batch {
				s.now = next
			}
			return nil
		}); err != nil {
			return damaged(err)
		}
	}
	if s.now.Entries == nil {
		for _, k := range s.now.Shards {
			if k >= 0 && k < len(has) && has[k] < s.now.Batch {
				s.missing = append(s.missing, k)
			}
		}
	}
	return nil
}

// End implements feed.SwapLog.
func (s *state) End(shard int) uint64 { return s.last[shard] }

// commit appends a batch with the position behind it, after the keys that are new in it.
func (s *state) commit(ctx context.Context, kind string, parts []feed.Part, at position) error {
	stored := s.keys.Stored()
	if keys := s.known.Fresh(stored); len(keys) > 0 {
		all := make([]statelog.Assignment, len(keys))
		for i, key := range keys {
			all[i] = statelog.Assignment{Group: s.groups.Group(stored + i), Key: key}
		}
		err := error(nil)
		if len(s.in) == 1 {
			err = s.keys.Store(ctx, keys, nil)
		} else {
			err = s.keys.Assign(ctx, all, 0, nil)
		}
		if err != nil {
			return err
		}
	}
	before := s.now.At
	return s.append(ctx, kind, parts, mark{At: at, Before: &before})
}

// complete appends the parts of the last batch that shards lack.
func (s *state) complete(ctx context.Context, parts []feed.Part) error {
	s.missing = nil
	if len(parts) == 0 {
		return nil
	}
	return s.append(ctx, swarms.EntryObserve, parts, mark{At: s.now.At, Before: s.now.Before})
}

// append appends the parts of a batch at the same time, with a note. m has the positions.
func (s *state) append(ctx context.Context, kind string, parts []feed.Part, m mark) error {
	m.Batch, m.Entities = s.now.Batch+1, s.keys.Stored()
	if len(s.in) == 1 {
		m.Batch, m.Before = s.last[0]+1, nil
	} else {
		for _, p := range parts {
			m.Shards = append(m.Shards, p.Shard)
		}
	}
	note, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a position: %w", err)
	}
	errs := make([]error, len(parts))
	var appending sync.WaitGroup
	for i, p := range parts {
		appending.Go(func() {
			e := swarms.Entry{Kind: kind, Ref: m.Batch, Data: p.Data, Note: string(note)}
			if errs[i] = s.in[p.Shard].Append(ctx, s.last[p.Shard], e); errs[i] == nil {
				s.last[p.Shard]++
			}
		})
	}
	appending.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send a batch: %w", err)
	}
	s.now = m
	if m.Batch-s.marked < markEvery {
		return nil
	}
	return s.mark(ctx)
}

// Assign implements feed.SwapLog.
func (s *state) Assign(ctx context.Context, all []statelog.Assignment) error {
	for k := range s.in {
		var of []statelog.Assignment
		for i := range all {
			if s.groups.ShardOf(all[i].Group) == k {
				all[i].After = s.last[k]
				of = append(of, statelog.Assignment{
					Group: s.groups.Group(all[i].Group), Key: all[i].Key, After: s.last[k],
				})
			}
		}
		if err := s.keys.Assign(ctx, of, s.last[k], nil); err != nil {
			return err
		}
	}
	return nil
}

// CommitSwap implements feed.SwapLog. No row since the last batch is committed.
func (s *state) CommitSwap(ctx context.Context, p feed.Part, _, _ uint64) (entry uint64, err error) {
	err = s.commit(ctx, swarms.EntrySwap, []feed.Part{p}, s.now.At)
	return s.last[p.Shard], err
}

// mark stores the position behind the last batch in the log of positions. All shards have their part
// of it.
func (s *state) mark(ctx context.Context) error {
	m := s.now
	m.Before, m.Shards = nil, nil
	if len(s.in) > 1 {
		m.Entries = slices.Clone(s.last)
	} else {
		m.Batch = s.last[0]
	}
	if err := s.marks.Add(ctx, m); err != nil {
		return err
	}
	s.marked = m.Batch
	return s.marks.Trim(ctx)
}
