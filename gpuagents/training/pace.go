package training

import (
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

const (
	// partTime is how long the launches of a part take together, about. The longest one takes up to 60 %
	// of it, and other work of the device, such as shards of swarms, waits for one launch: 20 ms.
	partTime = 32 * time.Millisecond
	// firstMoments is the number of moments of the first part, for each multiprocessor. They take less
	// than partTime on a core, and on a GPU.
	firstMoments = 1024
)

// pace chooses the moments of parts by how long parts have taken on the device. It changes no bit.
type pace struct {
	from, to device.Event // before and behind the launches of the last part
	timed    int64        // moments of that part, 0: it has been looked at
	moments  int64        // of the next part
	most     int64
}

func newPace(dev device.Device, most int64) (p pace, err error) {
	p.most = most
	p.moments = min(most, firstMoments*int64(dev.Properties().Multiprocessors))
	for _, e := range []*device.Event{&p.from, &p.to} {
		if *e, err = dev.NewEvent(); err != nil {
			return p, errors.Join(fmt.Errorf("an event of a training: %w", err), p.close())
		}
	}
	return p, nil
}

// next returns the moments of the next part. The work of the last part has ended.
func (p *pace) next() (int64, error) {
	if p.timed == 0 {
		return p.moments, nil
	}
	took, err := p.to.Since(p.from)
	if err != nil {
		return 0, fmt.Errorf("time of a part: %w", err)
	}
	p.moments, p.timed = p.after(took), 0
	return p.moments, nil
}

// after returns the moments of the next part if the last one took so long. One part says only so
// much: a busy machine, or few agents with many moments, make a part slow.
func (p *pace) after(took time.Duration) int64 {
	fits := int64(float64(p.timed) * float64(partTime) / float64(max(took, 1)))
	if fits < p.moments && took > partTime {
		return max(fits, p.moments/2, 1)
	}
	if p.timed > p.moments/2 {
		return min(max(fits, p.moments), 2*p.moments, p.most)
	}
	return p.moments
}

// time has the launches of do timed, which queues the work of a part on the stream.
func (p *pace) time(s device.Stream, moments int64, do func() error) error {
	if err := s.Record(p.from); err != nil {
		return fmt.Errorf("time of a part: %w", err)
	}
	if err := do(); err != nil {
		return err
	}
	if err := s.Record(p.to); err != nil {
		return fmt.Errorf("time of a part: %w", err)
	}
	p.timed = moments
	return nil
}

// close releases the events, behind the end of all work. A second call does nothing.
func (p *pace) close() error {
	var wrong []error
	for _, e := range []*device.Event{&p.from, &p.to} {
		if *e != nil {
			wrong = append(wrong, (*e).Close())
			*e = nil
		}
	}
	return errors.Join(wrong...)
}
