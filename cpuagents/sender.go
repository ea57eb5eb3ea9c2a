package cpuagents

import (
	"context"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
)

// sendAhead is the number of batches that are full and not appended yet. Two let the reading, the
// keys of the next batch and the append of the last one overlap.
const sendAhead = 2

// sender appends the batches of a job behind the goroutine that reads. One goroutine stores the
// keys that are new in a batch, and another one appends the batch, each in the order of the
// batches. So an append that waits for the disk does not hold up the reading.
type sender struct {
	f      *batcher
	work   context.Context //nolint:containedctx // the goroutines live as long as it
	cancel context.CancelCauseFunc
	full   chan outgoing
	keyed  chan outgoing
	free   chan *feed.Batch
	over   sync.WaitGroup
	ended  bool
}

type outgoing struct {
	number  uint64
	batch   *feed.Batch
	plan    *batchPlan
	missing bool // a log does not have it
}

// newSender starts the goroutines. They end with work, or with end.
func newSender(work context.Context, f *batcher) *sender {
	s := &sender{
		f: f, full: make(chan outgoing, sendAhead-1), keyed: make(chan outgoing),
		free: make(chan *feed.Batch, sendAhead+2),
	}
	s.work, s.cancel = context.WithCancelCause(work)
	s.over.Go(func() {
		defer close(s.keyed)
		for o := range s.full {
			err := error(nil)
			if o.missing {
				if err = f.storeKeys(s.work); err != nil {
					err = fmt.Errorf("store the keys of batch %d: %w", o.number, err)
				}
			}
			if err != nil {
				s.cancel(err)
				return
			}
			select {
			case s.keyed <- o:
			case <-s.work.Done():
				return
			}
		}
	})
	s.over.Go(func() {
		for o := range s.keyed {
			if err := f.send(s.work, o); err != nil {
				s.cancel(err)
				return
			}
			o.batch.Reset()
			select {
			case s.free <- o.batch:
			default:
			}
		}
	})
	return s
}

// add hands a batch over, and returns an empty one. It waits while enough batches wait.
func (s *sender) add(o outgoing) (*feed.Batch, error) {
	select {
	case s.full <- o:
	case <-s.work.Done():
		return nil, context.Cause(s.work)
	}
	select {
	case next := <-s.free:
		return next, nil
	default:
		return s.f.newBatch(), nil
	}
}

// end waits until all batches are appended. With an error of the reading it does not wait for the
// appends. It returns the first error. A second call does nothing.
func (s *sender) end(err error) error {
	if s.ended {
		return err
	}
	s.ended = true
	if err != nil {
		s.cancel(err)
	}
	close(s.full)
	s.over.Wait()
	failed := context.Cause(s.work)
	s.cancel(nil)
	return failed
}

// send appends a batch whose keys are stored, and waits before that while too many batches are
// unanswered. A batch that an earlier attempt has appended is left out.
func (f *batcher) send(work context.Context, o outgoing) error {
	if o.missing || o.plan != nil { // the plans of batches in all logs are bounded too
		if o.plan != nil {
			f.x.noteSent(o.number - 1)
		}
		if err := f.x.room(work, o.number); err != nil {
			return err
		}
	}
	if !o.missing {
		return nil
	}
	if err := f.logs.send(work, o.number, o.batch, o.plan); err != nil {
		return err
	}
	f.x.noteSent(o.number)
	return nil
}
