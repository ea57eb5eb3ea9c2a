package explain

import (
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// TestWiden: what an earlier program has counted by feature and kind keeps its place when there are
// more kinds.
func TestWiden(t *testing.T) {
	const before, now = 6, int(batch.FeatureSurprises)
	e := entity{Features: make([]feature, 2), Before: make([]uint32, 2*before), Hidden: &incident{}}
	e.Hidden.Sizes = make([]float64, 2*before)
	e.Before[3], e.Before[before+5], e.Hidden.Sizes[before] = 7, 8, 9
	e.widen()
	want := make([]uint32, 2*now)
	want[3], want[now+5] = 7, 8
	if !slices.Equal(e.Before, want) {
		t.Errorf("counts %v, want %v", e.Before, want)
	}
	if len(e.Hidden.Sizes) != 2*now || e.Hidden.Sizes[now] != 9 {
		t.Errorf("sizes %v, want a 9 at place %d", e.Hidden.Sizes, now)
	}
	e.widen()
	if !slices.Equal(e.Before, want) || e.Related == nil {
		t.Errorf("counts %v after another time, want %v", e.Before, want)
	}
}
