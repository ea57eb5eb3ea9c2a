package station

import (
	"math"
	"slices"
)

// Job is work at a station that all jobs share: bytes on a link, or processor time on cores.
type Job struct {
	Limit float64 // work for each nanosecond, at most: the parallelism of a computation, or the cap of flows
	Group int     // such as a process, for Rates that have groups
	// Speed is for Cores: how fast the job is beside other jobs with a Speed, by their number, itself
	// included, as a share of its speed alone. It was measured, so what such jobs do to each other is
	// in it. nil: the cores decide alone.
	Speed func(n int) float64
	// Beside is for Cores: what jobs with a Speed do to this one is in its work.
	Beside bool

	rate    float64
	left    float64
	arrived int64
	done    func()
}

// Rates sets the rates of jobs with set. It does not keep jobs.
type Rates interface {
	// Capacity returns the work for each nanosecond that all jobs together can have.
	Capacity() float64
	// Share calls set for each job with the work that it gets for each nanosecond.
	Share(jobs []*Job, set func(j *Job, rate float64))
}

// Sharing is a station that serves all its jobs at the same time.
type Sharing struct {
	Audit

	clock *Clock
	rates Rates
	jobs  []*Job
	at    int64   // when the work that is left was computed
	turn  uint64  // number of the last change of the rates
	given float64 // work that was done
}

// NewSharing returns an empty station.
func NewSharing(c *Clock, r Rates) *Sharing { return &Sharing{clock: c, rates: r} }

// Do adds a job with some work, and calls done at its end. Without work it calls done after the
// present event.
func (s *Sharing) Do(work float64, j Job, done func()) {
	s.advance()
	now := s.clock.Now()
	if !(work > 0) { // also of what is no number
		work = 0
	}
	j.left, j.arrived, j.done = min(work, mostWork), now, done
	s.Arrive(now)
	s.jobs = append(s.jobs, &j)
	s.change()
}

// mostWork bounds the work of a job, and its nanoseconds, so that times stay below the end of the
// clock.
const mostWork = 1 << 60

// advance takes the work off that was done since the last call.
func (s *Sharing) advance() {
	ns := float64(s.clock.Now() - s.at)
	for _, j := range s.jobs {
		work := min(j.left, j.rate*ns)
		j.left -= work
		s.given += work
	}
	s.at = s.clock.Now()
}

// over reports whether the rest of a job counts as none: less than is done in a nanosecond, which
// is the resolution of the clock.
func (j *Job) over() bool { return j.left <= j.rate*0.5 || j.left == 0 }

// change sets the rates anew, and has the next end happen.
func (s *Sharing) change() {
	s.rates.Share(s.jobs, func(j *Job, rate float64) { j.rate = rate })
	next := math.Inf(1)
	for _, j := range s.jobs {
		if j.left == 0 {
			next = 0
		} else if j.rate > 0 {
			next = min(next, j.left/j.rate)
		}
	}
	s.turn++
	if math.IsInf(next, 1) {
		return
	}
	turn := s.turn
	s.clock.After(int64(math.Ceil(min(next, mostWork))), func() {
		if turn == s.turn {
			s.end()
		}
	})
}

func (s *Sharing) end() {
	s.advance()
	now := s.clock.Now()
	var over []*Job
	s.jobs = slices.DeleteFunc(s.jobs, func(j *Job) bool {
		if j.over() {
			s.given += j.left
			s.Leave(now, j.arrived)
			over = append(over, j)
			return true
		}
		return false
	})
	s.change()
	for _, j := range over {
		j.done()
	}
}

// Use returns the work that was done as a share of what could be done until now, from 0 to 1.
func (s *Sharing) Use() float64 {
	return s.given / s.rates.Capacity() / float64(max(1, s.clock.Now()))
}

// Link is Rates of bytes: jobs get equal parts of a bandwidth, those with a lower limit get that,
// and the others share the rest.
type Link struct{ Bandwidth float64 } // bytes for each nanosecond

// Capacity implements Rates.
func (l Link) Capacity() float64 { return l.Bandwidth }

// Share implements Rates.
func (l Link) Share(jobs []*Job, set func(j *Job, rate float64)) {
	left, n := l.Bandwidth, len(jobs)
	if equal := !slices.ContainsFunc(jobs, func(j *Job) bool { return j.Limit != jobs[0].Limit }); equal {
		for _, j := range jobs { // the usual case, without a sort
			set(j, min(j.Limit, left/float64(n)))
		}
		return
	}
	byLimit := slices.Clone(jobs)
	slices.SortStableFunc(byLimit, func(a, b *Job) int {
		switch {
		case a.Limit < b.Limit:
			return -1
		case a.Limit > b.Limit:
			return 1
		}
		return 0
	})
	for _, j := range byLimit {
		rate := min(j.Limit, left/float64(n))
		set(j, rate)
		left, n = left-rate, n-1
	}
}

// Cores is Rates of processor time. A job runs on as many threads as its limit. A group is a
// process that runs on at most Count threads at a time, which its jobs share. When there are more
// threads than cores, each gets an equal part. Slower[k] is how much slower a thread is while k+1
// threads run, because cores share memory and caches; the last one counts for more threads. A job
// is measured alone, so only what others add slows it down.
type Cores struct {
	Count  int
	Slower []float64
}

// Capacity implements Rates.
func (c *Cores) Capacity() float64 { return float64(c.Count) }

// Share implements Rates.
func (c *Cores) Share(jobs []*Job, set func(j *Job, rate float64)) {
	groups := map[int]float64{}
	special, n := 0.0, 0
	for _, j := range jobs {
		if j.Speed != nil {
			special += j.Limit
			n++
		} else {
			groups[j.Group] += j.Limit
		}
	}
	threads := special
	for _, j := range jobs { // in the order of jobs, so that sums of floats are the same each time
		if j.Speed == nil {
			threads += j.Limit * c.part(groups[j.Group])
		}
	}
	for _, j := range jobs {
		if j.Speed != nil { // the others slow it down further than jobs of its kind do
			set(j, j.Limit*j.Speed(n)*min(1, c.pace(threads)/c.pace(special)))
			continue
		}
		all := threads
		if j.Beside {
			all -= special
		}
		part := c.part(groups[j.Group]) * min(1, float64(c.Count)/max(all, 1e-9))
		set(j, j.Limit*part*min(1, c.slower(j.Limit)/c.slower(all)))
	}
}

// pace returns the speed of each of a number of threads, relative to one thread alone.
func (c *Cores) pace(threads float64) float64 {
	return min(1, float64(c.Count)/max(threads, 1e-9)) / c.slower(threads)
}

func (c *Cores) part(threads float64) float64 { return min(1, float64(c.Count)/threads) }

func (c *Cores) slower(threads float64) float64 {
	if len(c.Slower) == 0 {
		return 1
	}
	at := min(max(threads, 1)-1, float64(len(c.Slower)-1))
	low := int(at)
	if low == len(c.Slower)-1 {
		return c.Slower[low]
	}
	part := at - float64(low)
	return c.Slower[low]*(1-part) + c.Slower[low+1]*part
}
