package swarmlog

import (
	"context"
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestScan: a scan reads the entries of a range, by a consumer or one by one, and ends with its
// context.
func TestScan(t *testing.T) {
	t.Parallel()
	_, c := inside(t)
	ctx := t.Context()
	if _, _, err := c.Bounds(ctx, "scan", 0, swarms.In); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the bounds of a log that is not there: %v", err)
	}
	l := c.Log("scan", 0, swarms.In)
	if err := l.Create(ctx); err != nil {
		t.Fatal(err)
	}
	if _, last, err := c.Bounds(ctx, "scan", 0, swarms.In); err != nil || last != 0 {
		t.Errorf("an empty log ends with entry %d, %v", last, err)
	}
	if err := errors.Join(l.Append(ctx, 0, numbered(1, 200, 4)...), l.Trim(ctx, 11)); err != nil {
		t.Fatal(err)
	}
	if first, last, err := c.Bounds(ctx, "scan", 0, swarms.In); err != nil || first != 11 || last != 200 {
		t.Errorf("the log has the entries %d to %d, %v, want 11 to 200", first, last, err)
	}
	for _, single := range []bool{false, true} {
		for _, of := range [][2]uint64{{11, 200}, {100, 120}, {200, 200}} {
			c.noConsumers.Store(single)
			r, err := c.Scan(ctx, "scan", 0, swarms.In, of[0], of[1])
			if err != nil {
				t.Fatal(err)
			}
			for seq := of[0]; seq <= of[1]; seq++ {
				if e, err := r.Next(ctx); err != nil || e.Seq != seq || e.Ref != seq {
					t.Fatalf("single %v: %+v, %v, want entry %d", single, e, err, seq)
				}
			}
			r.Close()
			r.Close()
		}
	}
	r, err := c.Scan(ctx, "scan", 0, swarms.In, 5, 30)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(ctx); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an entry that was trimmed: %v", err)
	}
	r.Close() // with questions under way
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if r, err = c.Scan(ended, "scan", 0, swarms.In, 11, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	r.Close()
}
