package shard

import "sync"

// stumbles is how often the pages of shards could not be read since their last checkpoints.
type readFailures struct {
	mu sync.Mutex
	of map[ID]int
}

// add counts once more, and returns how often it was.
func (s *readFailures) add(id ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[ID]int{}
	}
	s.of[id]++
	return s.of[id]
}

func (s *readFailures) forget(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// mostStumbles is how often a shard goes back to its checkpoint because a medium does not read a page, a second after the last time,
// before it starts from its log without: as often as a disk fails before the pager leaves it alone.
const maxReadFailures = 3
