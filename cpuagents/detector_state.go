package cpuagents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// The logs of a detector beside that of its swarm, after those of its sources and sinks.
const (
	markShard      = statelog.KeyShard - 1 // of mark
	collectedShard = statelog.KeyShard + 1 // of collected
)

// The kinds of their entries.
const (
	entryMark      = "mark"
	entryCollected = "collected"
)

// batchID identifies a batch of a detector in the log of its swarm, where other clients may append
// entries too. The zero value is the begin of the log.
type batchID struct {
	Number uint64 `json:"number"` // from 1
	SHA256 string `json:"sha256,omitempty"`
}

// mark is the state of a detector behind a batch. It counts if the log of the swarm has the batch,
// so the batch commits the agents, the dictionary and the positions of the sources together.
type mark struct {
	Batch batchID `json:"batch"`
	// After is the entry of the log of the swarm before the batch, or an earlier one.
	After    uint64         `json:"after"`
	Entities int            `json:"entities,omitempty"` // in the dictionary
	Sources  []source.Place `json:"sources"`
	// Counts of all attempts up to here.
	Rows     uint64  `json:"rows"`
	Rejected uint64  `json:"rejected,omitempty"`
	Keyless  Keyless `json:"keyless,omitzero"`
	Evicted  uint64  `json:"evicted,omitempty"`
	Returned uint64  `json:"returned,omitempty"`
}

// collected is the position of the sinks of a detector in the log of decisions.
type collected struct {
	// Answer is the last entry that no sink needs again. The counts include the entries up to
	// Counted, which sinks may still hold.
	Answer    uint64 `json:"answer"`
	Counted   uint64 `json:"counted"`
	Decisions uint64 `json:"decisions"`
	Anomalies uint64 `json:"anomalies"`
	Dropped
}

// takeOverTries bounds how often a take-over begins again after an append of an earlier attempt.
const takeOverTries = 20

// detectorState is what a detector keeps beside the agents of its swarm. The goroutine that feeds
// uses it, except for out, which belongs to the one that collects.
//
// It is three logs beside that of the swarm: marks, keys and positions of the sinks. Only the log
// of the swarm says which of their entries count, so nothing has to be stored in two places at
// once.
type detectorState struct {
	in        swarms.Log // of the swarm
	base      uint64     // the first entry of in that was not removed; 0 if none was
	marks     *statelog.Log
	keys      *statelog.Keys
	out       *statelog.Log
	entities  *entities // nil without a key, and with evict
	evict     *eviction // nil if entities keep their groups
	last      mark      // the last one whose batch is in the log of the swarm
	after     uint64    // the last known entry of the log of the swarm
	collected collected
}

// openDetectorState reads the state of a detector and takes it over: an earlier attempt that still
// runs cannot append any more. The log of the swarm has an entry more then, which is a query.
func openDetectorState(
	ctx context.Context, record swarms.Swarm, log func(shard int, d swarms.Direction) swarms.Log, known *entities,
	evict *eviction,
) (*detectorState, error) {
	s := &detectorState{
		in:       log(0, swarms.In),
		marks:    statelog.New(log(markShard, swarms.In), entryMark),
		keys:     statelog.NewKeys(log(statelog.KeyShard, swarms.In)),
		out:      statelog.New(log(collectedShard, swarms.In), entryCollected),
		entities: known, evict: evict,
	}
	if b := record.BaseOf(0); b != nil {
		s.base = b.Entry
	}
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
	return s, s.out.Read(ctx, s.out.Last(), func(data []byte) error { return json.Unmarshal(data, &s.collected) })
}

// takeOver finds the last mark that counts. It first appends to the marks, so that an earlier
// attempt stores no further mark, and then to the log of the swarm. If the earlier attempt has
// appended a batch between the two, the search begins again.
func (s *detectorState) takeOver(ctx context.Context) error {
	var all []mark
	first := uint64(1)
	if last := s.marks.Last(); last > statelog.Kept {
		first = last - statelog.Kept + 1
	}
	if err := s.marks.Read(ctx, first, func(data []byte) error {
		var m mark
		err := json.Unmarshal(data, &m)
		all = append(all, m)
		return err
	}); err != nil {
		return fmt.Errorf("read the marks of the detector: %w", err)
	}
	if len(all) == 0 {
		all = []mark{{}}
	}
	query, err := json.Marshal(swarms.Query{Version: jobs.Version, Agents: []uint32{0}})
	if err != nil {
		return fmt.Errorf("encode a query: %w", err)
	}
	for {
		end, err := s.in.Last(ctx)
		if err != nil {
			return err
		}
		good, err := s.committed(ctx, all, end.Seq)
		if err != nil {
			return err
		}
		if err := s.marks.Add(ctx, good); err != nil {
			return err
		}
		s.last = good
		err = s.in.Append(ctx, end.Seq, swarms.Entry{Kind: swarms.EntryQuery, Ref: end.Ref + 1, Data: query})
		if err == nil {
			s.after = end.Seq + 1
			return nil
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
	}
}

// committed returns the last of the marks whose batch is in the log of the swarm up to entry end.
func (s *detectorState) committed(ctx context.Context, all []mark, end uint64) (mark, error) {
	for i := len(all) - 1; i >= 0; i-- {
		m := all[i]
		if m.Batch == (batchID{}) {
			return m, nil
		}
		found := false
		err := statelog.Each(ctx, s.in, max(m.After+1, s.base), end, func(e swarms.Entry) error {
			own := e.Kind == swarms.EntryObserve || e.Kind == swarms.EntrySwap
			found = found || own && m.Batch == idOf(e.Ref, e.Data)
			return nil
		})
		if err != nil {
			return mark{}, err
		}
		// The batch of a log that was trimmed to a snapshot is in the snapshot.
		if found || s.base > m.After+1 {
			return m, nil
		}
	}
	return mark{}, jobs.Errorf(
		jobs.CodeInternal, "none of the last %d positions of the detector belongs to a batch of its swarm: the log "+
			"was changed by another program: delete the detector and create it again", len(all),
	)
}

// idOf returns the identity of a batch. The number alone would not do: an attempt that was fenced
// and the one after it may both have made a batch of that number, with different rows.
func idOf(number uint64, data []byte) batchID {
	sum := sha256.Sum256(data)
	return batchID{Number: number, SHA256: hex.EncodeToString(sum[:])}
}

// readKeys reads the dictionary up to the last mark. Keys behind it are those of a batch that is
// not in the log of the swarm. Their groups are given again, to the keys that come next.
func (s *detectorState) readKeys(ctx context.Context) error {
	if s.entities == nil && s.evict == nil {
		return nil
	}
	keys, err := s.keys.Load(ctx, s.last.Entities)
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
	if s.evict != nil {
		return s.evict.restore(keys)
	}
	for _, a := range keys {
		if _, _, _, err := s.entities.add(a.Key); err != nil {
			return err
		}
	}
	return nil
}

// storeKeys stores the keys that are new since the last call. It is called before the batch with
// their first rows is appended, so whoever reads a decision finds the entity of its group.
func (s *detectorState) storeKeys(ctx context.Context) error {
	if s.entities == nil {
		return nil
	}
	return s.keys.Store(ctx, s.entities.from(s.keys.Stored()), s.addKeys)
}

// addKeys appends keys. An earlier attempt may have appended keys after it lost the detector, which
// these replace. The order matters: the end of the log is found before the marks are looked at, so
// that of two attempts only the later one succeeds.
func (s *detectorState) addKeys(ctx context.Context, keys any) error {
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

// assign stores assignments of groups, for the entries that are appended from now on.
func (s *detectorState) assign(ctx context.Context, all []statelog.Assignment, names *groupNames) error {
	for i := range all {
		all[i].After = s.after
	}
	if err := s.keys.Assign(ctx, all, s.after, s.addKeys); err != nil {
		return err
	}
	names.add(all)
	return nil
}

// commit stores a batch with the state behind it, both or none. m has the places and the counts.
// It returns the entry of the batch.
func (s *detectorState) commit(ctx context.Context, data []byte, m mark) (entry uint64, err error) {
	if err := s.storeKeys(ctx); err != nil {
		return 0, err
	}
	return s.append(ctx, swarms.EntryObserve, data, m)
}

// append is commit of an entry of a kind, whose keys are stored. The mark comes before the entry: a
// kill between the two leaves a mark without an entry, which committed passes over. The other order
// would leave rows whose places are not known, and they would be read twice.
func (s *detectorState) append(ctx context.Context, kind string, data []byte, m mark) (entry uint64, err error) {
	number := s.last.Batch.Number + 1
	m.Batch, m.After, m.Entities = idOf(number, data), s.after, s.keys.Stored()
	if err := s.marks.Add(ctx, m); err != nil {
		return 0, err
	}
	for {
		err := s.in.Append(ctx, s.after, swarms.Entry{Kind: kind, Ref: number, Data: data})
		if err == nil {
			s.after++
			s.last = m
			return s.after, s.marks.Trim(ctx)
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return 0, fmt.Errorf("send a %s: %w", kind, err)
		}
		// Other clients may append entries of their own, such as questions. A later attempt of the
		// detector has appended to the marks before.
		lost, lerr := s.marks.Fenced(ctx)
		if lerr != nil {
			return 0, lerr
		}
		end, lerr := s.in.Last(ctx)
		if lerr != nil {
			return 0, lerr
		}
		if lost || end.Seq <= s.after {
			return 0, fmt.Errorf("send a %s: %w", kind, err)
		}
		s.after = end.Seq
	}
}

// note stores places and counts behind rows that gave no batch, such as rejected ones. The mark has
// the identity of the last batch, so it counts at once.
func (s *detectorState) note(ctx context.Context, m mark) error {
	m.Batch, m.After, m.Entities = s.last.Batch, s.last.After, s.last.Entities
	if err := s.marks.Add(ctx, m); err != nil {
		return err
	}
	s.last = m
	return s.marks.Trim(ctx)
}

// noteCollected stores the position of the sinks.
func (s *detectorState) noteCollected(ctx context.Context, c collected) error {
	if c == s.collected {
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
	s.collected = c
	return s.out.Trim(ctx)
}
