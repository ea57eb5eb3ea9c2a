package agentview

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/raster"
	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// TestStates: the states of cells have the same numbers on both sides of the queue.
func TestStates(t *testing.T) {
	if raster.Whole != telemetry.CellWhole || raster.Partly != telemetry.CellPartly ||
		raster.Kept != telemetry.CellKept || raster.NotResident != telemetry.CellNowhere ||
		raster.NoValue != telemetry.CellNone || raster.MaxCells != telemetry.MaxCells {
		t.Error("packages raster and telemetry number the states of cells differently")
	}
}

// TestPicture: a value comes back from its two bytes, and cells without a value are not in the
// range.
func TestPicture(t *testing.T) {
	p := &raster.Picture{
		Variable: "v", Variables: []string{"v"}, Units: 6, Each: 1, Per: 2, Mean: []float32{-1.5, 900, 3},
		Least: []float32{-2, 900, 0}, Most: []float32{0, 900, 7},
		States: []uint8{raster.Whole, raster.NotResident, raster.Kept},
	}
	got, err := picture(p, "mean")
	if err != nil {
		t.Fatalf("picture: %v, want no error", err)
	}
	if got.Least != -1.5 || got.Most != 3 || len(got.Cells) != 6 || got.Units != 6 || got.Per != 2 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []float64{-1.5, math.NaN(), 3} {
		n := int(got.Cells[2*i]) | int(got.Cells[2*i+1])<<8
		if v := -1.5 + 4.5*float64(n)/65535; !math.IsNaN(want) && math.Abs(v-want) > 1e-4 {
			t.Errorf("cell %d is %v, want %v", i, v, want)
		}
	}
	if most, err := picture(p, "most"); err != nil || most.Least != 0 || most.Most != 7 {
		t.Errorf("the greatest values: %+v, %v", most, err)
	}
	if _, err := picture(p, "median"); err == nil {
		t.Error("a value that there is not is accepted")
	}
}

// TestPageMap: equal cells are one run, and ages are powers of two.
func TestPageMap(t *testing.T) {
	second := time.Second
	m := pageMap(&shard.PageMap{
		Pages: 14, Per: 2, PageBytes: 4096, Tiers: []string{"gpu", "cpu"}, Counts: []int{8, 4},
		Tier: []uint8{0, 0, 0, 1, 1, shard.NoTier, 1},
		Idle: []time.Duration{0, second / 2, second, 3 * second, 2 * second, -1, -1},
	})
	want := [][3]int{{2, 0, 0}, {1, 0, 1}, {2, 1, 2}, {1, -1, -1}, {1, 1, -1}}
	if !reflect.DeepEqual(m.Runs, want) {
		t.Errorf("runs %v, want %v", m.Runs, want)
	}
}

// TestSpans: a full timeline fits into a message.
func TestSpans(t *testing.T) {
	all := make([]gpubatch.Span, gpubatch.MaxSpans)
	for i := range all {
		all[i] = gpubatch.Span{
			Stage: gpubatch.StageKernel, Swarm: "a-swarm-with-a-name.0123456789abcdef", Shard: 1000,
			First: 1e12 + uint64(i),
			Last:  1e12 + uint64(i) + 200, Bytes: 1e9, Begin: time.Now(), Took: time.Duration(i) * time.Microsecond,
		}
	}
	got := spans("a", all)
	text, err := json.Marshal(got)
	if err != nil || len(got.Spans) != gpubatch.MaxSpans || got.Stages[got.Spans[9].Stage] != "kernel" ||
		got.Spans[9].Took != 9000 || len(text) > 1<<20 {
		t.Errorf("%d spans in %d bytes: %v", len(got.Spans), len(text), err)
	}
}
