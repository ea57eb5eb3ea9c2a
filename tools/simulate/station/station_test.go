package station

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const second = 1_000_000_000

// poisson has jobs arrive at random times, rate a second, n in all.
func poisson(c *Clock, r *rand.Rand, rate float64, n int, job func()) {
	var next func()
	next = func() {
		if n--; n < 0 {
			return
		}
		c.After(int64(r.ExpFloat64()/rate*second), func() {
			job()
			next()
		})
	}
	next()
}

// near fails unless a figure is within a part of what theory says.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got/want-1) > part {
		t.Errorf("%s is %.4g, want %.4g within %.1f %%", what, got, want, 100*part)
	}
}

// TestClosedForms compares stations with the formulas of queueing theory: M/M/1, M/D/1, M/M/3, and
// a processor-sharing station, whose mean does not depend on the distribution of the work.
func TestClosedForms(t *testing.T) {
	const jobs, rate = 400_000, 700.0
	for _, test := range []struct {
		name    string
		servers int
		exp     bool
		service float64 // seconds
		want    float64 // mean time in the station
	}{
		{"M/M/1", 1, true, 0.001, 1 / (1000 - rate)},
		{"M/D/1", 1, false, 0.001, 0.001 + 0.7*0.001/(2*0.3)},
		{"M/M/3", 3, true, 0.003, 0.003 + erlangC(3, 2.1)/(3/0.003-rate)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, r := &Clock{}, rand.New(rand.NewPCG(1, 2))
			q := NewQueue(c, test.servers)
			poisson(c, r, rate, jobs, func() {
				s := test.service
				if test.exp {
					s *= r.ExpFloat64()
				}
				q.Serve(int64(s*second), func() {})
			})
			c.Run(math.MaxInt64 / 2)
			// The clock stands at its end, so the mean number is over the time of the arrivals.
			near(t, "the mean time", q.Stayed()/second, test.want, 0.02)
			if err := q.CheckAll(test.name); err != nil {
				t.Error(err)
			}
			if q.Left() != jobs {
				t.Errorf("%d jobs have left, want %d", q.Left(), jobs)
			}
		})
	}
	for name, exp := range map[string]bool{
		"M/M/1 with processor sharing": true, "M/D/1 with processor sharing": false,
	} {
		t.Run(name, func(t *testing.T) {
			c, r := &Clock{}, rand.New(rand.NewPCG(3, 4))
			s := NewSharing(c, Link{Bandwidth: 1})
			poisson(c, r, rate, jobs/4, func() {
				work := 0.001 * second
				if exp {
					work *= r.ExpFloat64()
				}
				s.Do(work, Job{Limit: 1}, func() {})
			})
			c.Run(1000 * second)
			near(t, "the mean time", s.Stayed()/second, 1/(1000-rate), 0.03)
			if err := s.Check(name, c.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

// erlangC is the probability that a job waits for one of n servers at a load.
func erlangC(n int, load float64) float64 {
	sum, term := 0.0, 1.0
	for k := range n {
		sum += term
		term *= load / float64(k+1)
	}
	wait := term * float64(n) / (float64(n) - load)
	return wait / (sum + wait)
}

// TestLittle: the mean number in a station is the rate times the mean time.
func TestLittle(t *testing.T) {
	c, r := &Clock{}, rand.New(rand.NewPCG(5, 6))
	q := NewQueue(c, 2)
	poisson(c, r, 1000, 100_000, func() { q.Serve(int64(r.ExpFloat64()*0.0016*second), func() {}) })
	c.Run(100 * second)
	now := c.Now()
	near(t, "the mean number", q.Mean(now), float64(q.Left())/float64(now)*q.Stayed(), 0.001)
	near(t, "the use", q.Use(), 0.8, 0.02)
}

// TestAudit: a job that is lost or left twice is found.
func TestAudit(t *testing.T) {
	for name, spoil := range map[string]func(a *Audit){
		"it leaves twice":        func(a *Audit) { a.Leave(20, 5); a.Leave(30, 5); a.Leave(30, 5) },
		"it was never there":     func(a *Audit) { a.left++ },
		"time is counted twice":  func(a *Audit) { a.area.add(1, 1) },
		"time stood still there": func(a *Audit) { a.since = 7 },
	} {
		a := &Audit{}
		a.Arrive(5)
		a.Arrive(7)
		if err := a.Check("test", 10); err != nil {
			t.Fatalf("before: %v", err)
		}
		if name == "time stood still there" {
			a.Arrive(9)
		}
		spoil(a)
		if err := a.Check("test", 40); !errors.Is(err, ErrAudit) {
			t.Errorf("%s: %v, want an ErrAudit", name, err)
		}
	}
}

// tandem passes jobs through queues in turn, and returns when each was left. Job number k at a
// queue, in the order of arrival there, takes the k-th of its times.
func tandem(arrivals []int64, servers []int, service [][]int64) (left []int64) {
	c := &Clock{}
	queues := make([]*Queue, len(servers))
	seen := make([]int, len(servers))
	for i, n := range servers {
		queues[i] = NewQueue(c, n)
	}
	var enter func(i int)
	enter = func(i int) {
		if i == len(queues) {
			left = append(left, c.Now())
			return
		}
		k := seen[i]
		seen[i]++
		queues[i].Serve(service[i][k], func() { enter(i + 1) })
	}
	for _, at := range arrivals {
		c.After(at, func() { enter(0) })
	}
	c.Run(math.MaxInt64 / 2)
	return left
}

// TestMoreServers: a further server never makes queues in a row slower, and the same jobs have the
// same times again.
func TestMoreServers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, stages := rapid.IntRange(1, 40).Draw(t, "jobs"), rapid.IntRange(1, 4).Draw(t, "queues")
		durations := rapid.SliceOfN(rapid.Int64Range(0, 1000), n, n)
		arrivals := durations.Draw(t, "arrivals")
		servers := rapid.SliceOfN(rapid.IntRange(1, 4), stages, stages).Draw(t, "servers")
		var service [][]int64
		for range stages {
			service = append(service, durations.Draw(t, "times"))
		}
		before := tandem(arrivals, servers, service)
		if again := tandem(arrivals, servers, service); !slices.Equal(before, again) {
			t.Fatalf("the same jobs left at %v, and then at %v", before, again)
		}
		more := slices.Clone(servers)
		more[rapid.IntRange(0, stages-1).Draw(t, "queue")]++
		for i, at := range tandem(arrivals, more, service) {
			if at > before[i] {
				t.Fatalf("departure %d is at %d with servers %v, and was at %d with %v", i, at, more, before[i],
					servers)
			}
		}
	})
}

// pour is the obvious form of Link.Share: drops of bandwidth go round among the jobs that can take
// more.
func pour(bandwidth float64, limits []float64) []float64 {
	const drops = 200_000
	rates := make([]float64, len(limits))
	for left := drops; left > 0; {
		took := false
		for i := range rates {
			if left > 0 && rates[i]+bandwidth/drops <= limits[i] {
				rates[i] += bandwidth / drops
				left--
				took = true
			}
		}
		if !took {
			break
		}
	}
	return rates
}

// TestLink: the rates match a simulation in which bandwidth is given out in small parts.
func TestLink(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bandwidth := rapid.Float64Range(0.1, 10).Draw(t, "bandwidth")
		limits := rapid.SliceOfN(rapid.Float64Range(0.01, 10), 1, 6).Draw(t, "limits")
		if rapid.Bool().Draw(t, "equal limits") {
			for i := range limits {
				limits[i] = limits[0]
			}
		}
		var jobs []*Job
		for _, l := range limits {
			jobs = append(jobs, &Job{Limit: l})
		}
		Link{bandwidth}.Share(jobs, func(j *Job, rate float64) { j.rate = rate })
		for i, want := range pour(bandwidth, limits) {
			if math.Abs(jobs[i].rate-want) > bandwidth*1e-3 {
				t.Fatalf("job %d of %v gets %v, want %v", i, limits, jobs[i].rate, want)
			}
		}
	})
}

// TestCores: jobs get no more than all cores and no more than they ask for, a process gets no more
// than its threads, and another job makes none faster, but for the slack of jobs with a Speed.
func TestCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Cores{Count: rapid.IntRange(1, 16).Draw(t, "cores"), Slower: []float64{1, 1.1, 1.3, 1.5}}
		var jobs []*Job
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			j := &Job{Limit: rapid.Float64Range(1, 16).Draw(t, "threads")}
			j.Group = rapid.IntRange(0, 2).Draw(t, "process")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				j.Limit = min(j.Limit, float64(c.Count))
				j.Speed = func(n int) float64 { return 1 / float64(n) }
			case 1:
				j.Beside = true
			}
			jobs = append(jobs, j)
		}
		share := func(of []*Job) (rates []float64) {
			c.Share(of, func(j *Job, rate float64) {
				j.rate = rate
				rates = append(rates, rate)
			})
			return rates
		}
		all := share(jobs)
		groups, plain := map[int]float64{}, 0.0
		for i, j := range jobs {
			if all[i] > j.Limit*(1+1e-9) || !(all[i] > 0) {
				t.Fatalf("a job of %v threads gets %v", j.Limit, all[i])
			}
			if j.Speed == nil && !j.Beside {
				groups[j.Group] += all[i]
				plain += all[i]
			}
		}
		for g, sum := range groups {
			if sum > float64(c.Count)*(1+1e-9) {
				t.Fatalf("process %d gets %v of %d cores", g, sum, c.Count)
			}
		}
		if plain > float64(c.Count)*(1+1e-9) {
			t.Fatalf("jobs get %v of %d cores", plain, c.Count)
		}
		for i, rate := range share(jobs[:len(jobs)-1]) {
			// What jobs with a Speed do to each other was measured, and what the others do to them is
			// computed: the two do not meet exactly.
			slack := 1e-9
			if jobs[i].Speed != nil {
				slack = 1 - 1/c.Slower[len(c.Slower)-1]
			}
			if rate < all[i]*(1-slack) {
				t.Fatalf("job %d gets %v without the last one, and %v with it", i, rate, all[i])
			}
		}
	})
}

// TestSharingSameTimes: a station of equal jobs serves each at its part, and the same calls end at
// the same times.
func TestSharingSameTimes(t *testing.T) {
	run := func() (ends []int64) {
		c := &Clock{}
		s := NewSharing(c, Link{Bandwidth: 1})
		for i := range 4 {
			c.After(int64(i)*100, func() { s.Do(1000, Job{Limit: 1}, func() { ends = append(ends, c.Now()) }) })
		}
		c.Run(second)
		return ends
	}
	first := run()
	if !reflect.DeepEqual(first, run()) {
		t.Errorf("other times in a second run: %v", first)
	}
	if len(first) != 4 || first[3] < 4000 || first[3] > 4004 { // each end is rounded up
		t.Errorf("the ends are %v, want the last of four at 4000, when all work is done", first)
	}
}

// TestSharingEnds: work that is no number, infinite or negative ends, and so does a job without a
// rate.
func TestSharingEnds(t *testing.T) {
	c, ends := &Clock{}, 0
	s := NewSharing(c, Link{Bandwidth: 1e-300})
	for _, work := range []float64{math.NaN(), math.Inf(1), -1, 0, 1} {
		s.Do(work, Job{Limit: 1}, func() { ends++ })
	}
	if n := c.Run(second); n > 20 || ends != 3 {
		t.Errorf("%d events and %d ends in a second, want few and the three without work", n, ends)
	}
}

// TestClockOrder: events happen by time, and events of one time in the order in which they were
// made.
func TestClockOrder(t *testing.T) {
	c := &Clock{}
	var got []string
	for i, at := range []int64{30, 10, 10, 20, 10} {
		c.After(at, func() { got = append(got, fmt.Sprint(at, " ", i)) })
	}
	if n := c.Run(25); n != 4 || c.Now() != 25 {
		t.Errorf("Run(25) made %d events and stands at %d, want 4 and 25", n, c.Now())
	}
	if want := []string{"10 1", "10 2", "10 4", "20 3"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
