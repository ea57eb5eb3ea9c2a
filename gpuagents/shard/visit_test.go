package shard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestLooks: a served shard shows its variables, its pages and the stages of its batches. It
// answers the same question once a second, and pauses after a view. When it is closed, views end.
func TestLooks(t *testing.T) {
	ring := gpubatch.NewRing()
	p := newTestServer(t, launches.Host(t), Options{Spans: ring}, 4)
	shards := NewOpenShards(1)
	p.open = shards.Open(t.Context())
	p.open.park = make(chan struct{}, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- p.Serve(ctx, Task{On: p.on, Swarm: p.swarm, Open: p.open, Log: testLogger(p)})
	}()
	testkit.Until(t, "four answers", func() bool { return len(p.out.entries()) >= 4 })
	first, err := p.open.Picture(t.Context(), "potential", 16)
	testkit.NoError(t, "Picture", err)
	if first.Units != 64 || first.Per != 4 || len(first.Mean) != 16 || first.States[0] != raster.Whole ||
		slices.Max(first.Most) == 0 {
		t.Errorf("a picture of %d units, %d a cell: %v", first.Units, first.Per, first.Mean)
	}
	if again, err := p.open.Picture(t.Context(), "potential", 16); err != nil || again != first {
		t.Errorf("the same question within a second draws another picture (%v)", err)
	}
	next := p.open.views.next
	if other, err := p.open.Picture(t.Context(), "trace", 16); err != nil || other.At.Before(next) {
		t.Errorf("another picture came %v before the end of the pause (%v)", next.Sub(other.At), err)
	}
	if _, err := p.open.Picture(t.Context(), "mood", 16); !errors.Is(err, raster.ErrUnknown) {
		t.Errorf("an unknown variable: %v, want ErrUnknown", err)
	}
	m, err := p.open.PageMap(t.Context(), 100)
	testkit.NoError(t, "PageMap", err)
	if m.Pages != 1 || m.Per != 1 || !slices.Equal(m.Tier, []uint8{0}) || m.Tiers[0] != "gpu" || m.Counts[0] != 1 ||
		m.PageBytes != 64<<10 {
		t.Errorf("the map of pages is %+v, want a page on the device", m)
	}
	p.open.views.next = time.Now().Add(time.Hour)
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	if _, err := p.open.Picture(short, "trace", 9); !errors.Is(err, ErrTooSoon) {
		t.Errorf("a view during the pause: %v, want ErrTooSoon", err)
	}
	stop()
	p.open.views.next = time.Time{}

	counts := map[gpubatch.Stage]int{}
	for _, s := range ring.Since(time.Time{}) {
		if counts[s.Stage]++; s.Swarm != p.swarm.Key() || s.First < 1 || s.Last > 4 || s.First > s.Last || s.Took < 0 {
			t.Errorf("a span %+v", s)
		}
	}
	for _, stage := range []gpubatch.Stage{
		gpubatch.StageFetch, gpubatch.StageDecode, gpubatch.StageUpload, gpubatch.StageKernel,
		gpubatch.StageReadBack, gpubatch.StageAppend,
	} {
		if counts[stage] == 0 {
			t.Errorf("no span of %v: %v", stage, counts)
		}
	}

	cancel(errors.New("the test ends"))
	<-ended
	left := make(chan error, 1)
	go func() {
		_, err := p.open.Picture(t.Context(), "trace", 15)
		left <- err
	}()
	shards.Close(p.open)
	if err := <-left; !errors.Is(err, ErrNotOpen) {
		t.Errorf("a look at a closed shard: %v, want ErrNotOpen", err)
	}
}

// TestPageMapBins: a cell has the tier of most of its pages and the age of the youngest; runs of
// pages that were never addressed have none.
func TestPageMapBins(t *testing.T) {
	m := PageMap{Tiers: []string{"gpu", "cpu", "ssd"}}
	at := func(tier int8, idle time.Duration) pages.Location { return pages.Location{Tier: tier, Idle: idle} }
	m.bin([]pages.Location{
		at(0, 5), at(0, 3), at(1, 1), at(1, 9), at(1, 8), at(2, -1), at(-1, -1), at(-1, -1), at(2, 7), at(2, -1),
	}, 4)
	if m.Per != 3 || !slices.Equal(m.Tier, []uint8{0, 1, NoTier, 2}) ||
		!slices.Equal(m.Idle, []time.Duration{1, 8, -1, -1}) || !slices.Equal(m.Counts, []int{2, 3, 3}) {
		t.Errorf("%+v", m)
	}
}
