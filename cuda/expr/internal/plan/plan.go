// Package plan divides the graph of a program into parts. Each part is one kernel.
//
// At first each node is a part. A node then moves into the parts that read it, as long as the model
// predicts that this saves time (inline), and parts that read the same arrays become one (merge).
// Only the patterns of Kind are kernels; shape says for some roots which one it is, or why there is
// none. A plan does not know the text of a kernel, and no device.
package plan

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/cost"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Kind is the pattern of a kernel. Package codegen has one frame of text for each.
type Kind uint8

// The kinds.
const (
	KindMap     Kind = iota + 1 // element-wise results, and folds of all elements
	KindRows                    // folds of rows, with element-wise results of them
	KindCompact                 // filtered values of one predicate
	KindScan                    // sums of all elements before each
	KindSmall                   // small products of rows, with element-wise operations around them
	KindGemm                    // a product that the library of the device computes
)

// String returns the kind in the words of Explain.
func (k Kind) String() string {
	return [...]string{"map", "rows", "filter", "scan", "small product", "product"}[k-1]
}

// Part is one kernel of a plan. Its domain is what the threads of the
// kernel are spread over: the rows of one symbol with the elements of a row.
type Part struct {
	Kind   Kind
	Lead   int        // symbol of the domain
	Width  int64      // elements of a row of the domain
	Roots  []*ir.Node // what it stores, in the order of IDs
	Reads  []*ir.Node // inputs, and results of other parts
	Inside []*ir.Node // computed here, arguments first, the roots among them
	After  []*ir.Node // scalars that the last block computes of the folds of this part
	Cost   Cost
	// Name is the name of the kernel, Source its text, and Shape how it is launched. The caller of
	// New sets them, and no method of Plan reads them.
	Name, Source string
	Shape        Shape
}

// Shape is how a kernel is launched. Filters and scans have any number of blocks, which take tiles
// by a counter; they are fastest with as many blocks as the device runs at a time.
type Shape struct {
	Threads int // of a block
	Shared  int // bytes of dynamic shared memory of a block
	// Tile is the number of elements that a block of a filter or a scan computes at a time, the
	// number of rows of a block of small products, and 0 for other kinds.
	Tile int64
}

// Plan is how a program is executed: parts in an order in which all they read is there. New makes
// it; it is not changed afterwards, but for the names and texts of the parts.
type Plan struct {
	Graph *ir.Graph
	model cost.Model
	// Kept has the nodes whose results are in memory: the roots of all parts. A part computes the
	// other nodes that it needs itself, so that two parts may compute one node.
	Kept  map[*ir.Node]bool
	users map[*ir.Node][]*ir.Node
	Parts []*Part
	Notes []string // why a pair was not fused
	most  int      // operations of a part
}

// Limits of a part: arrays of a kernel and operations that one thread keeps in registers.
const (
	maxArrays = 18 // a launch has at most 64 arguments, up to 3 for each array
	// MaxInside is the most operations that New is asked for first.
	MaxInside = 160
	maxNotes  = 20
)

// New returns a plan of a graph for lengths of its symbols, -1 for those that are not known. The
// lengths only decide what is predicted to be faster: the plan is right for all others too. A part
// has at most most operations, unless it is of one. Unfused plans have a part for each node, which
// is what the benefit of fusion is measured against.
//
// An error says which node has no kernel and why. That depends on the limits of a kernel only, so
// that all errors are of the class of limits; it has no class yet, because that is the caller's.
func New(g *ir.Graph, m cost.Model, lengths []int64, unfused bool, most int) (*Plan, error) {
	l := &Plan{Graph: g, model: m, most: most, Kept: map[*ir.Node]bool{}, users: map[*ir.Node][]*ir.Node{}}
	reached := map[*ir.Node]bool{}
	var reach func(n *ir.Node)
	reach = func(n *ir.Node) {
		if reached[n] {
			return
		}
		reached[n] = true
		for _, a := range n.Args {
			reach(a)
			l.users[a] = append(l.users[a], n)
		}
	}
	for _, o := range g.Outputs {
		reach(o.Node)
	}
	for _, n := range g.Nodes {
		if reached[n] && !n.Op.Leaf() {
			l.Kept[n] = true
		}
		if reached[n] && n.Op == ir.OpGather && n.Args[0].Op != ir.OpInput {
			l.Kept[n.Args[0]] = true // an index as a table
		}
	}
	for _, o := range g.Outputs {
		l.Kept[o.Node] = true
	}
	owner := map[*ir.Node]*Part{}
	for _, n := range g.Nodes {
		if !l.Kept[n] {
			continue
		}
		part := &Part{Roots: []*ir.Node{n}}
		if why := l.shape(part, lengths); why != "" {
			return nil, fmt.Errorf("%v: %s", n, why)
		}
		owner[n] = part
		l.Parts = append(l.Parts, part)
	}
	if !unfused {
		l.inline(owner, lengths)
		l.merge(lengths)
	}
	l.order()
	for _, part := range l.Parts {
		part.Name = "expr_kernel" // until its text is known
	}
	return l, nil
}

// isOutput reports whether a node is a result of the program.
func (l *Plan) isOutput(n *ir.Node) bool {
	return slices.ContainsFunc(l.Graph.Outputs, func(o ir.Output) bool { return o.Node == n })
}

// inline computes nodes in the kernels that use them, the most useful ones first, as long as the
// model predicts a benefit. The benefit of a node is the predicted time of its kernel and of those
// that read it, less that of the readers when they compute it themselves. A choice changes the
// benefit of its neighbours only, which are considered again. owner has the part of each node that
// is kept.
func (l *Plan) inline(owner map[*ir.Node]*Part, lengths []int64) {
	type choice struct {
		benefit float64
		parts   []*Part // of the users, as they would be
		why     string
	}
	// users are the parts that read a node.
	users := func(n *ir.Node) (all []*Part) {
		for _, part := range l.Parts {
			if part != owner[n] && slices.Contains(part.Reads, n) {
				all = append(all, part)
			}
		}
		return all
	}
	consider := func(n *ir.Node) choice {
		now := users(n)
		if len(now) == 0 {
			return choice{why: "nothing reads it"}
		}
		l.Kept[n] = false
		defer func() { l.Kept[n] = true }()
		c := choice{benefit: owner[n].Cost.Seconds}
		for _, old := range now {
			part := &Part{Roots: old.Roots}
			if c.why = l.shape(part, lengths); c.why != "" {
				return choice{why: fmt.Sprintf("%v in %v: %s", n, old.Roots[0], c.why)}
			}
			c.benefit += old.Cost.Seconds - part.Cost.Seconds
			c.parts = append(c.parts, part)
		}
		if c.benefit <= 0 {
			return choice{
				why: fmt.Sprintf(
					"%v in %v: predicted %.1f us slower",
					n,
					now[0].Roots[0],
					-c.benefit*1e6,
				),
			}
		}
		return c
	}
	choices := map[*ir.Node]choice{}
	for n := range l.Kept {
		if (n.Op.Inlined() || n.Op == ir.OpRows || n.Op == ir.OpMatMul) && !n.Op.Leaf() && !l.isOutput(n) {
			choices[n] = consider(n)
		}
	}
	for {
		var best *ir.Node
		for n, c := range choices {
			if c.why == "" && (best == nil || c.benefit > choices[best].benefit ||
				c.benefit == choices[best].benefit && n.ID < best.ID) {
				best = n
			}
		}
		if best == nil {
			break
		}
		old, now := users(best), choices[best].parts
		gone := owner[best]
		l.Kept[best] = false
		delete(choices, best)
		delete(owner, best)
		l.Parts = slices.DeleteFunc(l.Parts, func(p *Part) bool { return p == gone })
		touched := map[*ir.Node]bool{}
		for i, was := range old {
			*was = *now[i]
			for _, r := range was.Roots {
				touched[r] = true
			}
			for _, r := range was.Reads {
				touched[r] = true
				for _, u := range users(r) {
					touched[u.Roots[0]] = true
				}
			}
		}
		for n := range touched {
			if _, candidate := choices[n]; candidate {
				choices[n] = consider(n)
			}
		}
	}
	for _, n := range l.Graph.Nodes {
		if c, found := choices[n]; found && c.why != "" && c.why != "nothing reads it" {
			l.note(c.why)
		}
	}
}

func (l *Plan) note(why string) {
	if len(l.Notes) < maxNotes {
		l.Notes = append(l.Notes, why)
	}
}

// merge makes one part of two that read the same, and gives scalars to the part whose folds they
// are made of. Two parts with a third one between them stay apart: the third one would wait for the
// part that waits for it.
func (l *Plan) merge(lengths []int64) {
	for again := true; again; {
		again = false
		before := l.reachable()
		for i := 0; i < len(l.Parts) && !again; i++ {
			for j := i + 1; j < len(l.Parts) && !again; j++ {
				a, b := l.Parts[i], l.Parts[j]
				if a.Kind != b.Kind &&
					(a.Kind != KindMap && a.Kind != KindRows || b.Kind != KindMap && b.Kind != KindRows) {
					continue
				}
				between := before[a][b] || before[b][a]
				if between && l.through(a, b, before) {
					continue
				}
				shared := slices.ContainsFunc(
					a.Reads,
					func(n *ir.Node) bool { return slices.Contains(b.Reads, n) },
				)
				if !shared && !between {
					continue
				}
				both := &Part{Roots: append(slices.Clone(a.Roots), b.Roots...)}
				slices.SortFunc(both.Roots, func(x, y *ir.Node) int { return x.ID - y.ID })
				why := l.shape(both, lengths)
				if why == "" && both.Cost.Seconds >= a.Cost.Seconds+b.Cost.Seconds {
					why = "predicted to be slower"
				}
				if why != "" {
					l.note(fmt.Sprintf("%v with %v: %s", a.Roots[0], b.Roots[0], why))
					continue
				}
				*a = *both
				l.Parts = slices.Delete(l.Parts, j, j+1)
				again = true
			}
		}
	}
}

// reachable returns for each part the parts that need it, directly or through others.
func (l *Plan) reachable() map[*Part]map[*Part]bool {
	all := map[*Part]map[*Part]bool{}
	var from func(p *Part) map[*Part]bool
	from = func(p *Part) map[*Part]bool {
		if all[p] != nil {
			return all[p]
		}
		all[p] = map[*Part]bool{}
		for _, user := range l.Parts {
			if user != p &&
				slices.ContainsFunc(
					user.Reads,
					func(n *ir.Node) bool { return slices.Contains(p.Roots, n) },
				) {
				all[p][user] = true
				for u := range from(user) {
					all[p][u] = true
				}
			}
		}
		return all[p]
	}
	for _, p := range l.Parts {
		from(p)
	}
	return all
}

// through reports whether a third part needs one of two and is needed by the other.
func (l *Plan) through(a, b *Part, before map[*Part]map[*Part]bool) bool {
	return slices.ContainsFunc(l.Parts, func(c *Part) bool {
		return c != a && c != b && (before[a][c] && before[c][b] || before[b][c] && before[c][a])
	})
}

// order sorts the parts so that each comes after those that it reads from. An index or a constant
// that is an output is stored by a part, too, and read from there.
func (l *Plan) order() {
	var sorted []*Part
	done := map[*ir.Node]bool{}
	for len(l.Parts) > 0 {
		i := slices.IndexFunc(l.Parts, func(p *Part) bool {
			return !slices.ContainsFunc(
				p.Reads,
				func(n *ir.Node) bool { return l.Kept[n] && n.Op != ir.OpInput && !done[n] },
			)
		})
		part := l.Parts[i]
		for _, r := range part.Roots {
			done[r] = true
		}
		sorted = append(sorted, part)
		l.Parts = slices.Delete(l.Parts, i, i+1)
	}
	l.Parts = sorted
}
