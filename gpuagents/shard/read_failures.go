package shard

import "sync"

// readFailures counts by shard how often its pages could not be read since its last checkpoint. Its
// methods may be called from several goroutines.
type readFailures struct {
	mu sync.Mutex
	of map[ID]int
}

// add counts a failure, and returns the number of failures.
func (s *readFailures) add(id ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[ID]int{}
	}
	s.of[id]++
	return s.of[id]
}

// forget sets the count of a shard to zero.
func (s *readFailures) forget(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// maxReadFailures is how often a shard returns to its checkpoint because a medium does not read a
// page, a second after the last time, before it starts from its log: as often as a disk fails
// before the pager opens its circuit.
const maxReadFailures = 3
