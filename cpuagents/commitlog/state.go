package commitlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// The logs of a detector beside those of its swarm, after those of its sinks. The states of entities
// without a group and the summaries of entities have the two numbers between.
const (
	markShard      = statelog.KeyShard - 1 // of Mark
	collectedShard = statelog.KeyShard + 1 // of Collected
	orderShard     = statelog.KeyShard + 4 // of the order of answers, for several shards
)

// The kinds of their entries.
const (
	entryMark      = "mark"
	entryCollected = "collected"
	entryOrder     = "order"
)

// takeOverTries bounds how often a take-over begins again after an append of an earlier attempt.
const takeOverTries = 20

// Dictionary is the entities of a detector in memory. Its assignments have the numbers of entities,
// from 0, as groups.
type Dictionary interface {
	// Restore continues with the assignments of earlier attempts, in their order.
	Restore(all []statelog.Assignment) error
	// Fresh returns the keys of the entities from a number on, in their order; nil if all
	// assignments are stored by State.Assign.
	Fresh(from int) []string
}

// Options are what a State needs.
type Options struct {
	Record swarms.Swarm
	// Log returns a log of the swarm, without a request.
	Log func(shard int, d swarms.Direction) swarms.Log
	// Dictionary is nil without a key.
	Dictionary Dictionary
}

// State is what a detector keeps beside the agents of its swarm. The goroutine that feeds uses it,
// except for NoteCollected, which belongs to the one that collects.
//
// It is several logs beside those of the swarm: marks, keys, positions of the sinks, and the order
// of the answers. Only the logs of the swarm say which of the marks and keys count, so nothing has
// to be stored in two places at once.
type State struct {
	Last Mark // the last one that counts
	// Missing are the shards that do not have their part of the last batch. The caller appends their
	// rows, those between Last.Before and Last.Sources, before anything else.
	Missing []int
	After   []uint64 // by shard: the last known entry of its log
	// Bases are by shard the first entry that was not removed; 0 if none was.
	Bases     []uint64
	Collected Collected

	Groups feed.Groups
	record swarms.Swarm
	log    func(shard int, d swarms.Direction) swarms.Log
	in     []swarms.Log
	marks  *statelog.Log
	keys   *statelog.Keys
	out    *statelog.Log
	known  Dictionary
}

// Open reads the state of a detector and takes it over: an earlier attempt that still runs cannot
// append any more. Each log of the swarm has an entry more then, which is a query.
func Open(ctx context.Context, o Options) (*State, error) {
	s := &State{
		Groups: feed.Groups{Record: o.Record, Keyed: o.Dictionary != nil},
		record: o.Record, log: o.Log, known: o.Dictionary,
		marks: statelog.New(o.Log(markShard, swarms.In), entryMark),
		keys:  statelog.NewKeys(o.Log(statelog.KeyShard, swarms.In)),
		out:   statelog.New(o.Log(collectedShard, swarms.In), entryCollected),
	}
	for k := range o.Record.ShardCount() {
		s.in = append(s.in, o.Log(k, swarms.In))
		base := uint64(0)
		if b := o.Record.BaseOf(k); b != nil {
			base = b.Entry
		}
		s.Bases = append(s.Bases, base)
	}
	s.After = make([]uint64, len(s.in))
	for _, l := range []*statelog.Log{s.marks, s.keys.Log, s.out} {
		if err := l.Open(ctx); err != nil {
			return nil, err
		}
	}
	for tries := 0; ; tries++ {
		err := s.takeOver(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, jobs.ErrFenced) || tries == takeOverTries {
			return nil, err
		}
		// The earlier attempt was faster. It appends no more once a mark of this one is stored.
		if err := s.marks.Open(ctx); err != nil {
			return nil, err
		}
	}
	// The earlier attempt may have appended to these since.
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

// Marks returns the number of the last mark. It grows with each batch.
func (s *State) Marks() uint64 { return s.marks.Last() }

// Fenced reports whether a later attempt has taken over. A false answer is no proof.
func (s *State) Fenced(ctx context.Context) (bool, error) { return s.marks.Fenced(ctx) }

// takeOver finds the last mark that counts. It first appends to the marks, so that an earlier
// attempt stores no further mark, and then to all logs of the swarm. If the earlier attempt has
// appended a batch between the two, the search begins again.
func (s *State) takeOver(ctx context.Context) error {
	var all []Mark
	first := uint64(1)
	if last := s.marks.Last(); last > statelog.Kept {
		first = last - statelog.Kept + 1
	}
	if err := s.marks.Read(ctx, first, func(data []byte) error {
		var m Mark
		err := json.Unmarshal(data, &m)
		all = append(all, m)
		return err
	}); err != nil {
		return fmt.Errorf("read the marks of the detector: %w", err)
	}
	if len(all) == 0 {
		all = []Mark{{}}
	}
	query := make([][]byte, len(s.in))
	for k := range s.in {
		first, _ := s.record.ShardGroups(k)
		agents, err := s.agents()
		if err != nil {
			return err
		}
		query[k], err = json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{uint32(first * agents)}})
		if err != nil {
			return fmt.Errorf("encode a query: %w", err)
		}
	}
	ends := make([]swarms.Entry, len(s.in))
	taken := make([]bool, len(s.in))
	for {
		for k, l := range s.in {
			if taken[k] {
				continue
			}
			var err error
			if ends[k], err = l.Last(ctx); err != nil {
				return err
			}
		}
		good, missing, err := s.committed(ctx, all, ends)
		if err != nil {
			return err
		}
		if err := s.marks.Add(ctx, good); err != nil {
			return err
		}
		s.Last, s.Missing = good, missing
		again := false
		for k, l := range s.in {
			if taken[k] {
				continue
			}
			end := ends[k]
			err := l.Append(ctx, end.Seq, swarms.Entry{Kind: swarms.EntryQuery, Ref: end.Ref + 1, Data: query[k]})
			switch {
			case err == nil:
				s.After[k], taken[k] = end.Seq+1, true
			case errors.Is(err, jobs.ErrFenced):
				again = true
			default:
				return err
			}
		}
		if !again {
			return nil
		}
	}
}

// agents returns the number of agents of a group.
func (s *State) agents() (int, error) {
	var of struct {
		AgentsPerGroup int `json:"agents_per_group"`
	}
	if len(s.in) == 1 {
		return 1, nil // the first agent is 0
	}
	if err := json.Unmarshal(s.record.Spec, &of); err != nil {
		return 0, fmt.Errorf("the specification of swarm %s: %w", s.record.ID, err)
	}
	return of.AgentsPerGroup, nil
}

// committed returns the last of the marks whose batch is in the logs of the swarm up to some ends,
// and the shards that lack their part of it.
func (s *State) committed(ctx context.Context, all []Mark, ends []swarms.Entry) (Mark, []int, error) {
	for i := len(all) - 1; i >= 0; i-- {
		good := all[i]
		counts, missing, err := s.stored(ctx, &good, ends, true)
		if err != nil {
			return Mark{}, nil, err
		}
		if !counts {
			continue
		}
		// A take-over that ended before its query has a mark of the batch that was the last one at
		// that time, and the earlier attempt may have appended a later batch since.
		for _, m := range all[:i] {
			if m.Batch.Number <= good.Batch.Number {
				continue
			}
			counts, lacks, err := s.stored(ctx, &m, ends, false)
			if err != nil {
				return Mark{}, nil, err
			}
			if counts {
				good, missing = m, lacks
			}
		}
		return good, missing, nil
	}
	return Mark{}, nil, jobs.Errorf(
		jobs.CodeInternal, "none of the last %d positions of the detector belongs to a batch of its swarm: the log "+
			"was changed by another program: delete the detector and create it again", len(all),
	)
}

// stored reports whether the logs have a part of a batch, and which shards lack theirs. With trimmed
// set, the parts of a log that was trimmed to a snapshot are in the snapshot.
func (s *State) stored(ctx context.Context, m *Mark, ends []swarms.Entry, trimmed bool,
) (counts bool, missing []int, err error) {
	parts := m.parts()
	if len(parts) == 0 {
		return true, nil, nil
	}
	for _, p := range parts {
		if p.Shard < 0 || p.Shard >= len(s.in) {
			return false, nil, jobs.Errorf(jobs.CodeInternal, "a position of the detector names shard %d of %d: "+
				"delete the detector and create it again", p.Shard, len(s.in))
		}
		base, found := s.Bases[p.Shard], false
		err := statelog.Each(ctx, s.in[p.Shard], max(p.After+1, base), ends[p.Shard].Seq, func(e swarms.Entry) error {
			own := e.Kind == swarms.EntryObserve || e.Kind == swarms.EntrySwap
			found = found || own && idOf(e.Ref, e.Data) == BatchID{Number: m.Batch.Number, SHA256: p.SHA256}
			return nil
		})
		if err != nil {
			return false, nil, err
		}
		if found || trimmed && base > p.After+1 {
			counts = true
		} else {
			missing = append(missing, p.Shard)
		}
	}
	return counts, missing, nil
}

// readKeys reads the dictionary up to the last mark. Keys behind it are those of a batch that is
// not in the logs of the swarm. Their groups are given again, to the keys that come next.
func (s *State) readKeys(ctx context.Context) error {
	if s.known == nil {
		return nil
	}
	keys, err := s.keys.Load(ctx, s.Last.Entities)
	if errors.Is(err, statelog.ErrDamaged) {
		return jobs.Errorf(
			jobs.CodeInternal,
			"the keys of the detector: %v: delete the detector and create it again",
			err,
		)
	}
	if err != nil {
		return fmt.Errorf("read the keys of the detector: %w", err)
	}
	keys = slices.Clone(keys)
	for i := range keys {
		if keys[i].Group >= s.record.Groups {
			return jobs.Errorf(jobs.CodeInternal, "the keys of the detector have group %d of %d: delete the detector "+
				"and create it again", keys[i].Group, s.record.Groups)
		}
		keys[i].Group = s.Groups.Number(keys[i].Group)
	}
	return s.known.Restore(keys)
}

// storeKeys stores the keys that are new since the last call. It is called before the batch with
// their first rows is appended, so whoever reads a decision finds the entity of its group.
func (s *State) storeKeys(ctx context.Context) error {
	if s.known == nil {
		return nil
	}
	first := s.keys.Stored()
	keys := s.known.Fresh(first)
	if len(s.in) == 1 || len(keys) == 0 {
		return s.keys.Store(ctx, keys, s.addKeys)
	}
	all := make([]statelog.Assignment, len(keys))
	for i, key := range keys {
		all[i] = statelog.Assignment{Group: s.Groups.Group(first + i), Key: key}
	}
	return s.keys.Assign(ctx, all, 0, s.addKeys)
}

// addKeys appends keys. An earlier attempt may have appended keys after it lost the detector, which
// these replace. The order matters: the end of the log is found before the marks are looked at, so
// that of two attempts only the later one succeeds.
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
func (s *State) Commit(ctx context.Context, parts []feed.Part, m Mark) error {
	if err := s.storeKeys(ctx); err != nil {
		return err
	}
	m.Before = s.Last.Sources
	return s.append(ctx, swarms.EntryObserve, parts, m)
}

// Complete appends the parts of the last batch that shards lack, one for each of Missing.
func (s *State) Complete(ctx context.Context, parts []feed.Part) error {
	if len(parts) != len(s.Missing) {
		return jobs.Errorf(jobs.CodeInternal, "%d shards of %d get their rows of the last batch again: the journals "+
			"of the detector were changed by another program: delete the detector and create it again", len(parts),
			len(s.Missing))
	}
	if err := s.append(ctx, swarms.EntryObserve, parts, s.Last); err != nil {
		return err
	}
	s.Missing = nil
	return nil
}

// CommitSwap stores a swap of groups of one shard, whose assignments are stored, and adds to the counts. No
// row since the last batch is committed. It returns the entry of the swap.
func (s *State) CommitSwap(ctx context.Context, p feed.Part, evicted, returned uint64) (entry uint64, err error) {
	m := s.Last
	m.Before = m.Sources
	m.Evicted += evicted
	m.Returned += returned
	if err := s.append(ctx, swarms.EntrySwap, []feed.Part{p}, m); err != nil {
		return 0, err
	}
	return s.After[p.Shard], nil
}

// append appends the parts of a batch, whose keys are stored, at the same time. The mark comes
// before them: a kill between the two leaves a mark without a part, which committed passes over. The
// other order would leave rows whose places are not known, and they would be read twice.
func (s *State) append(ctx context.Context, kind string, parts []feed.Part, m Mark) error {
	number := s.Last.Batch.Number + 1
	m.Entities, m.Parts = s.keys.Stored(), nil
	if len(s.in) == 1 {
		m.Batch, m.After, m.Before = idOf(number, parts[0].Data), s.After[0], nil
	} else {
		m.Batch, m.After = BatchID{Number: number}, 0
		for _, p := range parts {
			m.Parts = append(m.Parts, MarkedPart{
				Shard: p.Shard, SHA256: idOf(number, p.Data).SHA256, After: s.After[p.Shard],
			})
		}
	}
	if err := s.marks.Add(ctx, m); err != nil {
		return err
	}
	errs := make([]error, len(parts))
	var appending sync.WaitGroup
	for i, p := range parts[1:] {
		appending.Go(func() { errs[i+1] = s.appendPart(ctx, kind, number, p) })
	}
	errs[0] = s.appendPart(ctx, kind, number, parts[0])
	appending.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.Last = m
	return s.marks.Trim(ctx)
}

// appendPart appends one part. Other clients may append entries of their own, such as questions.
func (s *State) appendPart(ctx context.Context, kind string, number uint64, p feed.Part) error {
	k := p.Shard
	for {
		err := s.in[k].Append(ctx, s.After[k], swarms.Entry{Kind: kind, Ref: number, Data: p.Data})
		if err == nil {
			s.After[k]++
			return nil
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return fmt.Errorf("send a %s: %w", kind, err)
		}
		// A later attempt of the detector has appended to the marks before.
		lost, lerr := s.marks.Fenced(ctx)
		if lerr != nil {
			return lerr
		}
		end, lerr := s.in[k].Last(ctx)
		if lerr != nil {
			return lerr
		}
		if lost || end.Seq <= s.After[k] {
			return fmt.Errorf("send a %s: %w", kind, err)
		}
		s.After[k] = end.Seq
	}
}

// Note stores places and counts behind rows that gave no batch, such as rejected ones. The mark has
// the identity of the last batch, so it counts at once.
func (s *State) Note(ctx context.Context, m Mark) error {
	m.Batch, m.After, m.Parts, m.Before = s.Last.Batch, s.Last.After, s.Last.Parts, s.Last.Before
	m.Entities = s.keys.Stored()
	if err := s.marks.Add(ctx, m); err != nil {
		return err
	}
	s.Last = m
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
