package main

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// ballast is memory that is never used. It makes the heap of this process as large as the heap of
// an agent, so that garbage is collected as rarely.
const ballast = 64 << 20

func (m *measurement) stages() error {
	held := make([]byte, ballast)
	defer runtime.KeepAlive(held)
	for _, measure := range []struct {
		name string
		of   func() error
	}{
		{"device", m.device},
		{"cores", m.cores},
		{"sync", m.syncs},
		{"beside", m.beside},
		{"broker", m.broker},
		{"replicas", m.replicas},
	} {
		if err := measure.of(); err != nil {
			return fmt.Errorf("stage %s: %w", measure.name, err)
		}
	}
	return nil
}

func ownTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// repeat calls f for the time of a series, after some calls that do not count, and adds the
// durations and the mean processor time.
func (m *measurement) repeat(name string, keys map[string]float64, f func(i int) error) error {
	for i := range 3 {
		if err := f(i); err != nil {
			return err
		}
	}
	var h times.Histogram
	before, end := ownTime(), time.Now().Add(m.each)
	for i := 3; time.Now().Before(end) && m.ctx.Err() == nil; i++ {
		began := time.Now()
		if err := f(i); err != nil {
			return err
		}
		h.Add(time.Since(began).Nanoseconds())
	}
	keys["cpu"] = float64((ownTime() - before).Nanoseconds()) / float64(max(1, h.N()))
	m.add(name, keys, h)
	return m.ctx.Err()
}

// together calls f(k, i) for k from 0 to n-1 at a time for the time of a series. f returns the time
// that counts. The processor time of all is divided among the calls.
func (m *measurement) together(
	name string, n int, keys map[string]float64, f func(k, i int) (time.Duration, error),
) error {
	var all times.Histogram
	var mu sync.Mutex
	from := time.Now().Add(m.each / 5)
	end := from.Add(m.each)
	before := ownTime()
	err := parallel(n, func(k int) error {
		var h times.Histogram
		for i := 0; time.Now().Before(end) && m.ctx.Err() == nil; i++ {
			took, err := f(k, i)
			if err != nil {
				return err
			}
			if time.Now().After(from) {
				h.Add(took.Nanoseconds())
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all.Merge(&h)
		return m.ctx.Err()
	})
	keys["together"] = float64(n)
	for _, none := range []string{"beside", "idle"} {
		if _, ok := keys[none]; !ok {
			keys[none] = 0
		}
	}
	keys["busy"] = float64((ownTime() - before).Nanoseconds()) / float64((m.each + m.each/5).Nanoseconds())
	keys["rate"] = float64(all.N()) / m.each.Seconds()
	m.add(name, keys, all)
	return err
}

// powers returns 1, 2, 4 ... up to the cores of the machine, which come last.
func powers() (all []int) {
	for k := 1; k < runtime.NumCPU(); k *= 2 {
		all = append(all, k)
	}
	return append(all, runtime.NumCPU())
}
