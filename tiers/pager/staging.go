package pager

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/tiers"
)

// stagingBuffers is a fixed number of staging buffers of one page, which bounds how much moves at once.
// All methods may be called from several goroutines at once. A caller holds one buffer at a time
// and gives it back without waiting for another.
type stagingBuffers struct {
	free     chan []byte // nil stands for a buffer that is to be made
	stager   tiers.Stager
	pageSize int
}

// newStaging returns n buffers of pageSize bytes. They are made at their first use, by stager
// unless it is nil: a caller that never moves a page through the processor takes no memory for
// them.
func newStaging(n, pageSize int, stager tiers.Stager) *stagingBuffers {
	s := &stagingBuffers{free: make(chan []byte, n), stager: stager, pageSize: pageSize}
	for range n {
		s.free <- nil
	}
	return s
}

// Take waits for a buffer, or for the end of ctx. The caller owns the buffer until Put.
func (s *stagingBuffers) Take(ctx context.Context) ([]byte, error) {
	var b []byte
	select {
	case b = <-s.free:
	default:
		select {
		case b = <-s.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b != nil {
		return b, nil
	}
	b, err := s.create()
	if err != nil {
		s.free <- nil
		return nil, fmt.Errorf("staging buffer: %w", err)
	}
	return b, nil
}

// create makes a buffer.
func (s *stagingBuffers) create() ([]byte, error) {
	if s.stager != nil {
		return s.stager.Stage()
	}
	return make([]byte, s.pageSize), nil
}

// opPut gives a buffer back.
func (s *stagingBuffers) Put(b []byte) {
	select {
	case s.free <- b:
	default: // It was replaced when its call was abandoned.
	}
}

// Replace makes up for a buffer that an abandoned call keeps.
func (s *stagingBuffers) Replace() { s.Put(make([]byte, s.pageSize)) }
