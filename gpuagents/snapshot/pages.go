package snapshot

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Pages is a state in memory: whole groups in pages of a layout, the first Layout.Slots groups in
// page 0. First is the number in the swarm of the first group. Save and Load call Read, Write and
// Host on their own goroutine, one call at a time. Save does not call Write.
type Pages struct {
	Layout kernels.Layout
	First  int
	Groups int
	Read   func(page uint64, buf []byte) error
	Write  func(page uint64, content []byte) error
	// Host returns memory that a device copies pages from and to at full rate. Nil, and an error,
	// mean memory of Go.
	Host func(bytes int64) (device.HostBuffer, error)
}

// hold returns a page of memory for each of n workers, and a function that releases all of them.
func (p *Pages) hold(n int) (free chan []byte, release func() error) {
	var held []device.HostBuffer
	free = make(chan []byte, n)
	for range n {
		if p.Host != nil {
			if h, err := p.Host(int64(p.Layout.PageBytes)); err == nil {
				held = append(held, h)
				free <- h.Bytes()
				continue
			}
		}
		free <- make([]byte, p.Layout.PageBytes)
	}
	return free, func() (err error) {
		for _, h := range held {
			err = errors.Join(err, h.Close())
		}
		return err
	}
}

// visit calls f for each page that has some of the groups, with the slots of these groups and the
// first group. It stops at the first error of f.
func (p *Pages) visit(groups slots, f func(page uint64, s slots, group int) error) error {
	for g := groups.first; g < groups.first+groups.n; {
		first := g % p.Layout.Slots
		n := min(p.Layout.Slots-first, groups.first+groups.n-g)
		if err := f(uint64(g/p.Layout.Slots), slots{first, n}, g); err != nil {
			return err
		}
		g += n
	}
	return nil
}

// How many files of a variable are written or read at once: eight keep a disk busy, and machines
// with more cores have up to mostWorkers for SHA-256 (1.5 GB/s a core with its instructions). Large
// pages get fewer, so that what is in hand stays below workBytes.
const (
	leastWorkers = 8
	mostWorkers  = 16
	workBytes    = 512 << 20
)

func maxWorkers() int { return max(leastWorkers, min(mostWorkers, runtime.GOMAXPROCS(0))) }

// buffers is the number of pages that a worker holds: a page, and the rows of its variables.
const buffers = 2

// workers returns the number of workers for parts of pages of this size, at least one.
func workers(pageBytes, parts int) int {
	return max(1, min(maxWorkers(), parts, workBytes/(buffers*pageBytes)))
}

// desk passes the calls of workers to the only goroutine that may make them.
type desk struct {
	calls chan func()
}

// do runs f on the goroutine of share, and waits for its end. It returns the error of f, or the
// cause of the end of ctx if f was not started.
func (d *desk) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case d.calls <- func() { done <- f() }:
		return <-done // the owner makes every call that it has taken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// share divides parts 0 to parts-1 among n workers, and runs the calls of their desk on the calling
// goroutine. work makes the function of one worker. The first error ends all workers and is
// returned. No goroutine is left when share returns.
func share(ctx context.Context, n, parts int, work func(ctx context.Context, d *desk) func(part int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &desk{calls: make(chan func())}
	var next atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			do := work(ctx, d)
			for part := int(next.Add(1)) - 1; part < parts && ctx.Err() == nil; part = int(next.Add(1)) - 1 {
				if err := do(part); err != nil {
					cancel(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for {
		select {
		case call := <-d.calls:
			call()
		case <-ended:
			return context.Cause(ctx)
		}
	}
}

// errRest is a defect of this package: the number of rows differs from the plan.
var errRest = errors.New("rows of a snapshot do not add up")
