package training

import (
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

const (
	// launchTime is how long the longest launch of a part takes, about. A busy machine makes it a few
	// times longer, and 20 ms are the most.
	launchTime = 5 * time.Millisecond
	// firstMoments is the number of moments of the first part, for each multiprocessor: nothing has been
	// measured yet, and a core takes less than launchTime for them.
	firstMoments = 256
	// mostLaunches is how many launches a part has.
	mostLaunches = 5
)

// pace chooses the moments of parts by how long the launches of parts have taken on the device. It
// changes no bit.
type pace struct {
	marks    [mostLaunches + 1]device.Event // before the launches of the last part, and behind each
	marked   int                            // marks of the part whose work is queued; 0: none is
	launches int                            // of the last part
	timed    int64                          // moments of that part, 0: it has been looked at
	moments  int64                          // of the next part
	most     int64
	// least is how many sequences a launch steps in the time of one: two of each multiprocessor.
	least int64
}

func newPace(dev device.Device, most int64) (p pace, err error) {
	cores := int64(dev.Properties().Multiprocessors)
	p.most, p.least = most, 2*cores
	p.moments = min(most, firstMoments*cores)
	for i := range p.marks {
		if p.marks[i], err = dev.NewEvent(); err != nil {
			return p, errors.Join(fmt.Errorf("an event of a training: %w", err), p.close())
		}
	}
	return p, nil
}

// sequences returns how many sequences of some moments the next part has, at most. The work of the
// last part has ended.
func (p *pace) sequences(moments int) (int, error) {
	if p.timed > 0 {
		longest := time.Duration(0)
		for i := range p.launches {
			took, err := p.marks[i+1].Since(p.marks[i])
			if err != nil {
				return 0, fmt.Errorf("time of a launch: %w", err)
			}
			longest = max(longest, took)
		}
		p.moments, p.timed = p.after(longest), 0
	}
	fit := min(max(p.moments, p.least*int64(moments)), p.most)
	return max(2, int(fit)/moments), nil
}

// after returns the moments of the next part if the longest launch of the last one took so long. One
// part says only so much: a busy machine, or few agents with many moments, make a launch slow.
func (p *pace) after(longest time.Duration) int64 {
	fits := int64(float64(p.timed) * float64(launchTime) / float64(max(longest, 1)))
	if fits < p.moments && longest > launchTime {
		return max(fits, p.moments/2, 1)
	}
	if p.timed > p.moments/2 {
		return min(max(fits, p.moments), 2*p.moments, p.most)
	}
	return p.moments
}

// mark marks the end of a launch on the stream.
func (p *pace) mark(s device.Stream) error {
	if p.marked == 0 {
		return nil
	}
	if err := s.Record(p.marks[p.marked]); err != nil {
		return fmt.Errorf("time of a launch: %w", err)
	}
	p.marked++
	return nil
}

// time has the launches of do timed, which queues the work of a part on the stream.
func (p *pace) time(s device.Stream, moments int64, do func() error) error {
	if err := s.Record(p.marks[0]); err != nil {
		return fmt.Errorf("time of a launch: %w", err)
	}
	p.marked = 1
	err := do()
	p.launches, p.marked, p.timed = p.marked-1, 0, moments
	return err
}

// close releases the events, behind the end of all work. A second call does nothing.
func (p *pace) close() error {
	var wrong []error
	for i, e := range p.marks {
		if e != nil {
			wrong = append(wrong, e.Close())
			p.marks[i] = nil
		}
	}
	return errors.Join(wrong...)
}
