package agents

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// rows are observations as they are staged: inputs are [len(ids)][Features], and items is an item
// for each observation of a cell with items, else nil.
type rows struct {
	ids    []uint32
	inputs []float32
	items  []int32
}

// rowsOf makes rows of the values of observations, [len(ids)][Cell().Width()]. With an embedding,
// the inputs are in memory of the Agents, until the next call. items nil: no observation asks for a
// score.
func (a *Agents) rowsOf(ids []uint32, values []float32, items []int32) (rows, error) {
	if a.cell.Rows > 0 {
		a.looked = a.cell.LookUp(a.looked[:0], values, a.base, a.seed)
		values = a.looked
	}
	if a.cell.Items > 0 && items == nil {
		items = slices.Repeat([]int32{kernels.AgentNoItem}, len(ids))
	}
	in := rows{ids, values, items}
	return in, in.check(a.cell)
}

// check returns an ErrInvalid for slices of other lengths than the observations have.
func (in rows) check(cell *cells.Addressed) error {
	n := len(in.ids)
	if n*cell.Features != len(in.inputs) || int64(n) > int64(^uint32(0)) {
		return fmt.Errorf("%w: %d inputs for %d observations of %d features", ErrInvalid, len(in.inputs), n,
			cell.Features)
	}
	if n*min(cell.Items, 1) != len(in.items) {
		return fmt.Errorf("%w: %d items for %d observations, and the cell has %d", ErrInvalid, len(in.items), n,
			cell.Items)
	}
	return nil
}

// bytes returns the size of the rows.
func (in rows) bytes() int { return 4 * (len(in.ids) + len(in.inputs) + len(in.items)) }

// pick appends row i of other rows of a cell.
func (in *rows) pick(cell *cells.Addressed, of rows, i int) {
	in.ids = append(in.ids, of.ids[i])
	in.inputs = append(in.inputs, of.inputs[i*cell.Features:][:cell.Features]...)
	if cell.Items > 0 {
		in.items = append(in.items, of.items[i])
	}
}
