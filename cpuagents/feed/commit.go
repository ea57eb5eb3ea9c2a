package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Logs are the numbers of the logs of a detector among the logs of its swarm (swarms.In).
type Logs struct {
	Marks     int // checkpoints
	Keys      int // statelog.Keys
	Collected int // Collected
	States    int // statelog.States, of entities without a group
	Summaries int // explain.SummaryLog
	Order     int // the order of the answers of several shards
}

// ClusterLogs are the logs of detectors on a cluster, behind the logs of their sinks.
var ClusterLogs = Logs{
	Marks: statelog.KeyShard - 1, Keys: statelog.KeyShard, Collected: statelog.KeyShard + 1,
	States: statelog.KeyShard + 2, Summaries: statelog.KeyShard + 3, Order: statelog.KeyShard + 4,
}

// The kinds of their entries.
const (
	entryMark      = "mark"
	entryCollected = "collected"
	entryOrder     = "order"
)

const (
	// takeOverTries bounds how often a take-over begins again after an append of an earlier attempt.
	takeOverTries = 20
	// checkpointEvery is the number of batches between two checkpoints. Marks that are too long for
	// notes are in the log of checkpoints too, which keeps its last statelog.Kept entries.
	checkpointEvery = statelog.Kept / 2
)

// Cure is what to do with a log that was changed by another program.
const Cure = "delete the detector and create it again, or name another --data-dir"

// Dictionary is the entities of a detector in memory. Its assignments have the numbers of entities,
// from 0, as groups.
type Dictionary interface {
	// Restore continues with the assignments of earlier attempts, in their order.
	Restore(all []statelog.Assignment) error
	// Fresh returns the keys of the entities from a number on, in their order; nil if all
	// assignments are stored by State.Assign.
	Fresh(from int) []string
}

// StateOptions are what a State needs.
type StateOptions struct {
	Record swarms.Swarm
	// Log returns a log of the swarm, without a request.
	Log  func(shard int, d swarms.Direction) swarms.Log
	Logs Logs
	// Dictionary is nil without a key.
	Dictionary Dictionary
	// Collected is the position of the sinks if none is stored.
	Collected Collected
}

// State is the state of a detector outside the agents of its swarm. The goroutine that feeds uses
// it; the goroutine that collects calls NoteCollected.
type State struct {
	Last Mark // the last one that counts
	// Missing are the shards that do not have their part of the last batch. The caller appends
	// their rows, between Last.Before and Last.Sources, before anything else.
	Missing   []int
	After     []uint64 // by shard: the last known entry of its log
	Collected Collected
	Groups    Groups

	o       StateOptions
	attempt string // of checkpoint.Attempt
	in      []swarms.Log
	bases   []uint64 // by shard: the entry of the snapshot to which its logs were trimmed; 0 if they were not
	marks   *statelog.Log
	raw     swarms.Log // of marks
	keys    *statelog.Keys
	out     *statelog.Log
	behind  int // batches since the last checkpoint
	// highest is the highest number of a mark of an earlier program, whose batch may be in no log. No
	// other batch gets its number: one part may have the same bytes.
	highest uint64
}

// OpenState reads the state of a detector and takes it over: an earlier attempt that still runs
// cannot append any more. Each log of the swarm has an entry more then, which is a query.
func OpenState(ctx context.Context, o StateOptions) (*State, error) {
	s, err := openState(ctx, o)
	if errors.Is(err, statelog.ErrDamaged) {
		return nil, jobs.Errorf(jobs.CodeInternal, "%v: %s", err, Cure)
	}
	return s, err
}

func openState(ctx context.Context, o StateOptions) (*State, error) {
	s := &State{
		Groups: Groups{Record: o.Record, Keyed: o.Dictionary != nil}, o: o, Collected: o.Collected,
		attempt: swarms.NewNonce(),
		raw:     o.Log(o.Logs.Marks, swarms.In),
		keys:    statelog.NewKeys(o.Log(o.Logs.Keys, swarms.In)),
		out:     statelog.New(o.Log(o.Logs.Collected, swarms.In), entryCollected),
	}
	s.marks = statelog.New(s.raw, entryMark)
	for k := range o.Record.ShardCount() {
		s.in = append(s.in, o.Log(k, swarms.In))
		base := uint64(0)
		if b := o.Record.BaseOf(k); b != nil {
			base = b.Entry
		}
		s.bases = append(s.bases, base)
	}
	s.After = make([]uint64, len(s.in))
	for tries := 0; ; tries++ {
		if err := s.marks.Open(ctx); err != nil {
			return nil, err
		}
		err := s.takeOver(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrFenced) || tries == takeOverTries {
			return nil, err
		}
		// The earlier attempt was faster. It stores nothing more once a checkpoint of this one is stored.
	}
	// The earlier attempt may have appended to these until now.
	for _, l := range []*statelog.Log{s.keys.Log, s.out} {
		if err := l.Open(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.readKeys(ctx); err != nil {
		return nil, err
	}
	return s, s.out.Read(ctx, s.out.Last(), func(data []byte) error { return json.Unmarshal(data, &s.Collected) })
}

// End returns the last known entry of the log of a shard.
func (s *State) End(shard int) uint64 { return s.After[shard] }

// Fenced reports whether a later attempt has taken over. A false answer is no proof.
func (s *State) Fenced(ctx context.Context) (bool, error) { return s.marks.Fenced(ctx) }

// takeOver finds the last mark that counts, and stores it as a checkpoint, so that an earlier
// attempt stores none. Then it appends to all logs of the swarm. If the earlier attempt has
// appended a batch between the two, the search begins again.
func (s *State) takeOver(ctx context.Context) error {
	var all []candidate
	first := uint64(1)
	if last := s.marks.Last(); last > statelog.Kept {
		first = last - statelog.Kept + 1
	}
	if err := s.marks.Read(ctx, first, func(data []byte) error {
		c, err := decodeMark(data)
		if all = append(all, c); c.earlier {
			s.highest = max(s.highest, c.Number)
		}
		return err
	}); err != nil {
		return fmt.Errorf("read the positions of the detector: %w", err)
	}
	if len(all) == 0 {
		all = []candidate{{checkpoint: checkpoint{Entries: make([]uint64, len(s.in))}}}
	}
	query, err := s.query()
	if err != nil {
		return err
	}
	ends := make([]swarms.Entry, len(s.in))
	taken := make([]bool, len(s.in))
	for again := true; again; {
		for k, l := range s.in {
			if taken[k] {
				continue
			}
			if ends[k], err = l.Last(ctx); err != nil {
				return err
			}
		}
		good, err := s.committed(ctx, all, ends)
		if err != nil {
			return err
		}
		if good, err = s.readNotes(ctx, good, ends); err != nil {
			return err
		}
		good.Attempt = s.attempt
		if err := s.marks.Add(ctx, good); err != nil {
			return err
		}
		all = append(all, candidate{checkpoint: good}) // what it includes may be removed now
		s.Last, s.Missing, again = good.Mark, good.Missing, false
		for k, l := range s.in {
			if taken[k] {
				continue
			}
			end := ends[k]
			err := l.Append(ctx, end.Seq, swarms.Entry{
				Kind: swarms.EntryQuery, Ref: end.Ref + 1, Data: query[k], Note: "attempt " + s.attempt,
			})
			switch {
			case err == nil:
				s.After[k], taken[k] = end.Seq+1, true
			case errors.Is(err, jobs.ErrFenced):
				again = true
			default:
				return err
			}
		}
	}
	return nil
}

// query returns by shard a question to its first agent.
func (s *State) query() (all [][]byte, err error) {
	of := struct {
		AgentsPerGroup int `json:"agents_per_group"`
	}{AgentsPerGroup: 1}
	if len(s.in) > 1 { // the first agent of the only shard is 0
		if err := json.Unmarshal(s.o.Record.Spec, &of); err != nil {
			return nil, fmt.Errorf("the specification of swarm %s: %w", s.o.Record.ID, err)
		}
	}
	for k := range s.in {
		first, _ := s.o.Record.ShardGroups(k)
		q, err := json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{uint32(first * of.AgentsPerGroup)}})
		if err != nil {
			return nil, fmt.Errorf("encode a query: %w", err)
		}
		all = append(all, q)
	}
	return all, nil
}

// committed returns the last of the marks that counts, with the logs of the swarm up to some ends.
func (s *State) committed(ctx context.Context, all []candidate, ends []swarms.Entry) (good checkpoint, err error) {
	found := false
	for _, c := range slices.Backward(all) {
		// Behind the last mark that counts, marks of earlier programs with a higher number count: a
		// take-over that ended before its query has stored again the mark that was the last one at
		// that time, and the earlier attempt may have appended a later batch since.
		if found && (!c.earlier || c.Number <= good.Number) {
			continue
		}
		counts, missing, err := s.counts(ctx, &c, ends, !found)
		if err != nil {
			return good, err
		}
		if !counts {
			continue
		}
		if good = c.checkpoint; c.earlier {
			good.Missing, good.Entries = missing, seqs(ends)
		}
		found = true
	}
	if !found {
		return good, jobs.Errorf(jobs.CodeInternal, "none of the last %d positions of the detector belongs to a batch "+
			"of its swarm: the log was changed by another program: %s", len(all), Cure)
	}
	if len(good.Entries) != len(s.in) {
		return good, jobs.Errorf(jobs.CodeInternal, "a position of the detector is of %d shards, and its swarm "+
			"has %d: %s", len(good.Entries), len(s.in), Cure)
	}
	return good, nil
}

func seqs(of []swarms.Entry) (all []uint64) {
	for _, e := range of {
		all = append(all, e.Seq)
	}
	return all
}

// readNotes returns the last mark of the notes behind a checkpoint, up to some ends, as the
// checkpoint there.
func (s *State) readNotes(ctx context.Context, from checkpoint, ends []swarms.Entry) (checkpoint, error) {
	last := note{Mark: from.Mark}
	has := make([]uint64, len(s.in)) // by shard: the last batch with a part in its log
	for k, l := range s.in {
		read := func(e swarms.Entry) error {
			if e.Note == "" || swarms.Asks(e.Kind) { // a question, or a batch of an earlier program
				return nil
			}
			var n note
			c, err := decodeMark([]byte(e.Note))
			if n.Mark = c.Mark; err == nil && c.body { // and not of an earlier program
				err = json.Unmarshal([]byte(e.Note), &n)
			}
			if err != nil {
				return fmt.Errorf("the note of entry %d: %w: %w", e.Seq, statelog.ErrDamaged, err)
			}
			if has[k] = n.Number; n.Number > last.Number {
				last = n
			}
			return nil
		}
		if err := statelog.Rest(ctx, l, from.Entries[k]+1, ends[k].Seq, read); err != nil {
			return from, err
		}
	}
	good := checkpoint{Mark: last.Mark, Entries: seqs(ends)}
	lacking := good.Shards
	if last.Number == from.Number {
		lacking = from.Missing
	} else if last.Stored > 0 {
		var c candidate
		if err := statelog.Each(ctx, s.raw, last.Stored, last.Stored, func(e swarms.Entry) (err error) {
			c, err = decodeMark(e.Data)
			return err
		}); err != nil || c.Number != last.Number {
			return from, fmt.Errorf("the position of batch %d: %w", last.Number, errors.Join(statelog.ErrDamaged, err))
		}
		good.Mark, lacking = c.Mark, c.Shards
	}
	for _, k := range lacking {
		if k < 0 || k >= len(has) {
			return from, jobs.Errorf(jobs.CodeInternal, "a position of the detector names shard %d of %d: %s", k,
				len(has), Cure)
		}
		if has[k] < good.Number {
			good.Missing = append(good.Missing, k)
		}
	}
	return good, nil
}

// readKeys reads the dictionary up to the last mark. Keys behind it belong to a batch that is not
// in the logs of the swarm. Their groups are given again, to the keys that come next.
func (s *State) readKeys(ctx context.Context) error {
	if s.o.Dictionary == nil {
		return nil
	}
	keys, err := s.keys.Load(ctx, s.Last.Entities)
	if err != nil {
		return fmt.Errorf("read the keys of the detector: %w", err)
	}
	keys = slices.Clone(keys)
	for i := range keys {
		if keys[i].Group >= s.o.Record.Groups {
			return jobs.Errorf(jobs.CodeInternal, "the keys of the detector have group %d of %d: %s", keys[i].Group,
				s.o.Record.Groups, Cure)
		}
		keys[i].Group = s.Groups.Number(keys[i].Group)
	}
	return s.o.Dictionary.Restore(keys)
}

// storeKeys stores the keys that are new since the last call. It is called before the batch with
// their first rows is appended, so whoever reads a decision finds the entity of its group.
func (s *State) storeKeys(ctx context.Context) error {
	if s.o.Dictionary == nil {
		return nil
	}
	return s.Groups.StoreKeys(ctx, s.keys, s.o.Dictionary.Fresh(s.keys.Stored()), s.addKeys)
}

// addKeys appends keys. An earlier attempt may have appended keys after it lost the detector, which
// these replace. The order matters: the end of the log is found before the marks are read, so only
// the later of two attempts succeeds.
func (s *State) addKeys(ctx context.Context, keys any) error {
	err := s.keys.Add(ctx, keys)
	if !errors.Is(err, jobs.ErrFenced) {
		return err
	}
	if err := s.keys.Open(ctx); err != nil {
		return err
	}
	lost, lerr := s.marks.Fenced(ctx)
	if lerr != nil {
		return lerr
	}
	if lost {
		return err
	}
	return s.keys.Add(ctx, keys)
}

// Assign stores assignments of numbers of entities, for the entries that are appended from now on.
// It sets their After, which is an entry of the log of the shard of the entity.
func (s *State) Assign(ctx context.Context, all []statelog.Assignment) error {
	for k := range s.in {
		var of []statelog.Assignment
		for i := range all {
			if s.Groups.ShardOf(all[i].Group) != k {
				continue
			}
			all[i].After = s.After[k]
			one := all[i]
			one.Group = s.Groups.Group(one.Group)
			of = append(of, one)
		}
		if err := s.keys.Assign(ctx, of, s.After[k], s.addKeys); err != nil {
			return err
		}
	}
	return nil
}

// Commit stores a batch of observations with the state behind it, both or none. m has the places
// and the counts. Each shard has one part at most.
func (s *State) Commit(ctx context.Context, parts []Part, m Mark) error {
	if err := s.storeKeys(ctx); err != nil {
		return err
	}
	m.Before = s.Last.Sources
	return s.append(ctx, swarms.EntryObserve, parts, m)
}

// Complete appends the parts of the last batch that shards lack, one for each of Missing.
func (s *State) Complete(ctx context.Context, parts []Part) error {
	if len(parts) != len(s.Missing) {
		return jobs.Errorf(jobs.CodeInternal, "%d shards of %d get their rows of the last batch again: the input of "+
			"the detector was changed by another program: %s", len(parts), len(s.Missing), Cure)
	}
	return s.append(ctx, swarms.EntryObserve, parts, s.Last)
}

// GiveUp leaves out the parts of the last batch that shards lack, whose rows cannot be read again.
func (s *State) GiveUp() { s.Missing = nil }

// CommitSwap stores a swap of groups of one shard, whose assignments are stored, and adds to the
// counts. No row since the last batch is committed. It returns the entry of the swap.
func (s *State) CommitSwap(ctx context.Context, p Part, evicted, returned uint64) (entry uint64, err error) {
	m := s.Last
	m.Before = m.Sources
	m.Evicted += evicted
	m.Returned += returned
	err = s.append(ctx, swarms.EntrySwap, []Part{p}, m)
	return s.After[p.Shard], err
}

// append appends the parts of a batch, whose keys are stored, at the same time, with their note.
func (s *State) append(ctx context.Context, kind string, parts []Part, m Mark) error {
	m.Number, m.Entities, m.Shards = max(s.Last.Number, s.highest)+1, s.keys.Stored(), nil
	if len(s.in) == 1 {
		m.Before = nil
	} else {
		for _, p := range parts {
			m.Shards = append(m.Shards, p.Shard)
		}
	}
	text, err := encodeNote(note{Mark: m})
	if err != nil {
		return err
	}
	if len(text) > swarms.MaxNote { // of many sources, or entities in the hour that clocks repeat
		if err := s.marks.Add(ctx, checkpoint{Mark: m, Attempt: s.attempt}); err != nil {
			return err
		}
		if err := s.marks.Trim(ctx); err != nil {
			return err
		}
		of := note{Mark: Mark{Number: m.Number}, Stored: s.marks.Last()}
		if text, err = encodeNote(of); err != nil {
			return err
		}
	}
	errs := make([]error, len(parts))
	var appending sync.WaitGroup
	for i, p := range parts {
		e := swarms.Entry{Kind: kind, Ref: m.Number, Data: p.Data, Note: text}
		add := func() { errs[i] = statelog.Append(ctx, s.in[p.Shard], &s.After[p.Shard], e, question) }
		if i == len(parts)-1 {
			add()
			break
		}
		appending.Go(add)
	}
	appending.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send a %s: %w", kind, err)
	}
	s.Last, s.Missing = m, nil
	if s.behind++; s.behind < checkpointEvery {
		return nil
	}
	return s.Note(ctx, m)
}

// question allows entries of other clients before the entries of an attempt. An entry with a note
// is from a later attempt.
func question(e swarms.Entry) error {
	if e.Note != "" {
		return fmt.Errorf("entry %d is of a later attempt: %w", e.Seq, jobs.ErrFenced)
	}
	return nil
}

// FindEnds moves After of all shards to the ends of their logs.
func (s *State) FindEnds(ctx context.Context) error {
	for k, l := range s.in {
		if err := statelog.CatchUp(ctx, l, &s.After[k], question); err != nil {
			return err
		}
	}
	return nil
}

// Note stores a checkpoint with places and counts behind the last batch, also of rows that gave no
// batch, such as rejected ones.
func (s *State) Note(ctx context.Context, m Mark) error {
	m.Number, m.Shards, m.Before, m.Entities = s.Last.Number, s.Last.Shards, s.Last.Before, s.keys.Stored()
	c := checkpoint{Mark: m, Entries: slices.Clone(s.After), Missing: s.Missing, Attempt: s.attempt}
	if err := s.marks.Add(ctx, c); err != nil {
		return err
	}
	s.Last, s.behind = m, 0
	return s.marks.Trim(ctx)
}

// NoteCollected stores the position of the sinks.
func (s *State) NoteCollected(ctx context.Context, c Collected) error {
	if c == s.Collected {
		return nil
	}
	err := s.out.Add(ctx, c)
	if errors.Is(err, jobs.ErrFenced) { // an earlier attempt, which sends the same decisions
		if err = s.out.Open(ctx); err == nil {
			err = s.out.Add(ctx, c)
		}
	}
	if err != nil {
		return err
	}
	s.Collected = c
	return s.out.Trim(ctx)
}
