package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Logs of the swarm beside that of its only shard. The entries of each are JSON.
const (
	positionShard = 1 // of mark
	keyShard      = 2 // of the dictionary, entries before each batch with new keys
	outputShard   = 3 // of written
	summaryShard  = 4 // of the summaries of entities
)

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
type mark struct {
	Batch    uint64   `json:"batch"`    // the number of its entry in the log of the swarm
	Entities int      `json:"entities"` // in the dictionary, those of the batch included
	At       position `json:"at"`
}

// written says how far the output is.
type written struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that is written
	File   fileID `json:"file,omitzero"`
	Size   int64  `json:"size"` // of the file then
	// IncidentsFile and IncidentsSize are those of the file of incidents.
	IncidentsFile fileID `json:"incidents_file,omitzero"`
	IncidentsSize int64  `json:"incidents_size,omitempty"`
}

// state is what a detector keeps between two processes beside its agents.
type state struct {
	in            swarms.Log // of the swarm
	marks, output *statelog.Log
	keys          *statelog.Keys

	entities []string       // keys by group
	groups   map[string]int // by key
	at       position
	out      written
	last     uint64 // entry of the log of the swarm
	marked   uint64 // entry of the last mark in the log of positions
}

// markEvery is the number of entries of the log of the swarm after which the log of positions gets
// a mark.
const markEvery = 256

// openState reads the state of a swarm. It undoes what was stored for a batch that is not in the
// log of the swarm. No entry may be appended to that log before.
func openState(ctx context.Context, log func(shard int, d swarms.Direction) swarms.Log) (*state, error) {
	s := &state{
		in:     log(0, swarms.In),
		marks:  statelog.New(log(positionShard, swarms.In), entryMark),
		keys:   statelog.NewKeys(log(keyShard, swarms.In)),
		output: statelog.New(log(outputShard, swarms.In), entryWritten),
		groups: map[string]int{},
	}
	for _, l := range []*statelog.Log{s.marks, s.keys.Log, s.output} {
		if err := l.Open(ctx); err != nil {
			return nil, err
		}
	}
	end, err := s.in.Last(ctx)
	if err != nil {
		return nil, err
	}
	s.last = end.Seq
	var good mark
	undo := false
	err = s.marks.Read(ctx, max(s.marks.Last(), 2)-1, func(data []byte) error {
		var m mark
		err := json.Unmarshal(data, &m)
		if undo = m.Batch > s.last; !undo {
			good = m
		}
		return err
	})
	if err != nil {
		return nil, damaged(err)
	}
	if undo {
		if err := s.marks.Add(ctx, good); err != nil {
			return nil, err
		}
	}
	s.marked = good.Batch
	if err := s.readNotes(ctx, &good); err != nil {
		return nil, err
	}
	s.at = good.At
	all, err := s.keys.Load(ctx, good.Entities)
	if err != nil {
		return nil, damaged(err)
	}
	for g, a := range all {
		s.entities = append(s.entities, a.Key)
		s.groups[a.Key] = g
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

// readNotes sets m to the last note behind its entry in the log of the swarm, if there is one.
func (s *state) readNotes(ctx context.Context, m *mark) error {
	return damaged(statelog.Each(ctx, s.in, m.Batch+1, s.last, func(e swarms.Entry) error {
		if e.Note == "" { // a question, or a batch of an earlier program
			return nil
		}
		next := mark{}
		if err := json.Unmarshal([]byte(e.Note), &next); err != nil {
			return fmt.Errorf("the note of entry %d: %w: %w", e.Seq, statelog.ErrDamaged, err)
		}
		*m = next
		return nil
	}))
}

// commit appends a batch with the position behind it, after the keys that are new in it.
func (s *state) commit(ctx context.Context, kind string, data []byte, at position) error {
	if err := s.keys.Store(ctx, s.entities[s.keys.Stored():], nil); err != nil {
		return err
	}
	note, err := json.Marshal(mark{Batch: s.last + 1, Entities: s.keys.Stored(), At: at})
	if err != nil {
		return fmt.Errorf("encode a position: %w", err)
	}
	e := swarms.Entry{Kind: kind, Ref: s.last + 1, Data: data, Note: string(note)}
	if err := s.in.Append(ctx, s.last, e); err != nil {
		return fmt.Errorf("send a batch: %w", err)
	}
	s.last++
	s.at = at
	if s.last-s.marked < markEvery {
		return nil
	}
	return s.mark(ctx)
}

// mark stores the position behind the last entry in the log of positions.
func (s *state) mark(ctx context.Context) error {
	if err := s.marks.Add(ctx, mark{Batch: s.last, Entities: s.keys.Stored(), At: s.at}); err != nil {
		return err
	}
	s.marked = s.last
	return s.marks.Trim(ctx)
}
