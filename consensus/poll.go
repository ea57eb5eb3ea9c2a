package consensus

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Word is the round word of a swarm: the number of the last round that was closed, 0 before the
// first. The zero value is ready to use, by any number of goroutines.
type Word struct {
	closed atomic.Uint64
}

// Load is the number of the last closed round.
func (w *Word) Load() uint64 { return w.closed.Load() }

// Elect closes a round with one compare-and-swap: it wins if seen is still the last closed round
// and round is a later one. Of several that close a round one wins, and a stale one never does.
func (w *Word) Elect(seen, round uint64) bool {
	return round > seen && w.closed.CompareAndSwap(seen, round)
}

// Partial is what one shard counted in one round.
type Partial struct {
	Shard int // 0..shards-1
	Round uint64
	Tally Tally
}

// Poll merges the partial tallies of a fixed number of shards, round after round. Its methods may
// be called from several goroutines at once.
type Poll struct {
	word       *Word
	candidates int

	mu     sync.Mutex
	seen   uint64 // the word when the round was opened
	round  uint64 // the open round; 0: none
	merged Tally
	heard  []bool
	left   int // shards not heard
}

// NewPoll is a poll whose rounds are closed on word, which others may share.
func NewPoll(word *Word, candidates, shards int) (*Poll, error) {
	if shards < 1 {
		return nil, fmt.Errorf("poll of %d shards: %w", shards, ErrShard)
	}
	if _, err := NewTally(candidates); err != nil {
		return nil, err
	}
	return &Poll{word: word, candidates: candidates, heard: make([]bool, shards)}, nil
}

// Open begins a round and forgets the one before, whether it was decided or not. A number that is
// not above the open and the last closed round is ErrRound.
func (p *Poll) Open(round uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.word.Load()
	if round <= seen || round <= p.round {
		return fmt.Errorf("open round %d after round %d: %w", round, max(seen, p.round), ErrRound)
	}
	p.seen, p.round = seen, round
	p.merged = Tally{Counts: make([]uint64, p.candidates)}
	clear(p.heard)
	p.left = len(p.heard)
	return nil
}

// Add merges a partial and reports whether it counted. A partial of an earlier round or of a shard
// that was heard changes nothing and is no error: deliveries repeat. A partial of a later round is
// ErrRound, and its sender repeats it.
func (p *Poll) Add(part Partial) (counted bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case part.Shard < 0 || part.Shard >= len(p.heard):
		return false, fmt.Errorf("partial of shard %d of %d: %w", part.Shard, len(p.heard), ErrShard)
	case part.Round > p.round:
		return false, fmt.Errorf("partial of round %d while %d is open: %w", part.Round, p.round, ErrRound)
	case part.Round < p.round || p.word.Load() >= part.Round || p.heard[part.Shard]:
		return false, nil
	}
	if err := p.merged.Merge(part.Tally); err != nil {
		return false, fmt.Errorf("partial of shard %d in round %d: %w", part.Shard, part.Round, err)
	}
	p.heard[part.Shard] = true
	p.left--
	return true, nil
}

// Missing is the number of shards that the open round has not heard.
func (p *Poll) Missing() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// Decide closes the open round with the partials merged so far and decides it. Callers who want all
// shards wait until Missing is 0. It is ErrRound if no round is open, the round was decided before,
// or another caller has closed it or a later round.
func (p *Poll) Decide(r Rule) (Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, err := Decide(r, p.merged)
	if err != nil {
		return Decision{}, err
	}
	if p.round == 0 || !p.word.Elect(p.seen, p.round) {
		return Decision{}, fmt.Errorf("decide round %d after round %d: %w", p.round, p.word.Load(), ErrRound)
	}
	d.Round = p.round
	return d, nil
}
