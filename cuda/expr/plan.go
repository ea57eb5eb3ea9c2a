package expr

import (
	"fmt"
	"slices"
)

// kind is the pattern of a kernel.
type kind uint8

const (
	kindMap     kind = iota + 1 // element-wise results, and folds of all elements
	kindRows                    // folds of rows, with element-wise results of them
	kindCompact                 // filtered values of one predicate
	kindScan
	kindSmall // small products of rows, with element-wise operations around them
	kindGemm
)

func (k kind) String() string {
	return [...]string{"map", "rows", "filter", "scan", "small product", "product"}[k-1]
}

// part is one kernel of a plan.
type part struct {
	kind   kind
	lead   int   // symbol of the domain
	width  int64 // elements of a row of the domain
	roots  []*node
	reads  []*node // inputs, and results of other parts
	inside []*node // computed here, arguments first, the roots among them
	after  []*node // scalars that the last block computes of the folds of this part
	cost   cost
	// name and source are the kernel's; compiled ones have more in run.go.
	name    string
	sources map[string]string // by the ending of the kernel's name
}

// plan is how a program is executed: parts in an order in which all they read is there.
type plan struct {
	p     *Program
	model Model
	kept  map[*node]bool // results of parts
	users map[*node][]*node
	parts []*part
	notes []string // why a pair was not fused
	most  int      // operations of a part
}

// Limits of a part: arrays of a kernel and operations that one thread keeps in registers.
const (
	maxArrays = 18 // a launch has at most 64 arguments, up to 3 for each array
	maxInside = 160
	maxNotes  = 20
)

// newPlan returns a plan of a program. Unfused plans have a part for each node, which is what the
// benefit of fusion is measured against.
func newPlan(p *Program, m Model, lengths []int64, unfused bool, most int) (*plan, error) {
	l := &plan{p: p, model: m, most: most, kept: map[*node]bool{}, users: map[*node][]*node{}}
	reached := map[*node]bool{}
	var reach func(n *node)
	reach = func(n *node) {
		if reached[n] {
			return
		}
		reached[n] = true
		for _, a := range n.args {
			reach(a)
			l.users[a] = append(l.users[a], n)
		}
	}
	for _, o := range p.outputs {
		reach(o.node)
	}
	for _, n := range p.nodes {
		if reached[n] && !n.op.leaf() {
			l.kept[n] = true
		}
	}
	for _, o := range p.outputs {
		l.kept[o.node] = true
	}
	owner := map[*node]*part{}
	for _, n := range p.nodes {
		if !l.kept[n] {
			continue
		}
		part := &part{roots: []*node{n}}
		if why := l.shape(part, lengths); why != "" {
			return nil, fmt.Errorf("expr: %v: %s: %w", n, why, ErrLimit)
		}
		owner[n] = part
		l.parts = append(l.parts, part)
	}
	if !unfused {
		l.inline(owner, lengths)
		l.merge(lengths)
	}
	l.order()
	for _, part := range l.parts {
		part.name = "expr_kernel" // until its text is known
	}
	return l, nil
}

// isOutput reports whether a node is a result of the program.
func (l *plan) isOutput(n *node) bool {
	return slices.ContainsFunc(l.p.outputs, func(o output) bool { return o.node == n })
}

// inline computes nodes in the kernels that use them, the most useful ones first, as long as the
// model predicts a benefit.
func (l *plan) inline(owner map[*node]*part, lengths []int64) {
	type choice struct {
		benefit float64
		parts   []*part // of the users, as they would be
		why     string
	}
	// users are the parts that read a node.
	users := func(n *node) (all []*part) {
		for _, part := range l.parts {
			if part != owner[n] && slices.Contains(part.reads, n) {
				all = append(all, part)
			}
		}
		return all
	}
	consider := func(n *node) choice {
		now := users(n)
		if len(now) == 0 {
			return choice{why: "nothing reads it"}
		}
		l.kept[n] = false
		defer func() { l.kept[n] = true }()
		c := choice{benefit: owner[n].cost.seconds}
		for _, old := range now {
			part := &part{roots: old.roots}
			if c.why = l.shape(part, lengths); c.why != "" {
				return choice{why: fmt.Sprintf("%v in %v: %s", n, old.roots[0], c.why)}
			}
			c.benefit += old.cost.seconds - part.cost.seconds
			c.parts = append(c.parts, part)
		}
		if c.benefit <= 0 {
			return choice{
				why: fmt.Sprintf(
					"%v in %v: predicted %.1f us slower",
					n,
					now[0].roots[0],
					-c.benefit*1e6,
				),
			}
		}
		return c
	}
	choices := map[*node]choice{}
	for n := range l.kept {
		if (n.op.inlined() || n.op == opRows || n.op == opMatMul) && !n.op.leaf() && !l.isOutput(n) {
			choices[n] = consider(n)
		}
	}
	for {
		var best *node
		for n, c := range choices {
			if c.why == "" && (best == nil || c.benefit > choices[best].benefit ||
				c.benefit == choices[best].benefit && n.id < best.id) {
				best = n
			}
		}
		if best == nil {
			break
		}
		old, now := users(best), choices[best].parts
		gone := owner[best]
		l.kept[best] = false
		delete(choices, best)
		delete(owner, best)
		l.parts = slices.DeleteFunc(l.parts, func(p *part) bool { return p == gone })
		touched := map[*node]bool{}
		for i, was := range old {
			*was = *now[i]
			for _, r := range was.roots {
				touched[r] = true
			}
			for _, r := range was.reads {
				touched[r] = true
				for _, u := range users(r) {
					touched[u.roots[0]] = true
				}
			}
		}
		for n := range touched {
			if _, candidate := choices[n]; candidate {
				choices[n] = consider(n)
			}
		}
	}
	for _, n := range l.p.nodes {
		if c, found := choices[n]; found && c.why != "" && c.why != "nothing reads it" {
			l.note(c.why)
		}
	}
}

func (l *plan) note(why string) {
	if len(l.notes) < maxNotes {
		l.notes = append(l.notes, why)
	}
}

// merge makes one part of two that read the same, and gives scalars to the part whose folds they
// are made of.
func (l *plan) merge(lengths []int64) {
	for again := true; again; {
		again = false
		before := l.reachable()
		for i := 0; i < len(l.parts) && !again; i++ {
			for j := i + 1; j < len(l.parts) && !again; j++ {
				a, b := l.parts[i], l.parts[j]
				if a.kind != b.kind &&
					(a.kind != kindMap && a.kind != kindRows || b.kind != kindMap && b.kind != kindRows) {
					continue
				}
				between := before[a][b] || before[b][a]
				if between && l.through(a, b, before) {
					continue
				}
				shared := slices.ContainsFunc(
					a.reads,
					func(n *node) bool { return slices.Contains(b.reads, n) },
				)
				if !shared && !between {
					continue
				}
				both := &part{roots: append(slices.Clone(a.roots), b.roots...)}
				slices.SortFunc(both.roots, func(x, y *node) int { return x.id - y.id })
				why := l.shape(both, lengths)
				if why == "" && both.cost.seconds >= a.cost.seconds+b.cost.seconds {
					why = "predicted to be slower"
				}
				if why != "" {
					l.note(fmt.Sprintf("%v with %v: %s", a.roots[0], b.roots[0], why))
					continue
				}
				*a = *both
				l.parts = slices.Delete(l.parts, j, j+1)
				again = true
			}
		}
	}
}

// reachable returns for each part the parts that need it, directly or through others.
func (l *plan) reachable() map[*part]map[*part]bool {
	all := map[*part]map[*part]bool{}
	var from func(p *part) map[*part]bool
	from = func(p *part) map[*part]bool {
		if all[p] != nil {
			return all[p]
		}
		all[p] = map[*part]bool{}
		for _, user := range l.parts {
			if user != p &&
				slices.ContainsFunc(
					user.reads,
					func(n *node) bool { return slices.Contains(p.roots, n) },
				) {
				all[p][user] = true
				for u := range from(user) {
					all[p][u] = true
				}
			}
		}
		return all[p]
	}
	for _, p := range l.parts {
		from(p)
	}
	return all
}

// through reports whether a third part needs one of two and is needed by the other.
func (l *plan) through(a, b *part, before map[*part]map[*part]bool) bool {
	return slices.ContainsFunc(l.parts, func(c *part) bool {
		return c != a && c != b && (before[a][c] && before[c][b] || before[b][c] && before[c][a])
	})
}

// order sorts the parts so that each comes after those that it reads from.
func (l *plan) order() {
	var sorted []*part
	done := map[*node]bool{}
	for len(l.parts) > 0 {
		i := slices.IndexFunc(l.parts, func(p *part) bool {
			return !slices.ContainsFunc(
				p.reads,
				func(n *node) bool { return l.kept[n] && !n.op.leaf() && !done[n] },
			)
		})
		part := l.parts[i]
		for _, r := range part.roots {
			done[r] = true
		}
		sorted = append(sorted, part)
		l.parts = slices.Delete(l.parts, i, i+1)
	}
	l.parts = sorted
}

// shape finds out what kind of kernel computes the roots of a part, and what it reads. It returns
// why there is none.
func (l *plan) shape(t *part, lengths []int64) (why string) {
	root := map[*node]bool{}
	for _, r := range t.roots {
		root[r] = true
	}
	seen := map[*node]bool{}
	folds, rowWidth, small := 0, int64(0), false
	var walk func(n *node, top bool) string
	walk = func(n *node, top bool) string {
		if seen[n] {
			return ""
		}
		outside := n.op == opInput || l.kept[n] && !root[n] // inputs may be roots, as copies
		if outside && !top {
			seen[n] = true
			t.reads = append(t.reads, n)
			return ""
		}
		seen[n] = true
		for i, a := range n.args {
			inside := a.op != opInput && (!l.kept[a] || root[a])
			switch {
			case !inside:
			case n.op == opGather && i == 0:
				return "the table of gather must be in memory"
			case n.op == opLength:
				return "a length is known when its filter has run"
			case a.op == opReduce && !n.scalar(), a.op == opScan, a.op == opCompact:
				return fmt.Sprintf("the result of %v is needed as a whole", a)
			case a.op == opMatMul && !smallProduct(a):
				return "products of this size are those of the library"
			case n.op == opMatMul && !smallProduct(n):
				return "the factor of a product must be in memory"
			case n.op == opMatMul && i == 1:
				return "the second factor of a product must be in memory"
			}
			if why := walk(a, false); why != "" {
				return why
			}
		}
		switch n.op {
		case opReduce:
			folds++
		case opRows:
			if w := n.args[0].width; rowWidth == 0 || rowWidth == w {
				rowWidth = w
			} else {
				return "rows of two widths are folded"
			}
		case opMatMul:
			small = true
		}
		t.inside = append(t.inside, n)
		return ""
	}
	for _, r := range t.roots {
		// A copy of an input is a root that is read and stored.
		if r.op == opInput {
			if !seen[r] {
				t.reads = append(t.reads, r)
				seen[r] = true
			}
			continue
		}
		if why := walk(r, true); why != "" {
			return why
		}
	}
	if why := l.kindOf(t, folds, rowWidth, small); why != "" {
		return why
	}
	slices.SortFunc(t.inside, func(x, y *node) int { return x.id - y.id })
	slices.SortFunc(t.reads, func(x, y *node) int { return x.id - y.id })
	if arrays := len(t.reads) + len(t.roots); arrays > maxArrays {
		return fmt.Sprintf("%d arrays, more than %d", arrays, maxArrays)
	}
	if len(t.inside) > l.most && len(t.inside) > 1 {
		return fmt.Sprintf("more than %d operations", l.most)
	}
	t.cost = l.model.predict(t, lengths)
	return ""
}

// kindOf sets the kind and the domain.
func (l *plan) kindOf(t *part, folds int, rowWidth int64, small bool) (why string) {
	first := t.roots[0]
	domain := func(n *node) (int, int64) {
		if n.op == opReduce || n.op == opScan || n.op == opRows {
			return n.args[0].lead, n.args[0].width
		}
		if n.op == opCompact {
			return n.args[1].lead, 1
		}
		return n.lead, n.width
	}
	t.lead, t.width = domain(first)
	single := func(k kind) string {
		t.kind = k
		if len(t.roots) > 1 || rowWidth > 0 || folds > 0 {
			return "a " + k.String() + " is a kernel of its own"
		}
		return ""
	}
	switch {
	case small:
		return l.kindSmall(t, folds, rowWidth)
	case first.op == opMatMul:
		return single(kindGemm)
	case slices.ContainsFunc(t.roots, func(n *node) bool { return n.op == opScan }):
		if small {
			return "a product before a scan"
		}
		return single(kindScan)
	case slices.ContainsFunc(t.roots, func(n *node) bool { return n.op == opCompact }):
		t.kind = kindCompact
		for _, r := range t.roots {
			if r.op != opCompact || r.args[1] != first.args[1] {
				return "a filter has one predicate"
			}
		}
		if len(t.roots) > 3 || rowWidth > 0 || folds > 0 {
			return "a filter has at most 3 values and no folds"
		}
		return ""
	case rowWidth > 0:
		t.kind, t.width = kindRows, rowWidth
		if folds > 0 {
			return "a fold of all elements of folded rows"
		}
		for _, r := range t.roots {
			if r.lead != t.lead || r.width != 1 && r.width != rowWidth {
				return "results of other shapes"
			}
		}
		for _, n := range t.inside {
			if n.width != 1 && n.width != rowWidth {
				return "rows of two widths"
			}
		}
		return ""
	}
	t.kind = kindMap
	return l.kindMap(t, folds, domain)
}

// kindMap checks a part of element-wise operations and folds, and finds the scalars that are made of
// its folds.
func (l *plan) kindMap(t *part, folds int, domain func(*node) (int, int64)) (why string) {
	made := map[*node]bool{} // of the part's folds
	for _, n := range t.inside {
		if n.op == opReduce {
			made[n] = true
			continue
		}
		for _, a := range n.args {
			made[n] = made[n] || made[a]
		}
	}
	t.lead = -1
	for _, r := range t.roots {
		if folds > 0 && r.scalar() && r.op != opReduce {
			if !made[r] && len(t.roots) > 1 {
				return "a scalar beside folds"
			}
			continue
		}
		lead, width := domain(r)
		if t.lead >= 0 && (t.lead != lead || t.width != width) {
			return "results of other shapes"
		}
		t.lead, t.width = lead, width
	}
	for _, n := range t.inside {
		if n.op == opReduce {
			if lead, width := domain(n); t.lead >= 0 && (t.lead != lead || t.width != width) {
				return "folds of other shapes"
			} else {
				t.lead, t.width = lead, width
			}
			if !slices.Contains(t.roots, n) {
				return "a fold that no part has" // a fold is always a root
			}
		}
	}
	for _, n := range t.inside {
		if made[n] && n.op != opReduce {
			if !n.scalar() {
				return "the result of a fold is needed as a whole"
			}
			t.after = append(t.after, n)
		}
	}
	if len(t.after) > 0 { // what the scalars need beside the folds are scalars too, computed twice at most
		var need func(n *node)
		extra := map[*node]bool{}
		need = func(n *node) {
			for _, a := range n.args {
				if !made[a] && !extra[a] && slices.Contains(t.inside, a) {
					extra[a] = true
					need(a)
				}
			}
		}
		for _, n := range slices.Clone(t.after) {
			need(n)
		}
		for n := range extra {
			t.after = append(t.after, n)
		}
		slices.SortFunc(t.after, func(x, y *node) int { return x.id - y.id })
	}
	return ""
}

// maxSmall is the most elements of a row that a thread keeps in registers.
const maxSmall = 64

// kindSmall checks a part with small products.
func (l *plan) kindSmall(t *part, folds int, rowWidth int64) (why string) {
	t.kind = kindSmall
	if folds > 0 || rowWidth > 0 {
		return "a fold beside a product"
	}
	weights, live := int64(0), int64(0)
	for _, n := range t.inside {
		if n.op == opMatMul {
			weights += n.args[1].width * n.args[0].width * 4
		}
		if n.lead != 0 {
			live = max(live, n.width)
		}
		if n.op == opGather || n.op == opScan || n.op == opCompact {
			return fmt.Sprintf("%v beside a product", n)
		}
	}
	for _, r := range t.roots {
		if r.lead != t.lead {
			return "results of other lengths"
		}
	}
	one := len(t.inside) == 1
	if weights > smallWeights {
		return "weights of more than 48 KiB"
	}
	if live > maxSmall && !one {
		return fmt.Sprintf("rows of more than %d elements", maxSmall)
	}
	t.width = 1
	return ""
}
