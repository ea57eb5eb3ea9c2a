package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// session is the use of a device by a program: what cuda_init returns.
type session struct {
	life
	device *opened
}

func (s *session) kind() string   { return "context" }
func (s *session) parent() object { return nil }

func (s *session) close(l *Library) error {
	return errors.Join(l.end(s, &s.life), l.release(s.device))
}

// Init opens a device for a program and returns the handle of a context.
func (l *Library) Init(ctx context.Context, number int) (handle uint64, err error) {
	d, err := l.acquire(ctx, number)
	if err != nil {
		return 0, err
	}
	if handle, err = l.handles.put(&session{device: d}, 0); err != nil {
		return 0, errors.Join(err, l.release(d))
	}
	return handle, nil
}

// FreeContext frees a context with its models and their inferences. A handle of 0 is no error.
func (l *Library) FreeContext(handle uint64) error { return free[*session](l, handle) }

// session returns a context that stays open until the caller calls done of it.
func (l *Library) session(handle uint64) (*session, error) {
	s, _, err := find[*session](&l.handles, handle)
	if err != nil {
		return nil, err
	}
	return s, s.begin(handle)
}

// Usage returns the bytes of device memory that this process has allocated on the device of a
// context.
func (l *Library) Usage(handle uint64) (n uint64, err error) {
	s, err := l.session(handle)
	if err != nil {
		return 0, err
	}
	defer s.done()
	for _, u := range s.device.Usage() {
		n += uint64(u.Bytes)
	}
	return n, nil
}

// CheckHealth returns an error with the reasons if the device of a context does not work.
func (l *Library) CheckHealth(ctx context.Context, handle uint64) error {
	s, err := l.session(handle)
	if err != nil {
		return err
	}
	defer s.done()
	if h := s.device.Health(ctx); h.State == device.Failed {
		return fmt.Errorf("%s does not work: %s", s.device.Properties().Name, strings.Join(h.Reasons, "; "))
	}
	return nil
}
