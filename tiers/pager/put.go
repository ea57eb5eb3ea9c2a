package pager

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// putter copies pages from frames into the store, through staging buffers. A tier of the store that
// fails or whose circuit is open is skipped for the next one. It has no state.
type putter struct {
	calls   *storeCaller
	staging *stagingBuffers
}

// begin copies the page of a frame into a buffer and hands it to a tier of the store: the first
// from tier number from on whose circuit is not open. The caller waits for the call with end. The
// page must not change meanwhile: the caller has claimed it, or keeps writers out.
func (pt *putter) begin(ctx context.Context, f *frame, from int) (*storeCall, error) {
	var errs []error
	for _, d := range pt.calls.Disks[min(from, len(pt.calls.Disks)):] {
		if d.Breaker.Open(time.Now()) {
			errs = append(errs, d.CircuitOpen())
			continue
		}
		b, err := pt.staging.Take(ctx)
		if err != nil {
			return nil, err
		}
		if err := pt.readFrame(f, b); err != nil {
			pt.staging.Put(b)
			return nil, err
		}
		c, err := pt.calls.Begin(ctx, opPut, d, f.page.Load(), b)
		if err == nil {
			c.Stage = b
			return c, nil
		}
		pt.staging.Put(b)
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// end waits for a call of begin, nil with the error of begin, and tries the tiers below if it
// failed. It returns the tier that took the page.
func (pt *putter) end(ctx context.Context, f *frame, c *storeCall, err error) (*storeQueue, error) {
	var errs []error
	for next := 0; ; {
		if c != nil {
			d, b := c.Disk, c.Stage
			abandoned, callErr := pt.calls.End(ctx, c)
			if abandoned {
				pt.staging.Replace()
			} else {
				pt.staging.Put(b)
			}
			if callErr == nil {
				return d, nil
			}
			err, next = callErr, d.Level+1
		} else {
			next = len(pt.calls.Disks)
		}
		errs = append(errs, err)
		if ctx.Err() != nil || next >= len(pt.calls.Disks) {
			return nil, fmt.Errorf("no tier takes page %d: %w", f.page.Load(), errors.Join(errs...))
		}
		c, err = pt.begin(ctx, f, next)
	}
}

// put copies the page of a frame into the first tier of the store that takes it, and returns the
// tier.
func (pt *putter) put(ctx context.Context, f *frame) (*storeQueue, error) {
	c, err := pt.begin(ctx, f, 0)
	return pt.end(ctx, f, c, err)
}

func (pt *putter) readFrame(f *frame, b []byte) error {
	return f.memory.outcome(context.Background(), f.memory.Frames.Read(f.number, 0, b))
}
