package snapshot

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Pages is the state in memory: whole groups in pages of a layout, the first Slots of them in page
// 0. First is the number in the swarm of the first group. Read and Write are called by the
// goroutine that calls Save or Load, one call at a time; Write is not needed by Save.
type Pages struct {
	Layout kernels.Layout
	First  int
	Groups int
	Read   func(page uint64, buf []byte) error
	Write  func(page uint64, content []byte) error
}

// visit calls f for each page with some of the groups, and which of its slots they have.
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

// workers is how many files of a variable are written or read at once. Eight keep disks and SHA-256
// (1.5 GB/s a core with its instructions) busy; large pages get fewer, so that what is in hand
// stays below workBytes.
const (
	maxWorkers = 8
	workBytes  = 512 << 20
)

// buffers is how many pages a worker has in hand: the page and the rows of its variables.
const buffers = 2

func workers(pageBytes, parts int) int {
	return max(1, min(maxWorkers, parts, workBytes/(buffers*pageBytes)))
}

// desk passes the calls of workers to the one goroutine that may make them.
type desk struct {
	calls chan func()
}

// do has the owner make a call and waits for its end.
func (d *desk) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case d.calls <- func() { done <- f() }:
		return <-done // the owner makes every call that it has taken
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// share has n workers do parts 0..parts-1, each part by one of them, while this goroutine makes
// their calls. The first error ends all of them and is returned.
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

// errRest is a defect: rows that do not add up.
var errRest = errors.New("rows of a snapshot do not add up")
