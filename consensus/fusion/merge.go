package fusion

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/exoswarm/exoswarm/consensus"
)

// Partial is what one shard has accumulated in one round: a snapshot of its nodes since their
// reset. The sums stay in float32, as the shard has them: widening them would add bytes and no
// information.
type Partial struct {
	Shard int // 0..shards-1
	Round uint64
	Nodes Nodes
}

// Total is the sum of the partials of a round. Its sums are float64, so that adding shards up loses
// nothing that float32 can show: up to 2^29 shards of equal sign have a smaller error together than
// the rounding of one sum to float32.
type Total struct {
	Round   uint64
	Dim     int
	Sums    []float64 // [M][Dim]
	Weights []uint64  // [M], in units of 1/65536
	Counts  []uint64  // [M]
	// Shards is the number of partials in it.
	Shards int
}

// Nodes is the total as nodes, each sum rounded once: every shard may write them back to continue
// from common knowledge. A sum outside the range of float32 is ErrValue.
func (t *Total) Nodes() (Nodes, error) {
	n := Nodes{
		Dim: t.Dim, Sums: make([]float32, len(t.Sums)), Weights: append([]uint64{}, t.Weights...),
		Counts: append([]uint64{}, t.Counts...),
	}
	for i, v := range t.Sums {
		n.Sums[i] = float32(v)
	}
	if err := n.finite(); err != nil {
		return Nodes{}, fmt.Errorf("total of round %d: %w", t.Round, err)
	}
	return n, nil
}

// Means writes the weighted mean of each node to dst, which has [M][Dim] elements; 0 for a node
// without weight. The quotient is rounded once.
func (t *Total) Means(dst []float32) error {
	if len(dst) != len(t.Sums) {
		return fmt.Errorf("means of %d values into %d: %w", len(t.Sums), len(dst), ErrLength)
	}
	for i, v := range t.Sums {
		dst[i] = 0
		if w := t.Weights[i/t.Dim]; w > 0 {
			dst[i] = float32(v / (float64(w) / consensus.One))
		}
	}
	return nil
}

// Merger merges the partials of a fixed number of shards, round after round, as consensus.Poll
// merges tallies. Its methods may be called from several goroutines at once. It holds the total,
// and each partial that came before a partial of a lower shard.
type Merger struct {
	word *consensus.Word

	mu      sync.Mutex
	nodes   int
	dim     int
	seen    uint64 // the word when the round was opened
	round   uint64 // the open round; 0: none
	total   Total
	heard   []bool
	waiting [][]float32 // sums by shard that are not in the total yet
	next    int         // all shards below are in the total
	left    int         // shards not heard
}

// NewMerger is a merger whose rounds are closed on word, which others may share.
func NewMerger(word *consensus.Word, nodes, dim, shards int) (*Merger, error) {
	if shards < 1 {
		return nil, fmt.Errorf("merger of %d shards: %w", shards, ErrShard)
	}
	if err := checkShape(nodes, dim); err != nil {
		return nil, err
	}
	return &Merger{word: word, nodes: nodes, dim: dim, heard: make([]bool, shards), waiting: make([][]float32, shards)},
		nil
}

// Open begins a round and forgets the one before, whether it was merged or not. A number that is
// not above the open and the last closed round is ErrRound.
func (m *Merger) Open(round uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.word.Load()
	if round <= seen || round <= m.round {
		return fmt.Errorf("open round %d after round %d: %w", round, max(seen, m.round), ErrRound)
	}
	m.seen, m.round = seen, round
	m.total = Total{
		Round: round, Dim: m.dim, Sums: make([]float64, m.nodes*m.dim), Weights: make([]uint64, m.nodes),
		Counts: make([]uint64, m.nodes),
	}
	clear(m.heard)
	clear(m.waiting)
	m.next, m.left = 0, len(m.heard)
	return nil
}

// Add takes a partial and reports whether it counts. A partial of an earlier round or of a shard
// that was heard changes nothing and is no error: deliveries repeat. A partial of a later round is
// ErrRound, and its sender repeats it; another shape is ErrLength, and a sum that is not finite
// ErrValue. The slices of a partial that counts belong to the merger until the round is over, and
// are not changed.
func (m *Merger) Add(part Partial) (counted bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case part.Shard < 0 || part.Shard >= len(m.heard):
		return false, fmt.Errorf("partial of shard %d of %d: %w", part.Shard, len(m.heard), ErrShard)
	case part.Round > m.round:
		return false, fmt.Errorf("partial of round %d while %d is open: %w", part.Round, m.round, ErrRound)
	case part.Round < m.round || m.word.Load() >= part.Round || m.heard[part.Shard]:
		return false, nil
	}
	if err := m.accept(part.Nodes); err != nil {
		return false, fmt.Errorf("partial of shard %d in round %d: %w", part.Shard, part.Round, err)
	}
	m.heard[part.Shard], m.waiting[part.Shard] = true, part.Nodes.Sums
	m.left--
	m.total.Shards++
	for m.next < len(m.heard) && m.heard[m.next] {
		m.fold(m.next)
		m.next++
	}
	return true, nil
}

// accept checks a partial and adds what does not depend on the order.
func (m *Merger) accept(n Nodes) error {
	if err := n.check(); err != nil {
		return err
	}
	if n.Len() != m.nodes || n.Dim != m.dim {
		return fmt.Errorf("%d nodes of %d values, want %d of %d: %w", n.Len(), n.Dim, m.nodes, m.dim, ErrLength)
	}
	if err := n.finite(); err != nil {
		return err
	}
	for i := range n.Weights {
		_, over := bits.Add64(m.total.Weights[i], n.Weights[i], 0)
		_, many := bits.Add64(m.total.Counts[i], n.Counts[i], 0)
		if over|many != 0 {
			return fmt.Errorf("node %d: %w", i, ErrOverflow)
		}
	}
	for i := range n.Weights {
		m.total.Weights[i] += n.Weights[i]
		m.total.Counts[i] += n.Counts[i]
	}
	return nil
}

func (m *Merger) fold(shard int) {
	for i, v := range m.waiting[shard] {
		m.total.Sums[i] += float64(v)
	}
	m.waiting[shard] = nil
}

// Missing is the number of shards that the open round has not heard.
func (m *Merger) Missing() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left
}

// Merge closes the open round with the partials so far and returns their total, which is the
// caller's. Callers who want all shards wait until Missing is 0. It is ErrRound if no round is
// open, the round was merged before, or another caller has closed it or a later round.
func (m *Merger) Merge() (Total, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.round == 0 || m.total.Sums == nil || !m.word.Elect(m.seen, m.round) {
		return Total{}, fmt.Errorf("merge round %d after round %d: %w", m.round, m.word.Load(), ErrRound)
	}
	for ; m.next < len(m.heard); m.next++ {
		if m.heard[m.next] {
			m.fold(m.next)
		}
	}
	total := m.total
	m.total = Total{} // the caller's
	return total, nil
}
