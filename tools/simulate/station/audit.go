package station

import (
	"fmt"
	"math/bits"
)

// Audit counts the jobs of a station. It adds up the jobs inside over time, and independently of
// that the time of each job, so that Little's law can be checked. The zero value is ready.
type Audit struct {
	arrived, left int64
	since         int64 // when inside has changed last
	area, stayed  sum   // jobs times nanoseconds; the time of the jobs that have left
	begun         sum   // of the jobs inside, the times of their arrival
}

// sum is a sum of nanoseconds with 128 bits: a thousand jobs overflow 64 bits in 107 days.
type sum struct{ hi, lo uint64 }

func (s *sum) add(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi, _ = bits.Add64(s.hi, hi, carry)
}

func (s *sum) sub(a int64) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, uint64(a), 0)
	s.hi, _ = bits.Sub64(s.hi, 0, borrow)
}

func (s sum) float() float64 { return float64(s.hi)*(1<<64) + float64(s.lo) }

// Arrive counts a job that comes at a time.
func (a *Audit) Arrive(now int64) {
	a.area.add(a.Inside(), now-a.since)
	a.since = now
	a.arrived++
	a.begun.add(now, 1)
}

// Leave counts a job that leaves at a time and has arrived at another one.
func (a *Audit) Leave(now, arrived int64) {
	a.area.add(a.Inside(), now-a.since)
	a.since = now
	a.left++
	a.stayed.add(now-arrived, 1)
	a.begun.sub(arrived)
}

// Inside returns the number of jobs that have arrived and not left.
func (a *Audit) Inside() int64 { return a.arrived - a.left }

// Left returns the number of jobs that have left.
func (a *Audit) Left() int64 { return a.left }

// Mean returns the mean number of jobs inside until a time.
func (a *Audit) Mean(now int64) float64 {
	area := a.area
	area.add(a.Inside(), now-a.since)
	return area.float() / float64(max(1, now))
}

// Stayed returns the mean time of the jobs that have left, in nanoseconds.
func (a *Audit) Stayed() float64 { return a.stayed.float() / float64(max(1, a.left)) }

// Check returns an ErrAudit unless the number of jobs inside, summed over time, equals the sum of
// the times of all jobs: Little's law.
func (a *Audit) Check(name string, now int64) error {
	area, want := a.area, a.stayed
	area.add(a.Inside(), now-a.since)
	want.add(a.Inside(), now)
	var borrow uint64
	want.lo, borrow = bits.Sub64(want.lo, a.begun.lo, 0)
	want.hi, _ = bits.Sub64(want.hi, a.begun.hi, borrow)
	if a.Inside() < 0 || area != want {
		return fmt.Errorf("%w %s: %d jobs arrived, %d left; jobs over time add up to %.0f ns, times of jobs to %.0f ns",
			ErrAudit, name, a.arrived, a.left, area.float(), want.float())
	}
	return nil
}
