package celldetector_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/labelled"
)

// firstRow is the first row whose surprises a group counts.
const firstRow = 10

// firstSurprises returns the bin of the instant surprise of a new group at each of its first
// PriorRows rows, and the usual step of its first agent before the row, in log2 of spreads. Rows
// before firstRow have no bin. A group sees one row at a time, and its present block is cleared
// before each.
func firstSurprises(t *testing.T, times []int64, rows []float32, features int) (bins []uint32, steps []float32) {
	t.Helper()
	cell, _ := cells.Lookup("predictor")
	b, err := cell.Bind(map[string]float64{"block": 65536}, 16, features, cells.Weighted)
	if err != nil {
		t.Fatal(err)
	}
	layout, err := b.Layout(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	page := device.Bytes(make([]uint64, layout.PageBytes/8))
	at := func(variable int) int { return int(layout.Offsets[variable]) / 4 }
	present := &device.Of[uint32](page)[at(kernels.PredictorVarBlock)+kernels.PredictorInstant*layout.Slots]
	usual := &device.Of[float32](page)[at(kernels.PredictorVarRoughUsual)]
	x, table, params, weights := make([]float64, features), layout.Table(), b.ParamBlock(), b.Weights(1)
	for row := range kernels.PriorRows {
		for f := range x {
			x[f] = float64(rows[row*features+f])
		}
		*present = 0
		steps = append(steps, *usual)
		twins.Run(cell.Kernel, 1, &kernels.ObserveBound{
			Pages: page, PageBytes: uint64(layout.PageBytes), Layout: table, Params: params, Weights: weights,
			Runs: device.Bytes(kernels.Run{Count: 1}.Words(nil)), Times: times[row : row+1], Features: x,
			Scores: make([]float32, 1), Decisions: make([]uint32, 1), Counts: make([]uint32, len(cell.Candidates)),
			Leaders: make([]uint32, 1), Rounds: make([]uint64, 1), Host: page,
		})
		bins = append(bins, *present)
	}
	return bins, steps
}

// reaches counts, for each age, the windows of new groups whose largest instant surprise is in a bin.
type reaches [len(kernels.PriorAges)][kernels.SurpriseBins]float64

// window returns the first row of an age, the row behind it, and the rows of its windows.
func window(age int) (from, to, rows int) {
	from, to = max(firstRow, int(kernels.PriorAges[age])), kernels.PriorRows
	if age+1 < len(kernels.PriorAges) {
		to = int(kernels.PriorAges[age+1])
	}
	return from, to, min(to-from, kernels.BlockRows)
}

func (r *reaches) add(bins []uint32, steps []float32) {
	for age := range r {
		from, to, rows := window(age)
		for ; from+rows <= to; from += rows {
			if steps[from] >= kernels.PriorSteps {
				r[age][slices.Max(bins[from:][:rows])]++
			}
		}
	}
}

// knots returns the bins that one block out of 2, 4, 8, ... reaches: half of the weight has each.
func knots(of ...*reaches) [len(kernels.PriorAges)][len(kernels.PriorKnots[0])]uint16 {
	var table [len(kernels.PriorAges)][len(kernels.PriorKnots[0])]uint16
	for age := range table {
		_, _, rows := window(age)
		all := make([]float64, len(of))
		for i, r := range of {
			for _, n := range r[age] {
				all[i] += n
			}
		}
		share, bin := 0.0, kernels.SurpriseBins
		for k := len(table[age]) - 1; k >= 0; k-- {
			want := float64(rows) / kernels.BlockRows / float64(int(2)<<k)
			for share < want && bin > 0 {
				bin--
				for i, r := range of {
					share += r[age][bin] / all[i] / float64(len(of))
				}
			}
			table[age][k] = uint16(bin)
		}
	}
	return table
}

// TestPrior: kernels.PriorKnots is what new groups do on generated series. It prints the table.
func TestPrior(t *testing.T) {
	if testing.Short() {
		t.Skip("the first rows of many series are slow under the race detector")
	}
	const seed = 900
	var (
		families, stationary reaches
		lock                 sync.Mutex
		jobs                 sync.WaitGroup
		room                 = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	add := func(to *reaches, times []int64, rows []float32, features int) {
		bins, steps := firstSurprises(t, times, rows, features)
		lock.Lock()
		defer lock.Unlock()
		to.add(bins, steps)
	}
	for _, f := range labelled.Families() {
		if f.HeldBack {
			continue
		}
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			for n := range testkit.Of(80, 4) {
				s, err := labelled.Quiet(seed, f.Name, n)
				if err != nil {
					t.Error(err)
					return
				}
				r := rand.New(rand.NewPCG(uint64(n), seed))
				for _, thin := range []int{1, 3, 12} { // 5 minutes, a quarter and an hour
					times, rows := part(s, r, thin)
					if times != nil {
						add(&families, times, rows, s.Features())
					}
				}
			}
		})
	}
	for first := range 8 {
		jobs.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			for n := first; n < testkit.Of(12000, 600); n += 8 {
				if times, x := stationarySeries(1_000_000 + n); len(times) >= kernels.PriorRows {
					add(&stationary, times, x, 1)
				}
			}
		})
	}
	jobs.Wait()
	if t.Failed() {
		return
	}
	table := knots(&families, &stationary)
	off := testkit.Of(4, 48) // other parts of the detector move it a little, and fewer series tell less
	for age, want := range kernels.PriorKnots {
		t.Logf("rows from %d on: %v", kernels.PriorAges[age], table[age])
		for k, bin := range table[age] {
			if d := int(bin) - int(want[k]); d > off || d < -off {
				t.Errorf("age %d, one block out of %d reaches bin %d, the table has %d", age, 2<<k, bin, want[k])
			}
		}
	}
}

// part returns PriorRows rows of a series from any row on, of each thin rows one, or nil where it is
// too short.
func part(s labelled.Series, r *rand.Rand, thin int) (times []int64, rows []float32) {
	room := len(s.Times) - kernels.PriorRows*thin
	if room <= 0 {
		return nil, nil
	}
	flat, width := s.Flat(), s.Features()
	for row := r.IntN(room); len(times) < kernels.PriorRows; row += thin {
		times, rows = append(times, s.Times[row]), append(rows, flat[row*width:][:width]...)
	}
	return times, rows
}
