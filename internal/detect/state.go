package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Logs of the swarm beside that of its only shard. The entries of each are JSON.
const (
	positionShard = 1 // of mark, one before each batch
	keyShard      = 2 // of newKeys, one before each batch that has some
	outputShard   = 3 // of written
)

// The kinds of their entries.
const (
	entryMark    = "mark"
	entryKeys    = "keys"
	entryWritten = "written"
)

// mark says where the input continues behind a batch. It counts when the log of the swarm has the
// batch, so that the batch commits the state of the agents, the dictionary and the position.
type mark struct {
	Batch    uint64   `json:"batch"`    // the number of its entry in the log of the swarm
	Entities int      `json:"entities"` // in the dictionary, those of the batch included
	At       position `json:"at"`
}

// newKeys are keys of a batch: those of the groups from First on. Keys of groups from First on that
// were stored before belong to a batch that is not in the log.
type newKeys struct {
	First int      `json:"first"`
	Keys  []string `json:"keys"`
}

// written says how far the output is.
type written struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that is written
	File   fileID `json:"file,omitzero"`
	Size   int64  `json:"size"` // of the file then
}

// journal is a log beside that of the swarm. One goroutine uses it.
type journal struct {
	log  swarms.Log
	kind string
	last uint64 // entry
}

// open finds the last entry of a journal, which it makes if there is none.
func (j *journal) open(ctx context.Context) error {
	if err := j.log.Create(ctx); err != nil {
		return err
	}
	last, err := j.log.Last(ctx)
	j.last = last.Seq
	return err
}

// add stores an entry.
func (j *journal) add(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a %s: %w", j.kind, err)
	}
	if err := j.log.Append(ctx, j.last, swarms.Entry{Kind: j.kind, Ref: j.last + 1, Data: data}); err != nil {
		return fmt.Errorf("store a %s: %w", j.kind, err)
	}
	j.last++
	return nil
}

// keptMarks is the number of entries that remain in a journal of which the last ones count.
const keptMarks = 64

// trim removes all but the last entries, now and then.
func (j *journal) trim(ctx context.Context) error {
	if j.last%keptMarks != 0 || j.last <= keptMarks {
		return nil
	}
	return j.log.Trim(ctx, j.last-keptMarks/2)
}

// each calls fn for the entries from number from on.
func (j *journal) each(ctx context.Context, from uint64, fn func(data []byte) error) error {
	if j.last == 0 || from > j.last {
		return nil
	}
	r, err := j.log.Read(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if err := fn(e.Data); err != nil {
			return jobs.Errorf(jobs.CodeInternal, "entry %d of the log of %ss: %v: name another --data-dir", e.Seq,
				j.kind, err)
		}
		if e.Seq >= j.last {
			return nil
		}
	}
}

// state is what a detector keeps between two processes beside its agents.
type state struct {
	marks, keys, output journal

	entities []string       // keys by group
	groups   map[string]int // by key
	at       position
	out      written
	stored   int    // entities in the journal
	last     uint64 // entry of the log of the swarm
}

// openState reads the state of a swarm. It undoes what was stored for a batch that is not in the
// log of the swarm. No entry may be appended to that log before.
func openState(ctx context.Context, log func(shard int, d swarms.Direction) swarms.Log) (*state, error) {
	s := &state{
		marks:  journal{log: log(positionShard, swarms.In), kind: entryMark},
		keys:   journal{log: log(keyShard, swarms.In), kind: entryKeys},
		output: journal{log: log(outputShard, swarms.In), kind: entryWritten},
		groups: map[string]int{},
	}
	for _, j := range []*journal{&s.marks, &s.keys, &s.output} {
		if err := j.open(ctx); err != nil {
			return nil, err
		}
	}
	end, err := log(0, swarms.In).Last(ctx)
	if err != nil {
		return nil, err
	}
	s.last = end.Seq
	var good mark
	undo := false
	err = s.marks.each(ctx, max(s.marks.last, 2)-1, func(data []byte) error {
		var m mark
		err := json.Unmarshal(data, &m)
		if undo = m.Batch > s.last; !undo {
			good = m
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if undo {
		if err := s.marks.add(ctx, good); err != nil {
			return nil, err
		}
	}
	s.at = good.At
	if err := s.keys.each(ctx, 1, func(data []byte) error {
		var k newKeys
		if err := json.Unmarshal(data, &k); err != nil {
			return err
		}
		if k.First > len(s.entities) {
			return errors.New("entries before it are missing")
		}
		s.entities = append(s.entities[:k.First], k.Keys...)
		return nil
	}); err != nil {
		return nil, err
	}
	if len(s.entities) < good.Entities {
		return nil, jobs.Errorf(jobs.CodeInternal, "the dictionary has %d entities of %d: name another --data-dir",
			len(s.entities), good.Entities)
	}
	s.entities = s.entities[:good.Entities]
	s.stored = good.Entities
	for g, key := range s.entities {
		s.groups[key] = g
	}
	return s, s.output.each(ctx, s.output.last, func(data []byte) error { return json.Unmarshal(data, &s.out) })
}

// group returns the group of a key, and false if there are most entities already.
func (s *state) group(key string, most int) (int, bool) {
	g, ok := s.groups[key]
	if !ok {
		if g = len(s.entities); g == most {
			return 0, false
		}
		s.entities = append(s.entities, key)
		s.groups[key] = g
	}
	return g, true
}

// prepare stores the position behind the next batch, and the keys that are new in it.
func (s *state) prepare(ctx context.Context, at position) error {
	if len(s.entities) > s.stored {
		if err := s.keys.add(ctx, newKeys{First: s.stored, Keys: s.entities[s.stored:]}); err != nil {
			return err
		}
		s.stored = len(s.entities)
	}
	if err := s.marks.add(ctx, mark{Batch: s.last + 1, Entities: s.stored, At: at}); err != nil {
		return err
	}
	return s.marks.trim(ctx)
}
