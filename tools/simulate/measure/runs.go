package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// window is the number of unanswered entries of a shard at a saturating writer.
const window = 16

const warmup = 1500 * time.Millisecond

// runs measures clusters of 1, 2, 4 ... shards with each size of entries: at their highest rate,
// and at half of it with random times between the entries.
func (m *measurement) runs() error {
	for shards := 1; shards <= m.shards; shards *= 2 {
		for _, rows := range m.rows {
			rate, err := m.run(shards, rows, 0)
			if err == nil {
				_, err = m.run(shards, rows, rate/2)
			}
			if err != nil {
				return fmt.Errorf("%d shards with entries of %d rows: %w", shards, rows, err)
			}
		}
	}
	return nil
}

type load struct {
	in, out swarms.Log
	data    []*batch.AgentObservations
	rate    float64 // entries a second; 0: the window is the bound
	seed    uint64
	free    chan struct{} // the window

	mu    sync.Mutex
	began map[uint64]time.Time // of entries without an answer

	from, to time.Time // of the measured time
	answered int64
	bytes    int64 // of the answers
	latency  times.Histogram

	packs, appends times.Histogram // of the writer, from the start on
}

func (m *measurement) run(shards, rows int, rate float64) (answered float64, err error) {
	c, err := m.openCluster(2 * shards)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	of, _, err := swarmOf(shards)
	if err == nil {
		err = c.serve(m.ctx, of)
	}
	if err != nil {
		return 0, err
	}
	all := make([]*load, shards)
	for k := range all {
		all[k] = &load{
			in: c.conns[2*k].Swarms.Log(of.ID, k, swarms.In), out: c.conns[2*k+1].Swarms.Log(of.ID, k, swarms.Out),
			data: observations(of, k, rows), rate: rate / float64(shards), seed: uint64(k + 1),
			free: make(chan struct{}, window), began: map[uint64]time.Time{},
		}
	}
	if err := parallel(shards, func(k int) error { return all[k].first(m.ctx) }); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	start := time.Now()
	from, to := start.Add(warmup), start.Add(warmup+m.length)
	var before, after spent
	watch := sync.WaitGroup{}
	watch.Go(func() {
		time.Sleep(time.Until(from))
		before = c.spent()
		time.Sleep(time.Until(to))
		after = c.spent()
		cancel()
	})
	err = parallel(2*shards, func(k int) error {
		l := all[k/2]
		if k%2 == 0 {
			l.from, l.to = from, to
			if err := l.write(ctx, start); err != nil && ctx.Err() == nil {
				cancel() // the others end too
				return err
			}
			return nil
		}
		return l.read(ctx, from, to)
	})
	watch.Wait()
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	if err != nil {
		return 0, err
	}
	var h times.Histogram
	n, bytes := int64(0), int64(0)
	for _, l := range all {
		h.Merge(&l.latency)
		n, bytes = n+l.answered, bytes+l.bytes
	}
	answered = float64(n) / m.length.Seconds()
	keys := map[string]float64{
		"shards": float64(shards), "rows": float64(rows), "offered": rate, "answered": answered,
		"seconds": m.length.Seconds(), "warmup": warmup.Seconds(), "answer.bytes": float64(bytes) / float64(max(n, 1)),
		"rows_per_s": answered * float64(rows),
	}
	if rate == 0 {
		keys["window"] = window
	}
	after.keys(before, n, keys)
	err = c.endAgent(keys)
	m.add("run", keys, h)
	for name, of := range map[string]func(l *load) *times.Histogram{
		"run.append": func(l *load) *times.Histogram { return &l.appends },
		"run.encode": func(l *load) *times.Histogram { return &l.packs },
	} {
		var h times.Histogram
		for _, l := range all {
			h.Merge(of(l))
		}
		m.add(name, map[string]float64{"shards": float64(shards), "rows": float64(rows), "offered": rate}, h)
	}
	return answered, err
}

func (l *load) first(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range kinds {
		data, err := l.data[i].Pack()
		if err != nil {
			return err
		}
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: uint64(i + 1), Data: data}
		if err := l.in.Append(ctx, uint64(i), e); err != nil {
			return err
		}
	}
	for {
		last, err := l.out.Last(ctx)
		switch {
		case err != nil:
			return err
		case last.Kind == swarms.EntryRejected:
			return fmt.Errorf("an entry was rejected: %s", last.Data)
		case last.Ref >= kinds:
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sleep blocks the thread for some time, or less if a signal comes.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // the caller reads the clock again
}

// arrive sends the time of each entry as it arrives, at random times, until ctx ends. It sleeps by
// the system, because the runtime sleeps for whole milliseconds in an idle process.
func (l *load) arrive(ctx context.Context, start time.Time, to chan<- time.Time) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(to)
	arrivals := rand.New(rand.NewPCG(l.seed, 7))
	for next := start; ctx.Err() == nil; {
		next = next.Add(time.Duration(arrivals.ExpFloat64() / l.rate * 1e9))
		for wait := time.Until(next); wait > 0 && ctx.Err() == nil; wait = time.Until(next) {
			sleep(min(wait, 50*time.Millisecond))
		}
		to <- time.Now() // a late timer is not the cluster's
	}
}

func (l *load) write(ctx context.Context, start time.Time) error {
	arrived := make(chan time.Time, 1<<16) // more than arrive in a run at half of its rate
	if l.rate > 0 {
		go l.arrive(ctx, start, arrived)
		defer func() {
			for range arrived { // until it has ended
			}
		}()
	}
	for i := uint64(kinds); ctx.Err() == nil; i++ {
		var began time.Time
		if l.rate > 0 {
			select {
			case began = <-arrived:
			case <-ctx.Done():
				return nil
			}
		} else {
			select {
			case l.free <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			began = time.Now()
		}
		l.mu.Lock()
		l.began[i+1] = began
		l.mu.Unlock()
		packing := time.Now()
		data, err := l.data[i%kinds].Pack()
		appending := time.Now()
		l.packs.Add(appending.Sub(packing).Nanoseconds())
		if err == nil {
			err = l.in.Append(ctx, i, swarms.Entry{Kind: swarms.EntryObserve, Ref: i + 1, Data: data})
			l.appends.Add(time.Since(appending).Nanoseconds())
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (l *load) read(ctx context.Context, from, to time.Time) error {
	r, err := l.out.Read(ctx, kinds+1)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Now()
		l.mu.Lock()
		began, ok := l.began[e.Ref]
		delete(l.began, e.Ref)
		l.mu.Unlock()
		if !ok || e.Kind != swarms.EntryDecide {
			return fmt.Errorf("answer %s to entry %d is not expected: %.200s", e.Kind, e.Ref, e.Data)
		}
		if l.rate == 0 {
			<-l.free
		}
		if now.After(from) && now.Before(to) {
			l.answered++
			l.bytes += int64(len(e.Data))
			l.latency.Add(now.Sub(began).Nanoseconds())
		}
	}
}
