package expr

import (
	"context"
	wire "encoding/binary"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/interpret"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Partial is the result of a fold over some agents: the number of elements for which the condition
// holds, and what they fold to. Bits has a float64 if FoldText.Float reports true and the fold is
// no mean of integers, and otherwise an integer of 64 bits, with a sign for types with a sign.
type Partial struct{ N, Bits uint64 }

// canonical is the form of all NaN.
const canonical = 0x7ff8000000000000

// identity returns the result of no element.
func identity(c codegen.Class) Partial {
	switch c {
	case codegen.MinFloat:
		return Partial{Bits: math.Float64bits(math.Inf(1))}
	case codegen.MaxFloat:
		return Partial{Bits: math.Float64bits(math.Inf(-1))}
	case codegen.MinInt:
		return Partial{Bits: math.MaxInt64}
	case codegen.MaxInt:
		return Partial{Bits: 1 << 63}
	}
	return Partial{}
}

// Merge folds the results of two sets of agents. The first set has the smaller ids. The order of
// merges of float sums decides their last bits.
func (f FoldText) Merge(a, b Partial) Partial {
	return Partial{a.N + b.N, merge(f.fold.Class, a.Bits, b.Bits)}
}

func merge(c codegen.Class, a, b uint64) uint64 {
	x, y := math.Float64frombits(a), math.Float64frombits(b)
	switch c {
	case codegen.SumFloat:
		if sum := x + y; sum == sum {
			return math.Float64bits(sum)
		}
		return canonical
	case codegen.MinFloat: // as the operation: a NaN wins, and of equal ones the first
		if x != x || y != y {
			return canonical
		}
		if y < x {
			return b
		}
		return a
	case codegen.MaxFloat:
		if x != x || y != y {
			return canonical
		}
		if y > x {
			return b
		}
		return a
	case codegen.MinInt:
		return uint64(min(int64(a), int64(b)))
	case codegen.MaxInt:
		return uint64(max(int64(a), int64(b)))
	}
	return a + b
}

// element returns the bits of an element in the form of a sum.
func element(c codegen.Class, t ir.Type, v uint32) uint64 {
	if t.Float() && c <= codegen.MaxFloat {
		f := float64(math.Float32frombits(v))
		if f != f {
			return canonical
		}
		return math.Float64bits(f)
	}
	switch {
	case c == codegen.Count && t.Float():
		if math.Float32frombits(v) != 0 {
			return 1
		}
		return 0
	case c == codegen.Count:
		return uint64(min(v, 1))
	case t == ir.I32:
		return uint64(int64(int32(v)))
	}
	return uint64(v)
}

// PageVar is a state variable that the kernels of PageKernel read.
type PageVar = codegen.PageVar

// PageLayout is where those kernels find the variables in a page.
type PageLayout = codegen.PageLayout

// The constants of launches; see PageKernel.
const (
	PageBlocks = codegen.PageBlocks
	PageResume = codegen.PageResume
	PageFinish = codegen.PageFinish
	PageAbsent = codegen.Absent
)

// PageThreads returns how many threads fold a group of n agents.
func PageThreads(agents int) int { return codegen.GroupLanes(agents) }

// PageKernel compiles the kernel that folds agents in pages of a layout: into one result, a result
// for each vote, or a result for each group. codegen.Pages has its parameters. A device that
// compiles nothing is a device.ErrNotSupported; PageSums computes the same bits there.
func (f *Folds) PageKernel(dev device.Device, l PageLayout, votes int, group bool) (device.Kernel, error) {
	return compileNamed(dev, "x_pages", codegen.Pages(&f.p.g, l, f.folds(), votes, group))
}

func (f *Folds) folds() []codegen.PageFold {
	all := make([]codegen.PageFold, len(f.All))
	for i, s := range f.All {
		all[i] = s.fold
	}
	return all
}

// PageSums folds agents on the cores of the host, page after page in their order. It has the bits
// of the kernels. One goroutine uses it.
type PageSums struct {
	f      *Folds
	l      PageLayout
	votes  int
	g      ir.Graph // with outputs of all values and conditions
	places [][2]int // by fold: the outputs of the value and the condition, -1 for none
	lanes  []Partial
	groups []Partial // by group
	group  bool
}

// NewPageSums returns sums of no agent.
func (f *Folds) NewPageSums(l PageLayout, votes int, group bool) *PageSums {
	s := &PageSums{f: f, l: l, votes: votes, g: f.p.g, group: group}
	s.g.Outputs = nil
	for _, o := range f.All {
		place := [2]int{len(s.g.Outputs), -1}
		s.g.Outputs = append(s.g.Outputs, ir.Output{Node: o.fold.Value})
		if o.fold.Keep != nil {
			place[1] = len(s.g.Outputs)
			s.g.Outputs = append(s.g.Outputs, ir.Output{Node: o.fold.Keep})
		}
		s.places = append(s.places, place)
	}
	if !group {
		s.lanes = make([]Partial, len(f.All)*max(votes, 1)*codegen.PageBlocks*codegen.BlockThreads)
		for i := range s.lanes {
			s.lanes[i] = identity(f.All[i%len(f.All)].fold.Class)
		}
	}
	return s
}

// Add folds the n agents of a page, whose variables are arrays with n rows. ballots has the stored
// vote of each agent for folds by vote. By group, the agents are whole groups.
func (s *PageSums) Add(ctx context.Context, page, n int, in map[string]Array, ballots []byte) error {
	inputs := make([][]byte, len(s.g.Inputs))
	for i, input := range s.g.Inputs {
		if inputs[i] = in[input.Name].Data; int64(len(inputs[i])) < int64(n)*input.Node.Width*input.Node.Type.Bytes() {
			return fmt.Errorf("expr: variable %q: %d bytes for %d agents: %w", input.Name, len(inputs[i]), n, ErrArgs)
		}
	}
	lengths := make([]int64, len(s.g.Symbols))
	lengths[0], lengths[ir.FreeLength] = 1, int64(n)
	outputs, err := interpret.Run(ctx, &s.g, lengths, inputs)
	if err != nil {
		return fmt.Errorf("expr: interpret: %w", err)
	}
	for k, o := range s.f.All {
		value := cells{o.fold.Value, outputs[s.places[k][0]]}
		keep := cells{}
		if s.places[k][1] >= 0 {
			keep = cells{o.fold.Keep, outputs[s.places[k][1]]}
		}
		if s.group {
			s.addGroups(k, n, value, keep)
			continue
		}
		s.addAll(k, page, n, value, keep, ballots)
	}
	return nil
}

type cells struct {
	n    *ir.Node
	data []byte
}

// at returns element c of agent i, as it is in a register.
func (v cells) at(i int, c int64) uint32 {
	e := int64(0)
	if v.n.Lead != 0 {
		e = int64(i) * v.n.Width
	}
	if v.n.Width > 1 {
		e += c
	}
	switch v.n.Type {
	case ir.U8, ir.Bool:
		return uint32(v.data[e])
	case ir.BF16:
		return uint32(device.Of[uint16](v.data)[e]) << 16
	}
	return device.Of[uint32](v.data)[e]
}

// add folds the elements of an agent into a sum.
func (s *PageSums) add(k int, p *Partial, i int, value, keep cells) {
	o := &s.f.All[k]
	for c := range o.Width {
		if keep.n != nil && keep.at(i, c) == 0 {
			continue
		}
		p.N++
		p.Bits = merge(o.fold.Class, p.Bits, element(o.fold.Class, value.n.Type, value.at(i, c)))
	}
}

func (s *PageSums) addAll(k, page, n int, value, keep cells, ballots []byte) {
	per := s.l.Agents * s.l.Slots
	chunks := (per + codegen.PageChunk - 1) / codegen.PageChunk
	nodes, wide := max(s.votes, 1), codegen.WideRows(&s.g, s.l)
	for i := range n {
		node := 0
		if s.votes > 0 {
			if node = int(ballots[i]) - 1; node < 0 || node >= s.votes {
				continue
			}
		}
		block := (page*chunks + i/codegen.PageChunk) % codegen.PageBlocks
		lane := block*codegen.BlockThreads + codegen.PageLane(i, wide)
		s.add(k, &s.lanes[(lane*nodes+node)*len(s.f.All)+k], i, value, keep)
	}
}

func (s *PageSums) addGroups(k, n int, value, keep cells) {
	lanes := make([]Partial, codegen.GroupLanes(s.l.Agents))
	if k == 0 {
		for range n / s.l.Agents * len(s.f.All) {
			s.groups = append(s.groups, Partial{})
		}
	}
	first := len(s.groups)/len(s.f.All) - n/s.l.Agents
	for g := range n / s.l.Agents {
		for i := range lanes {
			lanes[i] = identity(s.f.All[k].fold.Class)
		}
		for a := range s.l.Agents {
			s.add(k, &lanes[a%len(lanes)], g*s.l.Agents+a, value, keep)
		}
		s.groups[(first+g)*len(s.f.All)+k] = s.tree(k, lanes)
	}
}

// tree folds in halves. It changes lanes.
func (s *PageSums) tree(k int, lanes []Partial) Partial {
	for h := len(lanes) / 2; h > 0; h /= 2 {
		for i := range h {
			lanes[i] = s.f.All[k].Merge(lanes[i], lanes[i+h])
		}
	}
	return lanes[0]
}

// Results returns the results of all folds of the first node, then of the second one, and so on.
// Without a vote or groups there is one node.
func (s *PageSums) Results() []Partial {
	if s.group {
		return s.groups
	}
	nodes := max(s.votes, 1)
	blocks := make([]uint64, 0, 2*nodes*len(s.f.All)*codegen.PageBlocks)
	lanes := make([]Partial, codegen.BlockThreads)
	for node := range nodes {
		for k := range s.f.All {
			results := make([]Partial, codegen.PageBlocks)
			for block := range results {
				for t := range lanes {
					lanes[t] = s.lanes[((block*codegen.BlockThreads+t)*nodes+node)*len(s.f.All)+k]
				}
				results[block] = s.tree(k, lanes)
				blocks = append(blocks, results[block].N)
			}
			for _, r := range results {
				blocks = append(blocks, r.Bits)
			}
		}
	}
	return s.f.FoldBlocks(blocks)
}

// FoldBlocks folds the results of the blocks of a launch, as a kernel has written them, into the
// results of the nodes, in the order of Results.
func (f *Folds) FoldBlocks(words []uint64) []Partial {
	var all []Partial
	for at := 0; at < len(words); at += 2 * codegen.PageBlocks {
		fold := f.All[len(all)%len(f.All)]
		p := identity(fold.fold.Class)
		for block := range codegen.PageBlocks {
			p = fold.Merge(p, Partial{words[at+block], words[at+codegen.PageBlocks+block]})
		}
		all = append(all, p)
	}
	return all
}

// PartialAt returns result number i of columns of little-endian words, of N and of Bits.
func PartialAt(n, bits []byte, i int) Partial {
	return Partial{N: wire.LittleEndian.Uint64(n[8*i:]), Bits: wire.LittleEndian.Uint64(bits[8*i:])}
}
