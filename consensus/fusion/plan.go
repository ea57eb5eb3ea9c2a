package fusion

import "github.com/exoswarm/exoswarm/cuda/kernels"

// run is an element of a table of runs, as the kernels read it: rows first..first+rows-1 are summed
// one by one, and the sum goes to a node or is the sum of a run itself.
type run struct {
	first, rows, target, kind uint32
}

// plan is the order of additions of a static membership, as tables. Work is cut by runs and not by
// nodes, so that skewed memberships are as even as others.
type plan struct {
	// order has the agents by node, then by number; nil if they are in this order already.
	order []uint32
	// levels are tables of runs: the first over agents, by their place in order, each later one
	// over the sums of runs of the earlier ones. Each node is the target of exactly one run.
	levels [][]run
	parts  int // sums of runs
	// nobody and invalid count the agents that are in no run.
	nobody, invalid uint64
}

// newPlan sorts n agents by their node, by counting, in time proportional to agents and nodes. Runs
// have runRows rows at most.
func newPlan(members []uint32, nodes, runRows int) *plan {
	p := &plan{}
	starts := make([]uint32, nodes+1)
	sorted := true
	for i, id := range members {
		sorted = sorted && (i == 0 || members[i-1] <= id)
		switch {
		case id == None:
			p.nobody++
		case uint64(id) >= uint64(nodes):
			p.invalid++
		default:
			starts[id+1]++
		}
	}
	for m := range nodes {
		starts[m+1] += starts[m]
	}
	if !sorted { // else agents without a node are last, and the others are in order
		p.order = make([]uint32, starts[nodes])
		next := append([]uint32{}, starts...)
		for i, id := range members {
			if uint64(id) < uint64(nodes) {
				p.order[next[id]] = uint32(i)
				next[id]++
			}
		}
	}
	// A row to be summed: the agents of a node, or the sums of their runs.
	type row struct{ node, first, n uint32 }
	rows := make([]row, nodes)
	for m := range rows {
		rows[m] = row{uint32(m), starts[m], starts[m+1] - starts[m]}
	}
	most := uint32(runRows)
	for len(rows) > 0 {
		level := make([]run, 0, len(rows))
		var above []row
		for _, r := range rows {
			if r.n <= most {
				level = append(level, run{r.first, r.n, r.node, kernels.FuseRunNode})
				continue
			}
			first := uint32(p.parts)
			for at := uint32(0); at < r.n; at += most {
				level = append(level, run{r.first + at, min(most, r.n-at), uint32(p.parts), kernels.FuseRunPart})
				p.parts++
			}
			above = append(above, row{r.node, first, uint32(p.parts) - first})
		}
		p.levels, rows = append(p.levels, level), above
	}
	return p
}

func words(level []run) []uint32 {
	w := make([]uint32, 0, 4*len(level))
	for _, r := range level {
		w = append(w, r.first, r.rows, r.target, r.kind)
	}
	return w
}
