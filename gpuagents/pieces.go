package gpuagents

import "errors"

// reducedParts are the launches that a batch becomes when a shard is reduced: what fails then is a part of the work, and its buffers are
// a fourth.
const reducedParts = 4

// pieces is how a shard cuts its batches. The zero value does not cut them.
type pieces struct {
	reduced bool
	fits    int // observations that there was room for lately; 0: as many as come
}

// each does n observations, by calls of f with the first and the most that it may do, which returns where it has ended: behind that, if it cannot cut
// there. Where f returns an errFit, trim gives up memory, and f is tried with half as many, as long as that are fewer; it returns how often.
// After a batch that had room twice as many are tried.
func (p *pieces) each(n int, f func(from, most int) (end int, err error), trim func() error) (halved int, err error) {
	for from := 0; from < n; {
		most := n
		if p.reduced {
			most = (n + reducedParts - 1) / reducedParts
		}
		if p.fits > 0 {
			most = min(most, p.fits)
		}
		most = min(most, n-from)
		end, err := f(from, most)
		switch {
		case err == nil:
			from = end
		case errors.Is(err, errFit) && most > 1:
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
