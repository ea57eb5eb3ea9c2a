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
	KindSums                    // sums of rows: x' g and columns up to 64 wide, of rows with small products
	KindColumns                 // sums of wider columns
	KindScatter                 // sums by index
)

// String returns the kind in the words of Explain.
func (k Kind) String() string {
	return [...]string{
		"map", "rows", "filter", "scan", "small product", "product", "sums", "wide sums", "sums by index",
	}[k-1]
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
	// Sums is the number of elements of all sums of rows of the part, 0 for other kinds.
	Sums int64
}

// Plan is how a program is executed: parts in an order in which all they read is there. New makes
// it; it is not changed afterwards, but for the names and texts of the parts.
type Plan struct {
	Graph *ir.Graph
	model Model
	kept  []bool // by the ID of a node
	Parts []*Part
	Notes []string // why a pair was not fused
	most  int      // operations of a part
	// rooted, seen and made are scratch memory of shape, by the ID of a node.
	rooted, seen, made marks
}

// Kept reports whether the result of a node is in memory: whether it is a root of a part. A part
// computes the other nodes that it needs itself, so that two parts may compute one node. A plan
// that New has not made keeps none.
func (l *Plan) Kept(n *ir.Node) bool { return n.ID < len(l.kept) && l.kept[n.ID] }

// marks is a set of nodes that is emptied in constant time. The zero value is of no use.
type marks struct {
	of  []uint32 // by the ID of a node: the number of the set that it was put in last
	now uint32   // the number of the present set, from 1
}

func newMarks(nodes int) marks { return marks{of: make([]uint32, nodes), now: 1} }

func (m *marks) empty()              { m.now++ }
func (m *marks) put(n *ir.Node)      { m.of[n.ID] = m.now }
func (m *marks) has(n *ir.Node) bool { return m.of[n.ID] == m.now }

// Limits of a part: arrays of a kernel and operations that one thread keeps in registers.
const (
	maxArrays = 18 // a launch has at most 64 arguments, up to 3 for each array
	// MaxInside is the maximum of operations in the first call of New.
	MaxInside = 160
	maxNotes  = 20
)

// New returns a plan of a graph for the lengths of its symbols, -1 for unknown lengths. The lengths
// only decide what is predicted to be faster: the plan is right for all others too. A part has at
// most most operations, unless it is of one. Unfused plans have a part for each node, which is what
// the benefit of fusion is measured against.
//
// An error says which node has no kernel and why. That depends on the limits of a kernel only, so
// that all errors are of the class of limits; it has no class yet, because that is the caller's.
func New(g *ir.Graph, m Model, lengths []int64, unfused bool, most int) (*Plan, error) {
	nodes := len(g.Nodes)
	l := &Plan{
		Graph: g, model: m, most: most, kept: make([]bool, nodes),
		rooted: newMarks(nodes), seen: newMarks(nodes), made: newMarks(nodes),
	}
	reached := make([]bool, nodes)
	var reach func(n *ir.Node)
	reach = func(n *ir.Node) {
		if reached[n.ID] {
			return
		}
		reached[n.ID] = true
		for _, a := range n.Args {
			reach(a)
		}
	}
	for _, o := range g.Outputs {
		reach(o.Node)
	}
	for _, n := range g.Nodes {
		if reached[n.ID] && !n.Op.Leaf() {
			l.kept[n.ID] = true
		}
		if reached[n.ID] && n.Op == ir.OpGather && n.Args[0].Op != ir.OpInput {
			l.kept[n.Args[0].ID] = true // an index as a table
		}
	}
	for _, o := range g.Outputs {
		l.kept[o.Node.ID] = true
	}
	owner := make([]*Part, nodes)
	for _, n := range g.Nodes {
		if !l.kept[n.ID] {
			continue
		}
		part := &Part{Roots: []*ir.Node{n}}
		if why := l.shape(part, lengths); why != "" {
			return nil, fmt.Errorf("%v: %s", n, why)
		}
		owner[n.ID] = part
		l.Parts = append(l.Parts, part)
	}
	if !unfused {
		l.together(owner, lengths)
		l.inline(owner, lengths)
		l.merge(lengths)
	}
	l.order()
	for _, part := range l.Parts {
		part.Name = "expr_kernel" // until its text is known
	}
	return l, nil
}

// together makes one part of sums of the same rows that do not wait for each other, before nodes
// move into their readers: the sums of a backward pass share most of what they are made of.
func (l *Plan) together(owner []*Part, lengths []int64) {
	for i := 0; i < len(l.Parts); i++ {
		a := l.Parts[i]
		for j := i + 1; a.Kind == KindSums && j < len(l.Parts); j++ {
			b := l.Parts[j]
			if b.Kind != KindSums || b.Lead != a.Lead {
				continue
			}
			before := l.reachable()
			both := &Part{Roots: append(slices.Clone(a.Roots), b.Roots...)}
			slices.SortFunc(both.Roots, func(x, y *ir.Node) int { return x.ID - y.ID })
			if before[a][b] || before[b][a] || l.shape(both, lengths) != "" {
				continue
			}
			*a = *both
			for _, n := range b.Roots {
				owner[n.ID] = a
			}
			l.Parts = slices.Delete(l.Parts, j, j+1)
			j--
		}
	}
}

func (l *Plan) isOutput(n *ir.Node) bool {
	return slices.ContainsFunc(l.Graph.Outputs, func(o ir.Output) bool { return o.Node == n })
}

// choice is what becomes of the parts that read a node if they compute it themselves.
type choice struct {
	benefit float64 // seconds; it is positive if why is empty
	parts   []*Part // the readers of the node, as they would be
	why     string  // the reason against it
}

type inlining struct {
	*Plan
	lengths []int64
	owner   []*Part   // of each kept node, by its ID
	readers [][]*Part // of each node, by its ID
	choices []*choice // of the nodes that may be computed by their readers, by ID
}

// inline computes nodes in the kernels that use them, the most useful ones first, as long as the
// model predicts a benefit. The benefit of a node is the predicted time of its kernel and its
// readers, minus the time of the readers if they compute it themselves. A choice changes only the
// benefit of neighbours, which are considered again. owner has the part of each kept node.
func (l *Plan) inline(owner []*Part, lengths []int64) {
	nodes := l.Graph.Nodes
	s := &inlining{
		Plan: l, lengths: lengths, owner: owner,
		readers: make([][]*Part, len(nodes)), choices: make([]*choice, len(nodes)),
	}
	for _, part := range l.Parts {
		s.read(part)
	}
	for _, n := range nodes {
		if l.kept[n.ID] && (n.Op.Inlined() || n.Op == ir.OpRows || n.Op == ir.OpMatMul) && !n.Op.Leaf() &&
			!l.isOutput(n) {
			s.choices[n.ID] = s.consider(n)
		}
	}
	for {
		var best *ir.Node
		for _, n := range nodes {
			c := s.choices[n.ID]
			if c != nil && c.why == "" && (best == nil || c.benefit > s.choices[best.ID].benefit) {
				best = n
			}
		}
		if best == nil {
			break
		}
		s.choose(best)
	}
	for _, n := range nodes {
		if c := s.choices[n.ID]; c != nil && c.why != "" && c.why != unread {
			l.note(c.why)
		}
	}
}

// unread is the reason of a node that no part reads.
const unread = "nothing reads it"

// read adds a part to the readers of what it reads.
func (s *inlining) read(part *Part) {
	for _, n := range part.Reads {
		s.readers[n.ID] = append(s.readers[n.ID], part)
	}
}

// unread removes a part from the readers of what it reads.
func (s *inlining) unread(part *Part) {
	for _, n := range part.Reads {
		all := s.readers[n.ID]
		i := slices.Index(all, part)
		s.readers[n.ID] = slices.Delete(all, i, i+1)
	}
}

// users returns the parts that read a node, but its own, in the order of their roots: sums of their
// times depend on it. The slice is the caller's.
func (s *inlining) users(n *ir.Node) []*Part {
	all := slices.DeleteFunc(slices.Clone(s.readers[n.ID]), func(p *Part) bool { return p == s.owner[n.ID] })
	slices.SortFunc(all, func(a, b *Part) int { return a.Roots[0].ID - b.Roots[0].ID })
	return all
}

// consider predicts what it saves that the readers of a node compute it themselves.
func (s *inlining) consider(n *ir.Node) *choice {
	now := s.users(n)
	if len(now) == 0 {
		return &choice{why: unread}
	}
	s.kept[n.ID] = false
	defer func() { s.kept[n.ID] = true }()
	c := choice{benefit: s.owner[n.ID].Cost.Seconds}
	for _, old := range now {
		part := &Part{Roots: old.Roots}
		if why := s.shape(part, s.lengths); why != "" {
			return &choice{why: fmt.Sprintf("%v in %v: %s", n, old.Roots[0], why)}
		}
		c.benefit += old.Cost.Seconds - part.Cost.Seconds
		c.parts = append(c.parts, part)
	}
	if c.benefit <= 0 {
		slower := -c.benefit * 1e6
		return &choice{why: fmt.Sprintf("%v in %v: predicted %.1f us slower", n, now[0].Roots[0], slower)}
	}
	return &c
}

// choose has the readers of a node compute it. It considers again what the changed parts store and
// read.
func (s *inlining) choose(best *ir.Node) {
	old, now := s.users(best), s.choices[best.ID].parts
	gone := s.owner[best.ID]
	s.kept[best.ID] = false
	s.choices[best.ID], s.owner[best.ID] = nil, nil
	s.unread(gone)
	s.Parts = slices.DeleteFunc(s.Parts, func(p *Part) bool { return p == gone })
	touched := make([]bool, len(s.choices))
	for i, was := range old {
		s.unread(was)
		*was = *now[i]
		s.read(was)
		for _, n := range was.Roots {
			touched[n.ID] = true
		}
		for _, n := range was.Reads {
			touched[n.ID] = true
		}
	}
	for id, again := range touched {
		if again && s.choices[id] != nil {
			s.choices[id] = s.consider(s.Graph.Nodes[id])
		}
	}
}

func (l *Plan) note(why string) {
	if len(l.Notes) < maxNotes {
		l.Notes = append(l.Notes, why)
	}
}

// merge makes one part of two that read the same, and gives scalars to the part whose folds they
// are made of. Two parts with a third part between them stay apart: the third part would wait for
// the part that waits for it.
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
				shared := slices.ContainsFunc(a.Reads,
					func(n *ir.Node) bool { return slices.Contains(b.Reads, n) })
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

// order sorts the parts topologically: a part comes after the parts that it reads. An index or a
// constant that is an output is stored by a part, too, and read from there.
func (l *Plan) order() {
	var sorted []*Part
	done := map[*ir.Node]bool{}
	for len(l.Parts) > 0 {
		i := slices.IndexFunc(l.Parts, func(p *Part) bool {
			return !slices.ContainsFunc(p.Reads,
				func(n *ir.Node) bool { return l.kept[n.ID] && n.Op != ir.OpInput && !done[n] })
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
