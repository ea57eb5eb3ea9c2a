package pages

import (
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestTogether: a shard whose pages must be on the device at once has frames for them, however
// little others leave, and is refused without. Sets have whole units, and pages that are only read
// come first.
func TestTogether(t *testing.T) {
	d, err := cuda.Open(t.Context(), "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	const page = 4096
	for n := range 40 {
		b := NewBudget(100*page, 1<<30).WithTogether(n)
		s, err := b.Allocate(1, 100, page)
		testkit.NoError(t, "Allocate", err)
		least := s.least()
		if usableFrames(least, false) < n || least > minFrames && usableFrames(least-1, false) >= n {
			t.Errorf("%d pages together have %d frames, %d of them usable", n, least, usableFrames(least, false))
		}
		s.Release()
	}
	if _, err := NewBudget(8*page, 1<<30).WithTogether(8).Allocate(1, 100, page); err == nil {
		t.Error("8 pages together fit into 8 frames, and some are kept free")
	}
	m, err := NewMemory(d, NewBudget(18*page, 1<<30).WithTogether(8), 1, page, 100)
	testkit.NoError(t, "NewMemory", err)
	testkit.Close(t, m)
	units := []Unit{
		{Pages: []uint64{1, 2, 3}, Read: 2},
		{Pages: []uint64{10, 11, 12, 13, 14}, Read: 5},
		{Pages: []uint64{20, 21, 22}},
		{Pages: []uint64{30, 31, 32, 33, 34}, Read: 4},
		{Pages: []uint64{40, 41, 42, 43, 44, 45, 46, 47}},
	}
	sets, of := m.PlanUnits(units)
	if !slices.Equal(of, []int{2, 2, 1}) {
		t.Fatalf("sets of %d units, want 2, 2 and 1: 16 frames can be used, half of them by a set", of)
	}
	if want := []uint64{1, 2, 10, 11, 12, 13, 14, 3}; !slices.Equal(sets[0].Pages, want) || sets[0].read != 7 {
		t.Errorf("pages %d, %d of them read, want %d and 7", sets[0].Pages, sets[0].read, want)
	}
	if _, of := m.PlanUnits(units[:4]); !slices.Equal(of, []int{4}) {
		t.Errorf("units of 16 pages are in %d sets, want one", len(of))
	}
}
