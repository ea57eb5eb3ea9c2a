package evaluation

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	_ "github.com/exoswarm/exoswarm/cuda/host/celltwin" // registers the twins of the cells
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// ErrCell is a cell that does not exist or that cannot observe.
var ErrCell = errors.New("invalid cell")

// pageBytes holds a group of any size that tests use.
const pageBytes = 1 << 20

// CellOptions are a cell with its parameters.
type CellOptions struct {
	// Cell is the name of the cell, predictor by default.
	Cell string
	// Values are parameters of the cell; the others have their defaults.
	Values map[string]float64
	// Agents is the size of the group; 0 is the default of the cell.
	Agents int
	// Seed is the seed of the swarm.
	Seed uint64
}

// CellDetector scores series. It keeps nothing from one series to the next, and may be used by
// several goroutines.
type CellDetector struct {
	cell    *cells.Cell
	options CellOptions
}

// NewCellDetector returns a detector. It checks the options.
func NewCellDetector(o CellOptions) (*CellDetector, error) {
	if o.Cell == "" {
		o.Cell = "predictor"
	}
	c, ok := cells.Lookup(o.Cell)
	if !ok || twins.Lookup(c.Kernel) == nil {
		return nil, fmt.Errorf("%w: %q", ErrCell, o.Cell)
	}
	if o.Agents == 0 {
		o.Agents = c.Agents
	}
	d := &CellDetector{c, o}
	_, err := d.bind(1)
	return d, err
}

func (d *CellDetector) bind(features int) (*cells.Bound, error) {
	return d.cell.Bind(d.options.Values, d.options.Agents, features, cells.Weighted)
}

// CellOutcome is the outputs of a series, one of each a row.
type CellOutcome struct {
	// Scores are from 0 to 1.
	Scores []float32
	// Decisions are indices of the candidates of the cell.
	Decisions []uint32
}

// Anomalous returns the rows with the decision anomalous: the alarms of the predictor.
func (o *CellOutcome) Anomalous() []int {
	rows := []int{}
	for row, d := range o.Decisions {
		if d == kernels.VoteAnomalous {
			rows = append(rows, row)
		}
	}
	return rows
}

// Run scores a series: times in unix nanoseconds, and the features of the rows one after the other.
func (d *CellDetector) Run(times []int64, rows []float32, features int) (CellOutcome, error) {
	n := len(times)
	if features < 1 || len(rows) != n*features {
		return CellOutcome{}, fmt.Errorf("%w: %d values for %d rows of %d features", ErrCell, len(rows), n, features)
	}
	b, err := d.bind(features)
	if err != nil {
		return CellOutcome{}, err
	}
	layout, err := b.Layout(pageBytes)
	if err != nil {
		return CellOutcome{}, err
	}
	out := CellOutcome{make([]float32, n), make([]uint32, n)}
	if n == 0 {
		return out, nil
	}
	doubles := make([]float64, len(rows))
	for i, v := range rows {
		doubles[i] = float64(v)
	}
	page := device.Bytes(make([]uint64, pageBytes/8))
	twins.Run(d.cell.Kernel, 1, &kernels.ObserveBound{
		Pages: page, PageBytes: uint64(layout.PageBytes), Layout: layout.Table(), Params: b.ParamBlock(),
		Weights: b.Weights(d.options.Seed), Runs: device.Bytes(kernels.Run{Count: uint32(n)}.Words(nil)), Times: times,
		Features: doubles, Scores: out.Scores, Decisions: out.Decisions,
		Counts: make([]uint32, n*len(d.cell.Candidates)), Leaders: make([]uint32, n), Rounds: make([]uint64, n),
		Host: page,
	})
	return out, nil
}
