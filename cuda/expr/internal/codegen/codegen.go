// Package codegen writes the CUDA C++ of the parts of a plan.
//
// Each kind of part has one frame of text: loads of vectors, loops, folds and stores, written once
// by hand. The expression of the part is filled into it, a statement for each node. Package ir and
// prelude.cuh have the operations. The results have the bits of package interpret: a change of a
// frame that changes the order of a fold, or the rounding of an operation, is an error.
package codegen

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// prelude has the operations of all generated kernels. Its functions begin with x_, so that no name
// of a value is one of theirs.
//
//go:embed prelude.cuh
var prelude string

// The shape of launches, which the caller of a kernel must keep to.
const (
	// BlockThreads is the number of threads of a block, but of filters and scans.
	BlockThreads = 256
	blockWarps   = BlockThreads / 32
	// MapTiles is the number of tiles of ir.TileSize elements of a block of a map without folds.
	// With folds, a block has a super tile.
	MapTiles = blockWarps
)

// States returns the number of 64-bit words that the scratch memory of a filter or a scan has
// behind its first 16 bytes, for a number of tiles. All of it is 0 before a launch.
func States(tiles int64) int64 {
	all := tiles
	for tiles > 1 {
		tiles = (tiles + ir.ScanFanout - 1) / ir.ScanFanout
		all += tiles
	}
	return all
}

// C types of values in memory and in registers. Operations are written for those in registers.
var (
	stored = map[ir.Type]string{
		ir.F32: "float", ir.BF16: "unsigned short", ir.I32: "int", ir.U32: "unsigned", ir.U8: "unsigned char",
		ir.Bool: "unsigned char",
	}
	inRegister = map[ir.Type]string{
		ir.F32:  "float",
		ir.BF16: "float",
		ir.I32:  "int",
		ir.U32:  "unsigned",
		ir.U8:   "unsigned",
		ir.Bool: "unsigned",
	}
)

// writer writes the text of one part. The names of the text have a letter for the role, and the
// number of the node: b and o are the array that is read and its first element, x the pointer to
// that, c, q and y the same for an array that is written, n the length of a table, s a scalar, l a
// length, and v a value in a register.
type writer struct {
	strings.Builder
	l      *plan.Plan
	t      *plan.Part
	indent int
	// shared is the maximum of dynamic shared memory of a block in bytes. shape is the shape of
	// filters and scans.
	shared int
	shape  plan.Shape
	// flat, row and col are C expressions of the present element: its place in the domain, its row
	// and its place in the row.
	flat, row, col string
	// suffix ends the names of values, where a kernel holds the values of several rows.
	suffix string
	// bound has the names of values that are computed already, innermost scope last.
	bound map[*ir.Node]string
	// source returns an expression of the stored value of what the part reads, or "" for a load.
	source func(n *ir.Node) string
	// arrays are the values of kernels of small products that are arrays of registers.
	arrays map[*ir.Node]bool
	// numbers are the numbers of nodes in names: equal kernels of different programs have equal
	// texts.
	numbers map[*ir.Node]int
}

// id returns the number of a node in the names of the text. Numbers are given in the order of first
// use, which two equal kernels have in common.
func (w *writer) id(n *ir.Node) int {
	if w.numbers == nil {
		w.numbers = map[*ir.Node]int{}
	}
	if _, found := w.numbers[n]; !found {
		w.numbers[n] = len(w.numbers)
	}
	return w.numbers[n]
}

func (w *writer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, "}") {
		w.indent--
	}
	if text != "" {
		for range w.indent {
			w.WriteString("  ")
		}
	}
	w.WriteString(text + "\n")
	if strings.HasSuffix(text, "{") {
		w.indent++
	}
}

// scope calls f; what it binds is forgotten, because it is in a block of C++ that ends.
func (w *writer) scope(f func()) {
	old := w.bound
	w.bound = make(map[*ir.Node]string, len(old))
	for n, name := range old {
		w.bound[n] = name
	}
	f()
	w.bound = old
}

// Source returns the text of the kernel of a part, and how it is launched if the part is a filter
// or a scan. A product of the library has no text. A block may have shared bytes of dynamic shared
// memory.
//
// The text depends on the operations of the part, on the shapes of their rows and on shared alone,
// not on lengths, names or other parts. The name of the part occurs in it only as the name of the
// kernel.
//
// The parameters of the kernel are, in this order: for each of the part's Reads its scalar, or its
// array with the number of the first element and, for a table of gather, the length; for each of
// the Roots its array with the number of the first element; the value of each OpLength; and the
// parameters of the frame of its kind. The last parameter is the number of elements or of rows. A
// frame has these parameters before it: maps and scans the scratch memory, filters the count of
// kept elements and the scratch memory, sums of rows the memory of the sums of runs and the
// counters, and sums by index the length of the table.
func Source(l *plan.Plan, t *plan.Part, shared int) (string, plan.Shape) {
	if t.Kind == plan.KindGemm {
		return "", plan.Shape{}
	}
	w := &writer{
		l: l, t: t, bound: map[*ir.Node]string{}, arrays: map[*ir.Node]bool{},
		numbers: map[*ir.Node]int{}, shared: shared, shape: plan.Shape{Threads: BlockThreads},
	}
	switch t.Kind {
	case plan.KindMap:
		w.mapKernel()
	case plan.KindRows:
		w.rowsKernel()
	case plan.KindCompact:
		w.compactKernel()
	case plan.KindScan:
		w.scanKernel()
	case plan.KindSmall:
		w.smallKernel()
	case plan.KindScatter:
		w.scatterKernel()
	case plan.KindSums:
		w.sumsKernel()
		return prelude + sumsPrelude + w.String(), w.shape
	case plan.KindColumns:
		w.columnsKernel()
		return prelude + sumsPrelude + w.String(), w.shape
	}
	return prelude + w.String(), w.shape
}

// begin writes the head of a kernel: parameters, pointers to first elements, and what all elements
// meet. more are parameters behind the arrays.
func (w *writer) begin(name string, reads, writes []*ir.Node, more ...string) {
	var params []string
	for _, n := range reads {
		switch {
		case n.Op == ir.OpInput && w.l.Graph.Inputs[n.Imm].Scalar:
			params = append(params, fmt.Sprintf("%s s%d", inRegister[n.Type], w.id(n)))
		default:
			params = append(params, fmt.Sprintf("const %s *__restrict__ b%d", stored[n.Type], w.id(n)),
				fmt.Sprintf("unsigned o%d", w.id(n)))
			if w.t.Gathers(n) {
				params = append(params, fmt.Sprintf("unsigned long long n%d", w.id(n)))
			}
		}
	}
	for _, n := range writes {
		params = append(params, fmt.Sprintf("%s *__restrict__ c%d", stored[n.Type], w.id(n)),
			fmt.Sprintf("unsigned q%d", w.id(n)))
	}
	for _, n := range w.t.Inside {
		if n.Op == ir.OpLength {
			params = append(params, fmt.Sprintf("float l%d", w.id(n)))
		}
	}
	params = append(params, more...)
	w.line(`extern "C" __global__ void __launch_bounds__(%d) %s(%s) {`, w.shape.Threads, name,
		strings.Join(params, ", "))
	for _, n := range reads {
		if n.Op != ir.OpInput || !w.l.Graph.Inputs[n.Imm].Scalar {
			w.line("const %s *const x%d = b%d + o%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
		}
	}
	for _, n := range writes {
		w.line("%s *const y%d = c%d + q%d;", stored[n.Type], w.id(n), w.id(n), w.id(n))
	}
	w.line("const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;")
	// Values that all elements share are loaded once, except for tables, which are read by index.
	for _, n := range reads {
		if !n.Scalar() || w.t.Gathers(n) {
			continue
		}
		if n.Op == ir.OpInput && w.l.Graph.Inputs[n.Imm].Scalar {
			w.bound[n] = fmt.Sprintf("s%d", w.id(n))
			continue
		}
		w.line("const %s v%d = %s;", inRegister[n.Type], w.id(n),
			fromStored(n.Type, fmt.Sprintf("x%d[0]", w.id(n))))
		w.bound[n] = fmt.Sprintf("v%d", w.id(n))
	}
}
