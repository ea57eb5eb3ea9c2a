package policy

// Numbers of the runs.
const (
	// streams is the number of runs that are followed at once: a few scans and the sweeps of a few
	// groups.
	streams = 16
	// maxStride is the largest distance of two pages of a run.
	maxStride = 8
	// proven is the number of pages in a row that make a run.
	proven = 3
)

// stream is one run, or what may become one.
type stream struct {
	last   uint64
	stride int64  // 0: only one page of it is known
	length int    // pages in a row
	ahead  uint64 // the farthest page that was guessed
	used   uint64 // when it was last advanced
}

type runs struct {
	streams [streams]stream
	clock   uint64
}

// demand advances the run that a page belongs to, and guesses up to depth pages ahead once it is
// proven. running reports whether the page belongs to a proven run.
func (r *runs) demand(page uint64, depth int, out []Guess) (_ []Guess, running bool) {
	r.clock++
	s := r.find(page)
	s.used = r.clock
	if s.length < proven {
		return out, false
	}
	// Half of the window is asked for at a time: a guess a page would keep the tier's queue busy
	// for nothing.
	window := min(2<<min(s.length-proven, 10), depth)
	left := 0
	if d := int64(s.ahead-page) / s.stride; d > 0 {
		left = int(d)
	} else {
		s.ahead = page
	}
	if 2*left > window {
		return out, true
	}
	for ; left < window; left++ {
		next := s.ahead + uint64(s.stride)
		if (s.stride > 0) != (next > s.ahead) { // Past the last number, or the first one.
			break
		}
		s.ahead = next
		out = append(out, Guess{next, Run})
	}
	return out, true
}

// find advances the stream that a page continues, or begins one in the place of the oldest.
func (r *runs) find(page uint64) *stream {
	oldest, near := &r.streams[0], (*stream)(nil)
	for i := range r.streams {
		s := &r.streams[i]
		if s.used < oldest.used {
			oldest = s
		}
		if s.used == 0 {
			continue
		}
		d := int64(page - s.last)
		switch {
		case d == 0:
			return s
		case s.stride != 0 && s.continues(d):
			s.last = page
			s.length++
			return s
		case d <= maxStride && d >= -maxStride && s.length < proven && (near == nil || s.used > near.used):
			near = s
		}
	}
	if near != nil { // Its second page, or a better guess at its stride.
		*near = stream{last: page, stride: int64(page - near.last), length: 2, ahead: page}
		return near
	}
	*oldest = stream{last: page, length: 1, ahead: page}
	return oldest
}

// continues reports whether a step of d continues the run: by one stride, or over pages that were
// there already.
func (s *stream) continues(d int64) bool {
	n := d / s.stride
	if n*s.stride != d || n < 1 {
		return false
	}
	return n == 1 || s.length >= proven && n <= int64(maxStride)
}
