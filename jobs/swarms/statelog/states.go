package statelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const entryStates = "states"

type storedStates struct {
	// Answer is the last entry of the log of answers whose states are stored.
	Answer uint64               `json:"answer"`
	First  uint64               `json:"first"` // the entries before it were removed
	States []swarms.TaggedState `json:"states"`
}

// States stores the states of entities that have lost their groups, in a log, by key. A state is
// kept until the next one of the entity is stored. The log takes at most about twice the bytes of
// the states that count. Its methods may be called from several goroutines.
type States struct {
	mu      sync.Mutex
	log     *Log
	at      map[string]uint64          // by key: the entry with its state
	keys    map[uint64]map[string]bool // by entry: the keys whose states count
	sizes   map[uint64]int             // by entry: all its states, also states that do not count
	total   int                        // of sizes
	first   uint64                     // the first entry that is needed
	removed uint64                     // the entries before it were removed
	answer  uint64
	// recent are the last entries, so that most entities that return soon need no request.
	recent      map[uint64]storedStates
	recentFirst uint64 // the first of them
	recentBytes int
}

// maxRecent bounds the bytes of States.recent.
const maxRecent = 16 << 20

// OpenStates reads the states in a log, which it creates if it is missing. It takes as long as the
// reading of the log.
func OpenStates(ctx context.Context, l swarms.Log) (*States, error) {
	s := &States{log: New(l, entryStates), first: 1, removed: 1}
	s.clear()
	for tries := 0; ; tries++ {
		err := s.load(ctx)
		if err == nil {
			return s, nil
		}
		// An earlier attempt that still runs may remove entries while they are read.
		if errors.Is(err, ErrDamaged) || ctx.Err() != nil || tries == loadTries {
			return nil, err
		}
	}
}

// loadTries bounds how often the reading of all states begins again.
const loadTries = 3

func (s *States) load(ctx context.Context) error {
	s.clear()
	if err := s.log.Open(ctx); err != nil {
		return err
	}
	if err := s.each(ctx, s.log.last, func(_ uint64, of storedStates) { s.first = of.First }); err != nil {
		return err
	}
	s.removed = s.first
	return s.each(ctx, s.first, s.note)
}

// clear forgets all states. mu is held, or no other goroutine has the States.
func (s *States) clear() {
	s.at, s.keys, s.sizes, s.total = map[string]uint64{}, map[uint64]map[string]bool{}, map[uint64]int{}, 0
	s.recent, s.recentBytes = map[uint64]storedStates{}, 0
}

// each calls fn for the entries from a number on, up to the last known one. mu is held, or no other
// goroutine has the States.
func (s *States) each(ctx context.Context, from uint64, fn func(entry uint64, of storedStates)) error {
	return Each(ctx, s.log.log, from, s.log.last, func(e swarms.Entry) error {
		var one storedStates
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return fmt.Errorf("entry %d of the log of states: %w: %w", e.Seq, ErrDamaged, err)
		}
		fn(e.Seq, one)
		return nil
	})
}

// note makes the states of an entry current. mu is held.
func (s *States) note(entry uint64, of storedStates) {
	s.answer = max(s.answer, of.Answer)
	keys := make(map[string]bool, len(of.States))
	for _, one := range of.States {
		if old, has := s.at[one.Tag]; has {
			delete(s.keys[old], one.Tag)
		}
		s.at[one.Tag] = entry
		keys[one.Tag] = true
	}
	s.keys[entry], s.sizes[entry] = keys, len(of.States)
	s.total += len(of.States)
}

// Answer returns the last entry of the log of answers whose states are stored.
func (s *States) Answer() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

// Len returns the number of states that count.
func (s *States) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// Has reports whether there is a state of an entity.
func (s *States) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.at[key]
	return ok
}

// Put stores the states of entry number answer of the log of answers. States that were stored
// before are not stored again: the entries are stored in their order.
func (s *States) Put(ctx context.Context, answer uint64, states []swarms.TaggedState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer <= s.answer || len(states) == 0 {
		return nil
	}
	for {
		err := s.append(ctx, storedStates{Answer: answer, States: states})
		if err == nil {
			return s.compact(ctx)
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
		if err := s.follow(ctx); err != nil || answer <= s.answer {
			return err
		}
	}
}

// follow reads what another attempt has appended. mu is held.
func (s *States) follow(ctx context.Context) error {
	from := s.log.last + 1
	if err := s.log.Open(ctx); err != nil {
		return err
	}
	first := s.first
	if err := s.each(ctx, s.log.last, func(_ uint64, of storedStates) { first = of.First }); err != nil {
		return err
	}
	if first > from { // it has removed entries that this one does not know
		s.clear()
		s.first, s.removed, from = first, first, first
	}
	return s.each(ctx, from, s.note)
}

// append stores an entry, and removes the entries before the first one that counts. The entry names
// that one, so that a reader finds it. mu is held.
func (s *States) append(ctx context.Context, e storedStates) error {
	e.First = s.first
	if err := s.log.Add(ctx, e); err != nil {
		return err
	}
	s.note(s.log.last, e)
	s.remember(s.log.last, e)
	if e.First == s.removed {
		return nil
	}
	s.removed = e.First
	return s.log.log.Trim(ctx, e.First)
}

func (e storedStates) bytes() (n int) {
	for _, one := range e.States {
		n += len(one.Tag) + len(one.State) + 64
	}
	return n
}

// remember adds an entry to the entries in memory, and forgets the oldest. mu is held.
func (s *States) remember(entry uint64, of storedStates) {
	if len(s.recent) == 0 {
		s.recentFirst = entry
	}
	s.recent[entry] = of
	for s.recentBytes += of.bytes(); s.recentBytes > maxRecent && s.recentFirst < entry; s.recentFirst++ {
		s.recentBytes -= s.recent[s.recentFirst].bytes() // 0 for entries of another attempt
		delete(s.recent, s.recentFirst)
	}
}

// slack is the largest number of outdated states for which none is removed.
const slack = 16

// compact removes the first entries of the log while more than half of the stored states are
// outdated. It stores the current states of an entry again, at the end. mu is held.
func (s *States) compact(ctx context.Context) error {
	for range 4 { // entries that are stored again, at most
		for s.first < s.log.last && len(s.keys[s.first]) == 0 {
			s.total -= s.sizes[s.first]
			delete(s.keys, s.first)
			delete(s.sizes, s.first)
			s.first++
		}
		if s.first == s.log.last || s.total <= 2*len(s.at)+slack {
			break
		}
		one, err := s.read(ctx, s.first)
		if err != nil {
			return err
		}
		again := storedStates{Answer: s.answer}
		for _, state := range one.States {
			if s.at[state.Tag] == s.first {
				again.States = append(again.States, state)
			}
		}
		err = s.append(ctx, again)
		if errors.Is(err, jobs.ErrFenced) { // the other attempt may have stored later ones
			return s.follow(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entryLog is a log that returns a single entry without the cost of a Reader.
type entryLog interface {
	Entry(ctx context.Context, seq uint64) (swarms.Entry, error)
}

// read returns an entry. mu is held.
func (s *States) read(ctx context.Context, entry uint64) (of storedStates, err error) {
	if of, has := s.recent[entry]; has {
		return of, nil
	}
	var e swarms.Entry
	if l, direct := s.log.log.(entryLog); direct {
		e, err = l.Entry(ctx, entry)
	} else {
		err = Each(ctx, s.log.log, entry, entry, func(one swarms.Entry) error { e = one; return nil })
	}
	if err == nil {
		err = json.Unmarshal(e.Data, &of)
	}
	if err != nil {
		return of, fmt.Errorf("read entry %d of the log of states: %w", entry, err)
	}
	return of, nil
}

// Get returns the states of entities, nil for entities without a state. The caller does not change
// them.
func (s *States) Get(ctx context.Context, keys []string) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([][]byte, len(keys))
	entries := map[uint64]map[string][]byte{}
	for i, key := range keys {
		at, has := s.at[key]
		if !has {
			continue
		}
		if entries[at] == nil {
			of, err := s.read(ctx, at)
			if err != nil {
				return nil, err
			}
			entries[at] = map[string][]byte{}
			for _, one := range of.States {
				entries[at][one.Tag] = one.State
			}
		}
		if states[i] = entries[at][key]; states[i] == nil {
			return nil, fmt.Errorf("the state of %q in entry %d of the log of states: %w", key, at, ErrDamaged)
		}
	}
	return states, nil
}
