package gpubatch

import "errors"

// reducedLaunches is the number of launches that a batch is split into while a shard is reduced. A
// failure then costs a part of the batch, and the buffers have a fourth of their size.
const reducedLaunches = 4

// Splitter splits batches that are too large for the memory of a device. The zero value splits a
// batch only when the device has no memory for it. One goroutine uses it at a time.
type Splitter struct {
	// Reduced splits each batch into several launches.
	Reduced bool

	fits int // observations that fit into memory lately; 0: all
}

// Each processes n observations by calls of f. f processes up to most observations from number from
// on, and returns the end of the processed range, which may be past from+most if f cannot cut
// there. After an ErrNoMemory, Each calls trim, which releases memory, and retries f with half the
// observations, down to one. halved is the number of retries. After a batch without retries the
// next one may be twice as large.
func (p *Splitter) Each(n int, f func(from, most int) (end int, err error), trim func() error) (halved int, err error) {
	for from := 0; from < n; {
		most := n
		if p.Reduced {
			most = (n + reducedLaunches - 1) / reducedLaunches
		}
		if p.fits > 0 {
			most = min(most, p.fits)
		}
		most = min(most, n-from)
		end, err := f(from, most)
		switch {
		case err == nil:
			from = end
		case errors.Is(err, ErrNoMemory) && most > 1:
			if terr := trim(); terr != nil {
				return halved, errors.Join(err, terr)
			}
			p.fits = most / 2
			halved++
		default:
			return halved, err
		}
	}
	if halved == 0 && p.fits > 0 {
		if p.fits *= 2; p.fits >= n {
			p.fits = 0
		}
	}
	return halved, nil
}
