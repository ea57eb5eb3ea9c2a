package pool

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// TestJoin: a shard joins further devices by their room, without what is reserved there, fewer if
// there is too little for as many as it wants, and gives all back.
func TestJoin(t *testing.T) {
	d := launches.Host(t)
	bytes := func(devices int) int64 { return int64(120 / devices) }
	for _, c := range []struct {
		room    []int64
		devices int
		want    []int // the first has the pages
	}{
		{[]int64{100, 60, 70}, 3, []int{0, 2, 1}},
		{[]int64{100, 60, 70}, 2, []int{0, 2}},
		{[]int64{100, 60, 70}, 1, []int{0}},
		{[]int64{100, 60, 70}, 8, []int{0, 2, 1}},
		{[]int64{100, 39, 70}, 3, []int{0, 2}}, // 120/3 does not fit, so that two take 120/2
		{[]int64{100, 39, 59}, 3, []int{0}},
		{[]int64{100}, 2, []int{0}},
	} {
		f := poolOf(d, c.room...)
		on, err := f.Take(t.Context(), func() int64 { return 50 })
		if err != nil {
			t.Fatal(err)
		}
		got := []int{on.index}
		members := on.Join(c.devices, bytes)
		for _, m := range members {
			got = append(got, m.index)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("rooms %v, at most %d devices: %v, want %v", c.room, c.devices, got, c.want)
		}
		if len(members) > 0 { // its bytes are reserved, and then taken
			m, need := members[0], bytes(len(got))
			if left := c.room[m.index] - f.reserved[m.index]; left != c.room[m.index]-need {
				t.Errorf("%d bytes are left, want %d", left, c.room[m.index]-need)
			}
			s, err := m.Budget().Take(need)
			if err != nil || m.Budget().Room() != c.room[m.index]-need || f.reserved[m.index] != 0 {
				t.Errorf("%v, %d bytes are left and %d reserved", err, m.Budget().Room(), f.reserved[m.index])
			}
			s.Release()
		}
		for _, m := range append(members, on) {
			m.Release()
		}
		for i, ds := range f.devices {
			if f.reserved[i] != 0 || f.shards[i] != 0 || ds.instances[primary].users != 0 ||
				ds.instances[primary].budget.Room() != c.room[i] {
				t.Errorf("rooms %v: device %d has %d bytes reserved and %d shards", c.room, i, f.reserved[i],
					f.shards[i])
			}
		}
	}
}

// TestJoinLevels: failing devices do not share ticks, and no device shares the ticks of a shard
// that the host device serves.
func TestJoinLevels(t *testing.T) {
	d := launches.Host(t)
	rapid.Check(t, func(t *rapid.T) {
		f, want := poolOf(d, 900, 100, 100, 100), 1
		on, err := f.Take(t.Context(), func() int64 { return 5 })
		if err != nil {
			t.Fatal(err)
		}
		for i, ds := range f.devices[1:] {
			ds.state.level = Level(rapid.IntRange(0, 3).Draw(t, fmt.Sprintf("level %d", i+1)))
			if ds.state.level < OnHost {
				want++
			}
		}
		if rapid.Bool().Draw(t, "on host") {
			on.which, want = onHost, 1
		}
		members := on.Join(4, func(int) int64 { return 10 })
		if len(members)+1 != want {
			t.Fatalf("%d devices, want %d", len(members)+1, want)
		}
	})
}
