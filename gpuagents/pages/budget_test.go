package pages

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// TestNoBudget: without a budget a shard has the frames that it asks for, and nothing in host
// memory; every method takes it.
func TestNoBudget(t *testing.T) {
	if NewBudget(0, 5) != nil {
		t.Error("no bytes on the device are a budget")
	}
	b := NewBudget(0, 5).WithSharedMemory(true).WithAges(1,
		2).WithArrival(func(func()) { t.Error("something was kept") })
	if b != nil || b.Room() != math.MaxInt64 {
		t.Errorf("%v, room for %d bytes", b, b.Room())
	}
	s, err := b.Allocate(3, 7, 100)
	if want := (Allocation{frames: 7, DeviceBytes: 700}); *s != want || err != nil {
		t.Errorf("%+v, %v; want %+v", s, err, want)
	}
	if s.halve() || s.frames != 7 || s.ages() != [2]time.Duration{} {
		t.Errorf("%+v, want 7 frames as before, and no ages", s)
	}
	s.allocateHost(4)
	if s.hostNeeded != 4 || s.hostFrames != 0 || s.HostBytes != 0 {
		t.Errorf("%+v, want 4 frames needed in host memory, and none there", s)
	}
	s.Release()
	if s.frames != 7 {
		t.Errorf("%+v, want 7 frames", s)
	}
}

// TestBudgetIsTaken: shares take tables and frames out of a budget, down to its last byte, and give
// all of it back, once.
func TestBudgetIsTaken(t *testing.T) {
	const page = 1000
	for _, c := range []struct {
		name           string
		device         int64
		shared         bool
		groups, pages  int
		frames, tables int
		short          int64 // too few, 0: enough
	}{
		{name: "all", device: 7 * page, pages: 7, frames: 7},
		{name: "more than all", device: 9 * page, pages: 7, frames: 7},
		{name: "some", device: 6*page + 999, pages: 7, frames: 6},
		{name: "the least", device: 2 * page, pages: 7, frames: 2},
		{name: "a byte below the least", device: 2*page - 1, pages: 7, short: 1},
		{name: "one frame", device: page, pages: 7, short: page},
		{name: "one page", device: page, pages: 1, frames: 1},
		{name: "a byte below one page", device: page - 1, pages: 1, short: 1},
		{name: "two pages", device: 2 * page, pages: 2, frames: 2},
		{name: "no page", device: 5, pages: 0, frames: 0},
		{
			name: "shared, all", device: 7*page + 8*3 + 64*7, shared: true, groups: 3, pages: 7, frames: 7,
			tables: 8*3 + 64*7,
		},
		{
			name: "shared, a byte below all", device: 7*page + 8*3 + 64*7 - 1, shared: true, groups: 3, pages: 7,
			frames: 6, tables: 8*3 + 64*7,
		},
		{
			name: "shared, the least", device: 2*page + 8*3 + 64*7, shared: true, groups: 3, pages: 7, frames: 2,
			tables: 8*3 + 64*7,
		},
		{
			name: "shared, a byte below the least", device: 2*page + 8*3 + 64*7 - 1, shared: true, groups: 3, pages: 7,
			short: 1,
		},
		{name: "shared, the tables alone", device: 8*3 + 64*7, shared: true, groups: 3, pages: 7, short: 2 * page},
	} {
		for _, arriving := range []bool{false, true} {
			b, arrived := NewBudget(c.device, 50).WithSharedMemory(c.shared), 0
			of := b
			if arriving {
				of = b.WithArrival(func(take func()) { arrived++; take() })
			}
			s, err := of.Allocate(c.groups, c.pages, page)
			if arriving && arrived != 1 {
				t.Errorf("%s: arrived %d times", c.name, arrived)
			}
			if c.short > 0 {
				var refused *jobs.Error
				room := MemoryError{
					bytes: int64(c.pages) * page, device: c.device, host: 50, short: c.short,
					where: "on the device",
				}
				if c.shared {
					room.tables = 8*3 + 64*7
				}
				if !errors.As(err, &refused) || refused.Code != jobs.CodeDevice || refused.Message != room.Error() ||
					b.Room() != c.device || s != nil {
					t.Errorf("%s: %+v with %d bytes left: %v, want %v", c.name, s, b.Room(), err, room)
				}
				continue
			}
			took := int64(c.frames)*page + int64(c.tables)
			if err != nil || s.frames != c.frames || s.DeviceBytes != int64(c.frames)*page ||
				s.tables != int64(c.tables) || b.Room() != c.device-took || of.Room() != b.Room() {
				t.Errorf("%s: %+v with %d bytes left of %d: %v", c.name, s, b.Room(), c.device, err)
			}
			for range 2 {
				s.Release()
				if *s != (Allocation{}) || b.Room() != c.device || b.host != 50 {
					t.Errorf("%s: %+v, and %d bytes are back of %d", c.name, s, b.Room(), c.device)
				}
			}
		}
	}
}

// TestAllocationHalves: half of the frames go back at a time, down to the least.
func TestAllocationHalves(t *testing.T) {
	const page = 10
	b := NewBudget(1000, 0)
	s, err := b.Allocate(0, 19, page)
	testkit.NoError(t, "b.Allocate", err)
	for _, want := range []int{9, 4, 2} {
		if !s.halve() || s.frames != want || s.DeviceBytes != int64(want)*page ||
			b.Room() != 1000-int64(want)*page {
			t.Errorf("%d frames, %d bytes, %d left; want %d", s.frames, s.DeviceBytes, b.Room(), want)
		}
	}
	if s.halve() || s.frames != 2 || b.Room() != 980 {
		t.Errorf("%d frames below the least, %d left", s.frames, b.Room())
	}
	three, err := b.Allocate(0, 3, page)
	if err != nil || !three.halve() || three.frames != 2 || three.halve() {
		t.Errorf("%d frames of 3: %v", three.frames, err)
	}
	one, err := b.Allocate(0, 1, page)
	if err != nil || one.halve() || one.frames != 1 {
		t.Errorf("%d frames of 1: %v", one.frames, err)
	}
	s.Release()
	three.Release()
	one.Release()
	if b.Room() != 1000 {
		t.Errorf("%d bytes are back", b.Room())
	}
}

// TestAllocationTakesHost: an allocation takes as many frames in host memory as it needs and there
// are, once.
func TestAllocationTakesHost(t *testing.T) {
	const page = 10
	for _, c := range []struct {
		host         int64
		needed, want int
	}{{100, 4, 4}, {40, 4, 4}, {39, 4, 3}, {10, 4, 1}, {9, 4, 0}, {0, 4, 0}, {-25, 4, 0}, {100, 0, 0}} {
		b := NewBudget(1000, 0).WithAges(time.Second, time.Minute)
		b.host = c.host
		s, err := b.Allocate(0, 5, page)
		testkit.NoError(t, "b.Allocate", err)
		s.allocateHost(c.needed)
		if s.hostNeeded != c.needed || s.hostFrames != c.want || s.HostBytes != int64(c.want)*page ||
			b.host != c.host-s.HostBytes {
			t.Errorf("%+v of %d, %d left", s, c.host, b.host)
		}
		s.allocateHost(1) // It has some, or gets what there is now.
		want := c.want
		if want == 0 && c.host >= page {
			want = 1
		}
		if s.hostNeeded != 1 || s.hostFrames != want || b.host != c.host-int64(want)*page {
			t.Errorf("again: %+v of %d, %d left", s, c.host, b.host)
		}
		if s.ages() != [2]time.Duration{time.Second, time.Minute} {
			t.Errorf("ages %v", s.ages())
		}
		s.Release()
		if b.host != c.host || b.Room() != 1000 {
			t.Errorf("%d and %d bytes are back", b.Room(), b.host)
		}
	}
}

// TestBudgetProperty: whatever shards take, halve and give, what is left and what they have is the
// whole.
func TestBudgetProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const page = 100
		device, host := rapid.Int64Range(1, 5000).Draw(t, "device"), rapid.Int64Range(0, 3000).Draw(t, "host")
		b := NewBudget(device, host).WithSharedMemory(rapid.Bool().Draw(t, "shared"))
		var all []*Allocation
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				onDevice, inHost := b.Room(), b.host
				for _, s := range all {
					onDevice += s.DeviceBytes + s.tables
					inHost += s.HostBytes
				}
				if onDevice != device || inHost != host || b.Room() < 0 || b.host < 0 {
					t.Fatalf("%d and %d bytes of %d and %d", onDevice, inHost, device, host)
				}
			},
			"take": func(t *rapid.T) {
				pages := rapid.IntRange(1, 20).Draw(t, "pages")
				s, err := b.Allocate(rapid.IntRange(0, 9).Draw(t, "groups"), pages, page)
				if err == nil && (s.frames < min(pages, minFrames) || s.frames > pages) {
					t.Fatalf("%d frames for %d pages", s.frames, pages)
				}
				if err == nil {
					s.allocateHost(rapid.IntRange(0, 20).Draw(t, "host"))
					all = append(all, s)
				}
			},
			"halve": func(t *rapid.T) {
				if len(all) > 0 {
					all[rapid.IntRange(0, len(all)-1).Draw(t, "share")].halve()
				}
			},
			"give": func(t *rapid.T) {
				if len(all) > 0 {
					all[0].Release()
					all = all[1:]
				}
			},
		})
	})
}

// TestTake: what has no pages takes bytes of a budget, to the last one, and gives them back once. A
// reservation ends with it.
func TestTake(t *testing.T) {
	b, arrived := NewBudget(100, 5), 0
	arriving := b.WithArrival(func(take func()) { arrived++; take() })
	s, err := arriving.Take(100)
	if err != nil || b.Room() != 0 || arrived != 1 {
		t.Fatalf("%v, %d bytes are left, %d arrivals", err, b.Room(), arrived)
	}
	if _, err := b.Take(1); !errors.Is(err, device.ErrOutOfMemory) || b.Room() != 0 {
		t.Errorf("a byte of an empty budget: %v, want a device.ErrOutOfMemory", err)
	}
	s.Release()
	s.Release()
	if b.Room() != 100 {
		t.Errorf("%d bytes are left, want 100", b.Room())
	}
	none := (*Budget)(nil)
	if s, err = none.Take(1 << 40); err != nil {
		t.Errorf("no budget: %v, want no error", err)
	}
	s.Release()
}
