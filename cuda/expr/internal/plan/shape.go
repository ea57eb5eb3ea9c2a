package plan

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// shape finds out what kind of kernel computes the roots of a part, and what it reads. It returns
// why there is none. It sets all fields of the part except the roots, which the caller sets, and
// the name and the texts. It reads l.kept, so that inline changes kept for a moment to learn the
// cost of a choice.
func (l *Plan) shape(t *Part, lengths []int64) (why string) {
	l.rooted.empty()
	for _, r := range t.Roots {
		l.rooted.put(r)
	}
	l.seen.empty()
	folds, rowWidth, small := 0, int64(0), false
	var walk func(n *ir.Node, top bool) string
	walk = func(n *ir.Node, top bool) string {
		if l.seen.has(n) {
			return ""
		}
		outside := n.Op == ir.OpInput || l.kept[n.ID] && !l.rooted.has(n) // inputs may be roots, as copies
		if outside && !top {
			l.seen.put(n)
			t.Reads = append(t.Reads, n)
			return ""
		}
		l.seen.put(n)
		for i, a := range n.Args {
			inside := a.Op != ir.OpInput && (!l.kept[a.ID] || l.rooted.has(a))
			switch {
			case !inside:
			case n.Op == ir.OpGather && i == 0:
				return "the table of gather must be in memory"
			case n.Op == ir.OpLength:
				return "a length is known when its filter has run"
			case a.Op == ir.OpReduce && !n.Scalar(), a.Op == ir.OpScan, a.Op == ir.OpCompact, a.Op.SumsRows():
				return fmt.Sprintf("the result of %v is needed as a whole", a)
			case a.Op == ir.OpMatMul && !a.SmallProduct():
				return "the library makes products of this size"
			case n.Op == ir.OpMatMul && !n.SmallProduct(), n.Op == ir.OpOuter && !n.SmallOuter():
				return "the factor of a product must be in memory"
			case n.Op == ir.OpMatMul && i == 1:
				return "the second factor of a product must be in memory"
			}
			if why := walk(a, false); why != "" {
				return why
			}
		}
		switch n.Op {
		case ir.OpReduce:
			folds++
		case ir.OpRows:
			if w := n.Args[0].Width; rowWidth == 0 || rowWidth == w {
				rowWidth = w
			} else {
				return "rows of two widths are folded"
			}
		case ir.OpMatMul:
			small = small || n.SmallProduct()
		}
		t.Inside = append(t.Inside, n)
		return ""
	}
	for _, r := range t.Roots {
		// A copy of an input is a root that is read and stored.
		if r.Op == ir.OpInput {
			if !l.seen.has(r) {
				t.Reads = append(t.Reads, r)
				l.seen.put(r)
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
	slices.SortFunc(t.Inside, func(x, y *ir.Node) int { return x.ID - y.ID })
	slices.SortFunc(t.Reads, func(x, y *ir.Node) int { return x.ID - y.ID })
	if arrays := len(t.Reads) + len(t.Roots); arrays > maxArrays {
		return fmt.Sprintf("%d arrays, more than %d", arrays, maxArrays)
	}
	if len(t.Inside) > l.most && len(t.Inside) > 1 {
		return fmt.Sprintf("more than %d operations", l.most)
	}
	t.Cost = predict(&l.model, t, lengths)
	return ""
}

// kindOf sets the kind and the domain, by the most special operation among the roots: the frame of
// a kind has no place for the operations of another one. It returns why no kind fits.
func (l *Plan) kindOf(t *Part, folds int, rowWidth int64, small bool) (why string) {
	first := t.Roots[0]
	domain := func(n *ir.Node) (int, int64) {
		if n.Op == ir.OpReduce || n.Op == ir.OpScan || n.Op == ir.OpRows {
			return n.Args[0].Lead, n.Args[0].Width
		}
		if n.Op == ir.OpCompact {
			return n.Args[1].Lead, 1
		}
		return n.Lead, n.Width
	}
	t.Lead, t.Width = domain(first)
	single := func(k Kind) string {
		t.Kind = k
		if len(t.Roots) > 1 || rowWidth > 0 || folds > 0 {
			return "a " + k.String() + " is a kernel of its own"
		}
		return ""
	}
	switch {
	case slices.ContainsFunc(t.Roots, func(n *ir.Node) bool { return n.Op.SumsRows() }):
		if first.Op == ir.OpOuter && !first.SmallOuter() {
			t.Lead = first.Args[0].Lead
			return single(KindGemm)
		}
		return l.kindSums(t, folds, rowWidth)
	case small:
		return l.kindSmall(t, folds, rowWidth)
	case first.Op == ir.OpMatMul:
		return single(KindGemm)
	case slices.ContainsFunc(t.Roots, func(n *ir.Node) bool { return n.Op == ir.OpScan }):
		return single(KindScan)
	case slices.ContainsFunc(t.Roots, func(n *ir.Node) bool { return n.Op == ir.OpCompact }):
		t.Kind = KindCompact
		for _, r := range t.Roots {
			if r.Op != ir.OpCompact || r.Args[1] != first.Args[1] {
				return "a filter has one predicate"
			}
		}
		if len(t.Roots) > 3 || rowWidth > 0 || folds > 0 {
			return "a filter has at most 3 values and no folds"
		}
		return ""
	case rowWidth > 0:
		t.Kind, t.Width = KindRows, rowWidth
		if folds > 0 {
			return "a fold of all elements of folded rows"
		}
		for _, r := range t.Roots {
			if r.Lead != t.Lead || r.Width != 1 && r.Width != rowWidth {
				return "results of other shapes"
			}
		}
		for _, n := range t.Inside {
			if n.Width != 1 && n.Width != rowWidth {
				return "rows of two widths"
			}
		}
		return ""
	}
	t.Kind = KindMap
	return l.kindMap(t, folds, domain)
}

// kindMap checks a part of element-wise operations and folds, and finds the scalars that are made
// of its folds.
func (l *Plan) kindMap(t *Part, folds int, domain func(*ir.Node) (int, int64)) (why string) {
	made := &l.made // of the part's folds
	made.empty()
	for _, n := range t.Inside {
		if n.Op == ir.OpReduce || slices.ContainsFunc(n.Args, made.has) {
			made.put(n)
		}
	}
	t.Lead = -1
	for _, r := range t.Roots {
		if folds > 0 && r.Scalar() && r.Op != ir.OpReduce {
			if !made.has(r) && len(t.Roots) > 1 {
				return "a scalar beside folds"
			}
			continue
		}
		lead, width := domain(r)
		if t.Lead >= 0 && (t.Lead != lead || t.Width != width) {
			return "results of other shapes"
		}
		t.Lead, t.Width = lead, width
	}
	for _, n := range t.Inside {
		if n.Op == ir.OpReduce {
			if lead, width := domain(n); t.Lead >= 0 && (t.Lead != lead || t.Width != width) {
				return "folds of other shapes"
			} else {
				t.Lead, t.Width = lead, width
			}
			if !slices.Contains(t.Roots, n) {
				return "a fold that no part has" // a fold is always a root
			}
		}
	}
	for _, n := range t.Inside {
		if made.has(n) && n.Op != ir.OpReduce {
			if !n.Scalar() {
				return "the result of a fold is needed as a whole"
			}
			t.After = append(t.After, n)
		}
	}
	if len(t.After) > 0 { // the scalars need only folds and other scalars, which are computed twice at most
		var need func(n *ir.Node)
		extra := map[*ir.Node]bool{}
		need = func(n *ir.Node) {
			for _, a := range n.Args {
				if !made.has(a) && !extra[a] && slices.Contains(t.Inside, a) {
					extra[a] = true
					need(a)
				}
			}
		}
		for _, n := range slices.Clone(t.After) {
			need(n)
		}
		for n := range extra {
			t.After = append(t.After, n)
		}
		slices.SortFunc(t.After, func(x, y *ir.Node) int { return x.ID - y.ID })
	}
	return ""
}

// smallWeights is the maximum of bytes of all matrices of a kernel of small products.
const smallWeights = 48 << 10

// maxSmall is the maximum of elements of a row that a thread keeps in registers.
const maxSmall = 64

func (l *Plan) kindSmall(t *Part, folds int, rowWidth int64) (why string) {
	t.Kind = KindSmall
	live, why := l.small(t, folds, rowWidth)
	if why != "" {
		return why
	}
	for _, r := range t.Roots {
		if r.Lead != t.Lead {
			return "results of other lengths"
		}
	}
	if live > maxSmall && len(t.Inside) > 1 {
		return fmt.Sprintf("rows of more than %d elements", maxSmall)
	}
	return ""
}

// small checks a part whose threads have a row each, and returns the elements of the longest row.
func (l *Plan) small(t *Part, folds int, rowWidth int64) (live int64, why string) {
	t.Width = 1
	if folds > 0 || rowWidth > 0 {
		return 0, "a fold beside a product"
	}
	weights := int64(0)
	for _, n := range t.Inside {
		switch n.Op {
		case ir.OpMatMul:
			weights += n.Width * n.Args[0].Width * 4
		case ir.OpGather, ir.OpScan, ir.OpCompact:
			return 0, fmt.Sprintf("%v beside a product", n)
		}
		if n.Lead != 0 && !n.Op.SumsRows() {
			live = max(live, n.Width)
		}
	}
	if weights > smallWeights {
		return live, "weights of more than 48 KiB"
	}
	return live, ""
}

// maxStaged is the maximum of columns of all operands of a kernel of sums. A block has a run of
// rows of them in shared memory, and a multiprocessor has room for two such blocks.
const maxStaged = 192

// maxSummed is the maximum of elements of x' g of a kernel, which are in registers: 64 of a thread.
const maxSummed = maxSmall * maxSmall

// kindSums checks a part of sums of rows: several of one domain, or one by index.
func (l *Plan) kindSums(t *Part, folds int, rowWidth int64) (why string) {
	first := t.Roots[0]
	t.Lead, t.Width = first.Args[0].Lead, 1
	wide := false
	for _, r := range t.Roots {
		if !r.Op.SumsRows() || r.Args[0].Lead != t.Lead || (r.Op == ir.OpScatter) != (first.Op == ir.OpScatter) {
			return "results that are not sums of the same rows"
		}
		wide = wide || r.Op == ir.OpColumns && r.Width > maxSmall
	}
	if first.Op == ir.OpScatter {
		t.Kind = KindScatter
		if len(t.Roots) > 1 || folds > 0 || rowWidth > 0 {
			return "a sum by index is a kernel of its own"
		}
		return l.elementwise(t, 1)
	}
	if wide {
		t.Kind, t.Width = KindColumns, first.Width
		if folds > 0 || rowWidth > 0 {
			return "a fold beside sums of rows"
		}
		for _, r := range t.Roots {
			if r.Op != ir.OpColumns || r.Width != t.Width {
				return "sums of other shapes"
			}
		}
		return l.elementwise(t, t.Width)
	}
	t.Kind = KindSums
	live, why := l.small(t, folds, rowWidth)
	if why != "" {
		return why
	}
	for _, n := range t.Reads {
		if n.Lead == t.Lead {
			live = max(live, n.Width)
		}
	}
	if live > maxSmall {
		return fmt.Sprintf("rows of more than %d elements", maxSmall)
	}
	staged, summed := int64(0), int64(0)
	for _, n := range t.Staged() {
		staged += n.Width
	}
	for _, r := range t.Roots {
		if r.Op == ir.OpOuter {
			summed += r.Args[0].Width * r.Width
		}
	}
	if staged > maxStaged || summed > maxSummed {
		return fmt.Sprintf("%d columns of %d sums: use at most %d and %d", staged, summed, maxStaged, maxSummed)
	}
	return ""
}

// elementwise returns why the values of a part are not all made of its domain, element by element.
func (l *Plan) elementwise(t *Part, width int64) (why string) {
	for _, n := range t.Inside {
		switch {
		case n.Op.SumsRows():
		case n.Op == ir.OpMatMul || n.Op == ir.OpGather || n.Width != 1 && n.Width != width:
			return fmt.Sprintf("%v beside sums of rows", n)
		}
	}
	return ""
}

// Staged returns the operands of the sums of a part, each once.
func (t *Part) Staged() (all []*ir.Node) {
	for _, r := range t.Roots {
		for _, a := range r.Args {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// Gathers reports whether the part gathers from what it reads.
func (t *Part) Gathers(n *ir.Node) bool {
	return slices.ContainsFunc(t.Inside, func(u *ir.Node) bool { return u.Op == ir.OpGather && u.Args[0] == n })
}

// Folds returns the roots that fold all elements, whose partial results are in the scratch memory
// of a launch in this order.
func (t *Part) Folds() (all []*ir.Node) {
	for _, r := range t.Roots {
		if r.Op == ir.OpReduce {
			all = append(all, r)
		}
	}
	return all
}
