package command

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
	"time"
)

// profiles is the CPU profile of this process that is being taken. A process can take one at a
// time, so all agents of the process that are asked meanwhile get the same.
var profiles sharedProfile

// sharedProfile takes one CPU profile at a time.
type sharedProfile struct {
	mu  sync.Mutex
	now *profile // nil: none is being taken
}

// profile is a CPU profile. The fields after done may be read when that is closed.
type profile struct {
	waiters int           // guarded by sharedProfile.mu
	left    chan struct{} // closed when the last waiter has left
	done    chan struct{}
	data    []byte
	err     error
}

// take returns a CPU profile: a new one of a length, or the one that is being taken, with the
// length that its first caller asked for. A profile ends early when the contexts of all its callers
// have ended.
func (s *sharedProfile) take(ctx context.Context, length time.Duration) ([]byte, error) {
	s.mu.Lock()
	p := s.now
	if p == nil {
		p = &profile{left: make(chan struct{}), done: make(chan struct{})}
		s.now = p
		go s.run(p, length)
	}
	p.waiters++
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.data, p.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if p.waiters--; p.waiters == 0 {
		if s.now == p {
			s.now = nil
		}
		close(p.left)
	}
	s.mu.Unlock()
	return nil, context.Cause(ctx)
}

// run takes a profile. It returns when the length is over, or the last waiter has left.
func (s *sharedProfile) run(p *profile, length time.Duration) {
	defer close(p.done)
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		p.err = fmt.Errorf("CPU profile: %w", err)
	} else {
		end := time.NewTimer(length)
		defer end.Stop()
		select {
		case <-end.C:
		case <-p.left:
		}
		pprof.StopCPUProfile()
		p.data = b.Bytes()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == p {
		s.now = nil
	}
}
