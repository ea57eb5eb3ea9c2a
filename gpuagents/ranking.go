package gpuagents

// ranking gives observations of entries that are stepped together the numbers of their launches, from 0 on, so that everything is as if each
// entry had been stepped by itself: in an entry, an observation is behind those that its agent had before, and a group has the launches of an
// entry behind all of those that it had in the entries before, since it decides after each. Groups do not hear of each other, so a launch has
// observations of different entries. One goroutine uses it.
type ranking struct {
	agents, size int              // of the swarm, and of a group
	seen         []uint64         // a bit an agent: it is in the entry that is ranked
	next         []uint32         // by group: the launches that it has had
	again        map[uint32]int32 // of agents with several in the entry, how many so far
	touched      []uint32         // agents whose groups have had some
}

func newRanking(agents int64, size int) *ranking {
	return &ranking{agents: int(agents), size: size, seen: make([]uint64, (agents+63)/64), next: make([]uint32, int(agents)/size), again: map[uint32]int32{}}
}

// forget begins with the next entry as with the first.
func (r *ranking) forget() {
	for _, id := range r.touched {
		r.next[int(id)/r.size] = 0
	}
	r.touched = r.touched[:0]
}

// rank appends the launches of the observations of an entry, for agents that need not exist, to those of the entries before since forget, and
// says whether any of these is not the first.
func (r *ranking) rank(ids, launches []uint32) (_ []uint32, several bool) {
	from := len(launches)
	clear(r.again)
	for _, id := range ids {
		if int(id) >= r.agents {
			launches = append(launches, 0)
			continue
		}
		launch := r.next[int(id)/r.size]
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
		next := &r.next[int(id)/r.size]
		*next = max(*next, launches[from+i]+1)
		r.touched = append(r.touched, id)
	}
	return launches, several
}
