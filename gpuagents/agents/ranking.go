package agents

import "math/bits"

// Ranking numbers the launches of observations of several entries that are stepped together, from 0
// on, so that the results equal the results of each entry alone. Within an entry, an observation
// follows the earlier observations of its agent. A group decides after each entry, so its launches
// of an entry follow all its launches of earlier entries. Groups do not depend on one another, so a
// launch has observations of different entries. One goroutine uses it.
type Ranking struct {
	agents  int              // number of agents of the swarm
	size    divisor          // agents of a group
	seen    []uint64         // a bit for each agent: it is in the current entry
	next    []uint32         // by group: its launches so far
	again   map[uint32]int32 // by agent with several observations in the entry: how many so far
	touched []uint32         // agents of the groups with launches
}

// NewRanking returns a Ranking for a number of agents, in groups of size.
func NewRanking(agents int64, size int) *Ranking {
	return &Ranking{
		agents: int(agents),
		size:   divideBy(size),
		seen:   make([]uint64, (agents+63)/64),
		next:   make([]uint32, int(agents)/size),
		again:  map[uint32]int32{},
	}
}

// Forget makes the next entry the first.
func (r *Ranking) Forget() {
	for _, id := range r.touched {
		r.next[r.size.of(id)] = 0
	}
	r.touched = r.touched[:0]
}

// Rank appends the launch numbers of the observations of an entry. They follow the launches of the
// earlier entries since Forget. several reports whether any new number is above 0. Agents need not
// exist.
func (r *Ranking) Rank(ids, launches []uint32) (_ []uint32, several bool) {
	from := len(launches)
	clear(r.again)
	for _, id := range ids {
		if int(id) >= r.agents {
			launches = append(launches, 0)
			continue
		}
		launch := r.next[r.size.of(id)]
		word, bit := &r.seen[id/64], uint64(1)<<(id%64)
		if *word&bit != 0 {
			r.again[id]++
			launch += uint32(r.again[id])
		}
		*word |= bit
		several = several || launch > 0
		launches = append(launches, launch)
	}
	for i, id := range ids {
		if int(id) >= r.agents {
			continue
		}
		r.seen[id/64] = 0
		next := &r.next[r.size.of(id)]
		*next = max(*next, launches[from+i]+1)
		r.touched = append(r.touched, id)
	}
	return launches, several
}

// mostDistinct is the maximum number of ids that distinct examines. Its table fits into the cache
// of a core; the memory of a Ranking, which has the size of the swarm, does not.
const mostDistinct = 1 << 14

// distinct finds out whether the ids of one entry are distinct. The zero value is ready. One
// goroutine uses it.
type distinct struct {
	slots []uint32 // ids + 1 by hash, zeros between two calls
}

// all reports whether no id occurs twice. It returns false for more than mostDistinct ids. The id
// 2^32-1, which no agent has, may occur twice.
func (d *distinct) all(ids []uint32) bool {
	if len(ids) > mostDistinct {
		return false
	}
	size := 1 << bits.Len(uint(4*len(ids))) // at most a fourth of the slots is taken
	if len(d.slots) < size {
		d.slots = make([]uint32, size)
	}
	slots := d.slots[:size]
	defer clear(slots)
	shift := 64 - bits.Len(uint(size-1))
	for _, id := range ids {
		id++
		if id == 0 {
			continue
		}
		at := slotOf(id, shift)
		for slots[at] != 0 {
			if slots[at] == id {
				return false
			}
			at = (at + 1) & (size - 1)
		}
		slots[at] = id
	}
	return true
}

// slotOf returns the first slot of an id + 1, of 2^(64-shift) slots.
func slotOf(id uint32, shift int) int {
	return int(uint64(id) * 0x9E3779B97F4A7C15 >> shift) // Knuth's multiplicative hash
}

// divisor divides by a number that rarely changes, such as the size of a group or a page. A
// multiplication takes a fifth of the time of a division.
type divisor struct {
	by    uint32
	magic uint64
}

func divideBy(n int) divisor { return divisor{uint32(n), ^uint64(0)/uint64(n) + 1} }

// of returns i / by. With 2^64 / by, rounded up, the high word of the product is the quotient for
// every i and by of 32 bits (D. Lemire, O. Kaser, N. Kurz: Faster remainder by direct computation,
// 2019). For by 1 the magic number would be 2^64, which does not fit into a word.
func (d divisor) of(i uint32) uint32 {
	if d.by == 1 {
		return i
	}
	q, _ := bits.Mul64(d.magic, uint64(i))
	return uint32(q)
}
