package agents

import "math/bits"

// ranking gives observations of entries that are stepped together the numbers of their launches, from 0 on, so that everything is as if each
// entry had been stepped by itself: in an entry, an observation is behind those that its agent had before, and a group has the launches of an
// entry behind all of those that it had in the entries before, since it decides after each. Groups do not hear of each other, so a launch has
// observations of different entries. One goroutine uses it.
type Ranking struct {
	agents  int              // of the swarm
	size    divisor          // of a group
	seen    []uint64         // a bit an agent: it is in the entry that is ranked
	next    []uint32         // by group: the launches that it has had
	again   map[uint32]int32 // of agents with several in the entry, how many so far
	touched []uint32         // agents whose groups have had some
}

func NewRanking(agents int64, size int) *Ranking {
	return &Ranking{agents: int(agents), size: divideBy(size), seen: make([]uint64, (agents+63)/64), next: make([]uint32, int(agents)/size), again: map[uint32]int32{}}
}

// forget begins with the next entry as with the first.
func (r *Ranking) Forget() {
	for _, id := range r.touched {
		r.next[r.size.of(id)] = 0
	}
	r.touched = r.touched[:0]
}

// rank appends the launches of the observations of an entry, for agents that need not exist, to those of the entries before since forget, and
// says whether any of these is not the first.
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

// divisor divides by a number that is the same for long: observations are divided by the size of groups and pages, and a multiplication takes a
// fifth of the time of a division.
type divisor struct {
	by    uint32
	magic uint64
}

func divideBy(n int) divisor { return divisor{uint32(n), ^uint64(0)/uint64(n) + 1} }

// of is i / by. With 2^64 / by, rounded up, the high word of the product is that for every i and by of 32 bits (D. Lemire, O. Kaser, N. Kurz: Faster
// remainder by direct computation, 2019); by 1 the magic number is 2^64, which there is no word for.
func (d divisor) of(i uint32) uint32 {
	if d.by == 1 {
		return i
	}
	q, _ := bits.Mul64(d.magic, uint64(i))
	return uint32(q)
}
