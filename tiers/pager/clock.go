package pager

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// clock is a coarse time, which pins read without a system call.
type clock struct{ ticks atomic.Int64 }

// now returns the time since Open in units of tick.
func (c *clock) now() int64 { return c.ticks.Load() }

// demand counts the page faults that are being served. Background work waits for them.
type demand struct{ n atomic.Int64 }

func (d *demand) begin() { d.n.Add(1) }

func (d *demand) end() { d.n.Add(-1) }

func (d *demand) count() int64 { return d.n.Load() }

// tick is the resolution of the clock: pins of one page within a tick are one access to the policy.
const tick = 5 * time.Millisecond

// stampUnit is the resolution of the ages of pages in the store: 27 bits of it are a year.
const stampUnit = 250 * time.Millisecond

// units rounds a duration to the unit of stamps.
func units(d time.Duration) uint32 { return uint32(min(d/stampUnit, time.Duration(MaxTime))) }

// stamp returns the time since Open in units of stampUnit, from 1 on.
func (c *clock) stamp() uint32 { return uint32(c.now()/int64(stampUnit/tick)) + 1 }

// giveWay waits while page faults are being served, and reports whether the Pager is still open.
func (d *demand) giveWay(ctx context.Context) bool {
	if d.count() == 0 {
		return ctx.Err() == nil
	}
	pause := 200 * time.Microsecond // A fault from memory takes a fraction of it.
	t := time.NewTimer(pause)
	defer t.Stop()
	for d.count() > 0 && ctx.Err() == nil {
		select {
		case <-t.C:
			pause = min(2*pause, tick)
			t.Reset(pause)
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// bounded calls f, which may wait for a medium, and returns at the end of ctx with
// tiers.ErrUnavailable if f has not returned. f then continues in its goroutine.
func bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // It ends when the medium answers.
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done: // f itself ended with ctx.
			return err
		default:
		}
		return errors.Join(tiers.ErrUnavailable, ctx.Err())
	}
}

// window returns the age up to which a page of a tier of the store would belong into the tier
// above.
func window(disks []Disk, tier int) uint32 {
	if tier == 0 {
		return 0
	}
	return units(disks[tier-1].MaxIdle)
}
