package celltwin

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// swarm runs the twin of a cell's kernel on one frame of pages, block after block.
type swarm struct {
	bound  *cells.Bound
	layout kernels.Layout
	page   []byte
	table  []float32
}

// columns are the outputs of a batch, by index of the observation.
type columns struct {
	scores    []float32
	decisions []uint32
	counts    []uint32
	leaders   []uint32
	rounds    []uint64
}

const testSeed = 20240501

func bind(t testing.TB, cell string, values map[string]float64, agents, features int, v cells.Voting) *cells.Bound {
	t.Helper()
	c, ok := cells.Lookup(cell)
	if !ok {
		t.Fatalf("no cell %q", cell)
	}
	b, err := c.Bind(values, agents, features, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newSwarm(t testing.TB, b *cells.Bound, pageBytes int) *swarm {
	t.Helper()
	layout, err := b.Layout(pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	return &swarm{bound: b, layout: layout, page: device.Bytes(make([]uint64, pageBytes/8)), table: b.Weights(testSeed)}
}

// observe runs one batch: runs over times and features. It returns the outputs.
func (s *swarm) observe(runs []kernels.Run, times []int64, features []float32) columns {
	return s.observe64(runs, times, doubles(features))
}

// doubles returns features as an observe kernel takes them.
func doubles(features []float32) []float64 {
	x := make([]float64, len(features))
	for i, v := range features {
		x[i] = float64(v)
	}
	return x
}

func (s *swarm) observe64(runs []kernels.Run, times []int64, features []float64) columns {
	n := len(times)
	out := columns{
		make([]float32, n), make([]uint32, n), make([]uint32, n*len(s.bound.Cell.Candidates)),
		make([]uint32, n), make([]uint64, n),
	}
	flat := make([]uint32, 0, 4*len(runs))
	for _, r := range runs {
		flat = r.Words(flat)
	}
	twins.Run(s.bound.Cell.Kernel, len(runs), &kernels.ObserveBound{
		Pages: s.page, PageBytes: uint64(s.layout.PageBytes), Layout: s.layout.Table(), Params: s.bound.ParamBlock(),
		Weights: s.table, Runs: device.Bytes(flat), Times: times, Features: features, Scores: out.scores,
		Decisions: out.decisions, Counts: out.counts, Leaders: out.leaders, Rounds: out.rounds, Host: s.page,
	})
	return out
}

// series runs one group, in slot 0, through all of its observations in one run.
func (s *swarm) series(times []int64, features []float32) columns {
	return s.observe([]kernels.Run{{Count: uint32(len(times))}}, times, features)
}
