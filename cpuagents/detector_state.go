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
)

// The logs of a detector beside that of its swarm, after those of its sources and sinks.
const (
	markShard      = sinkShard + maxSinks + 8 // of mark
	keyShard       = markShard + 1            // of newKeys
	collectedShard = markShard + 2            // of collected
)

// The kinds of their entries.
const (
	entryMark      = "mark"
	entryKeys      = "keys"
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
}

// newKeys are the keys of the groups from First on. They replace keys that were stored for a batch
// that is not in the log.
type newKeys struct {
	First int      `json:"first"`
	Keys  []string `json:"keys"`
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

// keysBytes bounds an entry with keys in bytes.
const keysBytes = 256 << 10

// keptEntries is the number of entries that remain in a log of which only the last ones count.
const keptEntries = 64

// takeOverTries bounds how often a take-over begins again after an append of an earlier attempt.
const takeOverTries = 20

// stateLog is a log of JSON beside that of the swarm. One goroutine uses it.
type stateLog struct {
	log  swarms.Log
	kind string
	last uint64 // entry
}

// open creates the log if it is missing and finds its end.
func (l *stateLog) open(ctx context.Context) error {
	if err := l.log.Create(ctx); err != nil {
		return err
	}
	last, err := l.log.Last(ctx)
	l.last = last.Seq
	return err
}

// add appends an entry. jobs.ErrFenced means that another attempt has taken over.
func (l *stateLog) add(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a %s: %w", l.kind, err)
	}
	if err := l.log.Append(ctx, l.last, swarms.Entry{Kind: l.kind, Ref: l.last + 1, Data: data}); err != nil {
		return fmt.Errorf("store a %s: %w", l.kind, err)
	}
	l.last++
	return nil
}

// trim removes all but the last entries, once in keptEntries/2 calls of add.
func (l *stateLog) trim(ctx context.Context) error {
	if l.last%(keptEntries/2) != 0 || l.last <= keptEntries {
		return nil
	}
	return l.log.Trim(ctx, l.last-keptEntries+1)
}

// each calls fn for the entries of a log from one number to another. Entries that were removed are
// left out.
func each(ctx context.Context, log swarms.Log, from, to uint64, fn func(swarms.Entry) error) error {
	if to == 0 || from > to {
		return nil
	}
	r, err := log.Read(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if e.Seq > to {
			return nil
		}
		if err := fn(e); err != nil {
			return err
		}
		if e.Seq == to {
			return nil
		}
	}
}

// detectorState is what a detector keeps beside the agents of its swarm. The goroutine that feeds
// uses it, except for out, which belongs to the one that collects.
type detectorState struct {
	in        swarms.Log // of the swarm
	base      uint64     // the first entry of in that was not removed; 0 if none was
	marks     stateLog
	keys      stateLog
	out       stateLog
	entities  *entities // nil without a key
	stored    int       // entities in keys
	last      mark      // the last one whose batch is in the log of the swarm
	after     uint64    // the last known entry of the log of the swarm
	collected collected
}

// openDetectorState reads the state of a detector and takes it over: an earlier attempt that still
// runs cannot append any more. The log of the swarm has an entry more then, which is a query.
func openDetectorState(
	ctx context.Context, record swarms.Swarm, log func(shard int, d swarms.Direction) swarms.Log, known *entities,
) (*detectorState, error) {
	s := &detectorState{
		in:       log(0, swarms.In),
		marks:    stateLog{log: log(markShard, swarms.In), kind: entryMark},
		keys:     stateLog{log: log(keyShard, swarms.In), kind: entryKeys},
		out:      stateLog{log: log(collectedShard, swarms.In), kind: entryCollected},
		entities: known,
	}
	if b := record.BaseOf(0); b != nil {
		s.base = b.Entry
	}
	for _, l := range []*stateLog{&s.marks, &s.keys, &s.out} {
		if err := l.open(ctx); err != nil {
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
		if err := s.marks.open(ctx); err != nil {
			return nil, err
		}
	}
	// The earlier attempt may have appended to these since.
	for _, l := range []*stateLog{&s.keys, &s.out} {
		if err := l.open(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.readKeys(ctx); err != nil {
		return nil, err
	}
	return s, each(ctx, s.out.log, s.out.last, s.out.last, func(e swarms.Entry) error {
		return json.Unmarshal(e.Data, &s.collected)
	})
}

// takeOver finds the last mark that counts. It first appends to the marks, so that an earlier
// attempt stores no further mark, and then to the log of the swarm. If the earlier attempt has
// appended a batch between the two, the search begins again.
func (s *detectorState) takeOver(ctx context.Context) error {
	var all []mark
	first := uint64(1)
	if s.marks.last > keptEntries {
		first = s.marks.last - keptEntries + 1
	}
	if err := each(ctx, s.marks.log, first, s.marks.last, func(e swarms.Entry) error {
		var m mark
		err := json.Unmarshal(e.Data, &m)
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
		if err := s.marks.add(ctx, good); err != nil {
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
		err := each(ctx, s.in, max(m.After+1, s.base), end, func(e swarms.Entry) error {
			found = found || e.Kind == swarms.EntryObserve && m.Batch == idOf(e.Ref, e.Data)
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

// idOf returns the identity of a batch.
func idOf(number uint64, data []byte) batchID {
	sum := sha256.Sum256(data)
	return batchID{Number: number, SHA256: hex.EncodeToString(sum[:])}
}

// readKeys reads the dictionary up to the last mark.
func (s *detectorState) readKeys(ctx context.Context) error {
	if s.entities == nil {
		return nil
	}
	var keys []string
	if err := each(ctx, s.keys.log, 1, s.keys.last, func(e swarms.Entry) error {
		var k newKeys
		if err := json.Unmarshal(e.Data, &k); err != nil {
			return err
		}
		if k.First > len(keys) {
			return errors.New("entries before it are missing")
		}
		keys = append(keys[:k.First], k.Keys...)
		return nil
	}); err != nil {
		return fmt.Errorf("read the keys of the detector: %w", err)
	}
	if len(keys) < s.last.Entities {
		return jobs.Errorf(jobs.CodeInternal, "the dictionary of the detector has %d entities of %d: delete the "+
			"detector and create it again", len(keys), s.last.Entities)
	}
	for _, key := range keys[:s.last.Entities] {
		if _, _, _, err := s.entities.add(key); err != nil {
			return err
		}
	}
	s.stored = s.last.Entities
	return nil
}

// storeKeys stores the keys that are new since the last call.
func (s *detectorState) storeKeys(ctx context.Context) error {
	if s.entities == nil {
		return nil
	}
	all := s.entities.from(s.stored)
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && size < keysBytes {
			size += len(all[n])
			n++
		}
		if err := s.addKeys(ctx, newKeys{First: s.stored, Keys: all[:n]}); err != nil {
			return err
		}
		s.stored += n
		all = all[n:]
	}
	return nil
}

// addKeys appends keys. An earlier attempt may have appended keys after it lost the detector, which
// these replace. The order matters: the end of the log is found before the marks are looked at, so
// that of two attempts only the later one succeeds.
func (s *detectorState) addKeys(ctx context.Context, k newKeys) error {
	err := s.keys.add(ctx, k)
	if !errors.Is(err, jobs.ErrFenced) {
		return err
	}
	if err := s.keys.open(ctx); err != nil {
		return err
	}
	now, lerr := s.marks.log.Last(ctx)
	if lerr != nil {
		return lerr
	}
	if now.Seq != s.marks.last {
		return err
	}
	return s.keys.add(ctx, k)
}

// commit stores a batch with the state behind it, both or none. m has the places and the counts.
// It returns the entry of the batch.
func (s *detectorState) commit(ctx context.Context, data []byte, m mark) (entry uint64, err error) {
	if err := s.storeKeys(ctx); err != nil {
		return 0, err
	}
	number := s.last.Batch.Number + 1
	m.Batch, m.After, m.Entities = idOf(number, data), s.after, s.stored
	if err := s.marks.add(ctx, m); err != nil {
		return 0, err
	}
	for {
		err := s.in.Append(ctx, s.after, swarms.Entry{Kind: swarms.EntryObserve, Ref: number, Data: data})
		if err == nil {
			s.after++
			s.last = m
			return s.after, s.marks.trim(ctx)
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return 0, fmt.Errorf("send a batch: %w", err)
		}
		// Other clients may append entries of their own, such as questions. A later attempt of the
		// detector has appended to the marks before.
		now, lerr := s.marks.log.Last(ctx)
		if lerr != nil {
			return 0, lerr
		}
		end, lerr := s.in.Last(ctx)
		if lerr != nil {
			return 0, lerr
		}
		if now.Seq != s.marks.last || end.Seq <= s.after {
			return 0, fmt.Errorf("send a batch: %w", err)
		}
		s.after = end.Seq
	}
}

// note stores places and counts behind rows that gave no batch, such as rejected ones.
func (s *detectorState) note(ctx context.Context, m mark) error {
	m.Batch, m.After, m.Entities = s.last.Batch, s.last.After, s.last.Entities
	if err := s.marks.add(ctx, m); err != nil {
		return err
	}
	s.last = m
	return s.marks.trim(ctx)
}

// noteCollected stores the position of the sinks.
func (s *detectorState) noteCollected(ctx context.Context, c collected) error {
	if c == s.collected {
		return nil
	}
	err := s.out.add(ctx, c)
	if errors.Is(err, jobs.ErrFenced) { // an earlier attempt, which sends the same decisions
		if err = s.out.open(ctx); err == nil {
			err = s.out.add(ctx, c)
		}
	}
	if err != nil {
		return err
	}
	s.collected = c
	return s.out.trim(ctx)
}
