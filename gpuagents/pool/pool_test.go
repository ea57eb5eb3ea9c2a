package pool

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// poolOf is a pool over one real device that stands in for several, with a budget of bytes for
// each. Nothing runs on them.
func poolOf(d device.Device, bytes ...int64) *Pool {
	o := Options{Logger: slog.New(slog.DiscardHandler)}
	for _, n := range bytes {
		o.Devices = append(o.Devices, Accelerator{Device: d, PageMemory: n})
	}
	return New(o)
}

// TestChooseProperty: shards come, take memory and go while levels change. The device is always the
// one that the rule names, found here by looking for one that no other beats.
func TestChooseProperty(t *testing.T) {
	d := launches.Host(t)
	rapid.Check(t, func(t *rapid.T) {
		const page = 1 << 16
		bytes := rapid.SliceOfN(rapid.Int64Range(1, 6*page), 1, 5).Draw(t, "budgets")
		f := poolOf(d, bytes...)
		type shard struct {
			*Slot
			need  int64
			share *pages.Allocation
			took  bool
		}
		var all []*shard
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); {
			case step < 2:
				f.devices[rapid.IntRange(0, len(bytes)-1).Draw(t, "device")].state.level = Level(rapid.IntRange(0,
					3).Draw(t, "level"))
			case step < 4 && len(all) > 0: // arrives
				if s := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]; !s.took {
					var err error
					if s.share, err = s.budget.Allocate(0, int(s.need/page), page); err != nil {
						s.share = &pages.Allocation{} // what has no room takes nothing
					}
					s.took = true
				}
			case step < 6 && len(all) > 0: // goes
				i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
				all[i].share.Release()
				all[i].Release()
				all = append(all[:i], all[i+1:]...)
			default:
				need := page * rapid.Int64Range(1, 3).Draw(t, "need")
				room, shards := append([]int64{}, bytes...), make([]int, len(bytes))
				for _, s := range all {
					shards[s.index]++
					if s.took {
						room[s.index] -= s.share.DeviceBytes
					} else {
						room[s.index] -= s.need
					}
				}
				want := -1
				for i, ds := range f.devices {
					beaten := ds.state.level == Emergency
					for j, other := range f.devices {
						if i == j || other.state.level == Emergency {
							continue
						}
						a, b := ds.state.level == OnHost, other.state.level == OnHost
						tie := a == b && room[i] == room[j]
						beaten = beaten || a && !b || a == b && room[j] > room[i] || tie && shards[j] < shards[i] ||
							tie && shards[j] == shards[i] && j < i
					}
					if !beaten {
						want = i
					}
				}
				got := f.choose(need)
				if got != want {
					t.Fatalf("device %d, want %d of rooms %v and shards %v", got, want, room, shards)
				}
				if got >= 0 {
					s, until, err := f.devices[got].take(t.Context())
					testkit.NoError(t, "take", err)
					b := &Slot{instance: s, evicted: until, pool: f, index: got, reserved: need}
					b.budget = s.budget.WithArrival(b.allocated)
					all = append(all, &shard{Slot: b, need: need})
				}
			}
		}
	})
}

// TestNoBudgets: without budgets shards spread by their number.
func TestNoBudgets(t *testing.T) {
	f := poolOf(launches.Host(t), 0, 0, 0)
	var held []*Slot
	for i := range 9 {
		on, err := f.Take(t.Context(), func() int64 { return 1 << 16 })
		testkit.NoError(t, "f.Take", err)
		on.allocated(func() {})
		if on.index != i%3 {
			t.Errorf("shard %d is on device %d", i, on.index)
		}
		held = append(held, on)
	}
	for _, on := range held {
		on.Release()
	}
}

// TestPoolHealth: an agent is in an emergency when every device is, and names each.
func TestPoolHealth(t *testing.T) {
	f := poolOf(launches.Host(t), 1, 1)
	f.devices[0].name, f.devices[1].name = "one", "two"
	for i, want := range []string{"one", "two"} {
		testkit.NoError(t, "f.Health", f.Health())
		f.devices[i].state.level = Emergency
		if err := f.devices[i].health(); !errors.Is(err, ErrEmergency) || !strings.HasPrefix(err.Error(), want+": ") {
			t.Errorf("device %d: %v, want %v of %s", i, err, ErrEmergency, want)
		}
	}
	err := f.Health()
	if !errors.Is(err, ErrEmergency) || !strings.Contains(err.Error(), "one: ") ||
		!strings.Contains(err.Error(), "two: ") {
		t.Errorf("f.Health: %v, want %v and %q in its text and %q in its text", err, ErrEmergency, "one: ", "two: ")
	}
	if _, err := f.Take(t.Context(), func() int64 { return 0 }); !errors.Is(err, ErrEmergency) {
		t.Errorf("f.Take: %v, want %v", err, ErrEmergency)
	}
}
