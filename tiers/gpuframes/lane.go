package gpuframes

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/tiers"
)

// direction has the lanes for copies one way. A bus carries both ways at once, so the directions do
// not compete.
type direction struct {
	lanes  [2]chan *lane // by urgency; a lane belongs to its receiver
	counts [2]int
	depth  int
	// running demands, the time at which the last one ended, and a hint that it ended.
	demands atomic.Int32
	last    atomic.Int64 // nanoseconds since started
	idle    chan struct{}
	slow    chan struct{} // held by the one background lane that copies while demands come
}

// started is the origin of the times of demands.
var started = time.Now()

// busy reports whether demands came recently, so that another one will want the bus soon.
func (d *direction) busy() bool {
	last := d.last.Load()
	return d.demands.Load() > 0 || last != 0 && time.Since(started)-time.Duration(last) < calm
}

// lane is two streams: one copies while the other is waited for and filled again. A stream is
// opened by the first copy that needs it: pages that all fit on the device need none.
type lane struct {
	dev     device.Device
	streams [2]device.Stream
	pieces  []device.Piece
	timer   *time.Timer
}

// backgroundLanes is 2, so that the bus is not idle between two groups of pages.
const backgroundLanes = 2

// newDirection makes the lanes: two for the background, several for demands.
func newDirection(o Options) *direction {
	d := &direction{
		depth: o.Depth, idle: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		counts: [2]int{tiers.Background: backgroundLanes, tiers.Demand: o.Lanes},
	}
	for u, n := range d.counts {
		d.lanes[u] = make(chan *lane, n)
	}
	for u, n := range d.counts {
		for range n {
			d.lanes[u] <- &lane{dev: o.Device}
		}
	}
	return d
}

// open makes the first n streams, if they are missing.
func (l *lane) open(n int) (err error) {
	for i := range n {
		if l.streams[i] == nil {
			if l.streams[i], err = l.dev.NewStream(); err != nil {
				l.streams[i] = nil
				return err
			}
		}
	}
	return nil
}

func (l *lane) close() error {
	if l.timer != nil {
		l.timer.Stop()
	}
	var errs []error
	for i, s := range l.streams {
		if s != nil {
			errs = append(errs, s.Close())
			l.streams[i] = nil
		}
	}
	return errors.Join(errs...)
}

func (d *direction) take(ctx context.Context, u tiers.Urgency) (*lane, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if u == tiers.Demand {
		d.demands.Add(1)
	}
	select {
	case l := <-d.lanes[u]:
		return l, nil
	case <-ctx.Done():
		d.end(u)
		return nil, ctx.Err()
	}
}

func (d *direction) give(l *lane, u tiers.Urgency) {
	d.lanes[u] <- l
	d.end(u)
}

func (d *direction) end(u tiers.Urgency) {
	if u != tiers.Demand {
		return
	}
	d.last.Store(int64(time.Since(started)))
	if d.demands.Add(-1) == 0 {
		select {
		case d.idle <- struct{}{}:
		default:
		}
	}
}

// giveWay lets demands go first, for a while.
func (d *direction) giveWay(ctx context.Context, l *lane) {
	if d.demands.Load() == 0 {
		return
	}
	if l.timer == nil {
		l.timer = time.NewTimer(yield)
	}
	l.timer.Reset(yield)
	for d.demands.Load() > 0 {
		select {
		case <-d.idle:
		case <-l.timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (d *direction) close() error {
	var errs []error
	for u, n := range d.counts {
		for range n {
			errs = append(errs, (<-d.lanes[u]).close())
		}
		d.counts[u] = 0
	}
	return errors.Join(errs...)
}

// copy copies the pieces: the pieces of a demand all at once, background pieces in halves of the
// depth on the two streams in turn, or page by page while demands come, since what is under way
// goes before a demand: with four pages there, a demand took 101 us in place of 48 on an H200. When
// it returns, nothing is under way.
func (l *lane) copy(ctx context.Context, dir int, d *direction, u tiers.Urgency) error {
	n := len(l.streams)
	if u == tiers.Demand {
		n = 1
	}
	if err := l.open(n); err != nil { // A stream that failed before was closed.
		return err
	}
	if u == tiers.Demand {
		return errors.Join(l.start(dir, 0, l.pieces), l.sync(0))
	}
	half := max(d.depth/2, 1)
	var first error
	used := [2]bool{}
	rest := l.pieces
	for turn := 0; len(rest) > 0 && first == nil; turn ^= 1 {
		if used[turn] {
			used[turn] = false
			if first = l.sync(turn); first != nil {
				break
			}
		}
		d.giveWay(ctx, l)
		if first = ctx.Err(); first != nil {
			break
		}
		if d.busy() {
			if other := turn ^ 1; used[other] {
				used[other] = false
				if first = l.sync(other); first != nil {
					break
				}
			}
			first = l.slowly(ctx, dir, d, rest[:1])
			rest = rest[1:]
			continue
		}
		n := min(half, len(rest))
		used[turn] = true
		first = l.start(dir, turn, rest[:n])
		rest = rest[n:]
	}
	for turn, busy := range used {
		if busy {
			if err := l.sync(turn); first == nil {
				first = err
			}
		}
	}
	return first
}

func (l *lane) start(dir, turn int, pieces []device.Piece) error {
	if dir == up {
		return l.streams[turn].UploadAll(pieces)
	}
	return l.streams[turn].DownloadAll(pieces)
}

// slowly copies pieces while no other lane of the background does so.
func (l *lane) slowly(ctx context.Context, dir int, d *direction, pieces []device.Piece) error {
	select {
	case d.slow <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.slow }()
	return errors.Join(l.start(dir, 0, pieces), l.sync(0))
}

// sync waits for one stream, whatever the context of the caller: a copy that is under way writes to
// a frame. The device's watchdog bounds it. A stream with an error is closed.
func (l *lane) sync(turn int) error {
	s := l.streams[turn]
	err := s.Sync(context.Background())
	if err != nil {
		l.streams[turn] = nil
		_ = s.Close() // It has reported its error.
	}
	return err
}
