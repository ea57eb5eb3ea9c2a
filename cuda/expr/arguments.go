package expr

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/interpret"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Array is an array in the memory of the host: elements of the type that the program says, row
// after row, in the order of bytes of the machine. Data may be longer than the array.
type Array struct {
	Data []byte
	Rows int64
}

// Scalar returns the array of a scalar input of f32.
func Scalar(v float32) Array { return Array{Data: device.Bytes([]float32{v}), Rows: 1} }

// Interpret executes a program on the cores of the host, and returns its outputs by name. It does
// not change the inputs, and the outputs are new memory. Cancelling ctx ends it between blocks of
// elements. Inputs that do not fit the program are ErrArgs.
func Interpret(ctx context.Context, p *Program, in map[string]Array) (map[string]Array, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	lengths, err := p.lengths(func(name string) (rows, bytes int64, found bool) {
		a, found := in[name]
		return a.Rows, int64(len(a.Data)), found
	})
	if err != nil {
		return nil, err
	}
	inputs := make([][]byte, len(p.g.Inputs))
	for i, input := range p.g.Inputs {
		inputs[i] = in[input.Name].Data
	}
	results, err := interpret.Run(ctx, &p.g, lengths, inputs)
	if err != nil {
		return nil, fmt.Errorf("expr: interpret: %w", err)
	}
	out := map[string]Array{}
	for i, o := range p.g.Outputs {
		out[o.Name] = Array{Data: results[i], Rows: lengths[o.Node.Lead]}
	}
	return out, nil
}

// lengths returns the length of each symbol of the program, 0 for filters. array says what a run
// has for an input: its rows, the bytes from its first element on, and whether there is one. The
// name "" asks for the rows of a program without inputs of the free length.
func (p *Program) lengths(array func(name string) (rows, bytes int64, found bool)) ([]int64, error) {
	lengths := make([]int64, len(p.g.Symbols))
	for s := range lengths {
		lengths[s] = -1
		if p.g.Symbols[s].Of != nil {
			lengths[s] = 0
		}
	}
	lengths[0] = 1
	for _, in := range p.g.Inputs {
		rows, bytes, found := array(in.Name)
		if !found {
			return nil, fmt.Errorf("expr: input %q is missing: %w", in.Name, ErrArgs)
		}
		if in.Node.Lead == 0 {
			rows = 1
		}
		size := in.Node.Width * in.Node.Type.Bytes()
		if rows < 0 || rows > math.MaxInt64/size || bytes < rows*size {
			return nil, fmt.Errorf("expr: input %q: %d bytes for %d rows of %d %v: %w", in.Name, bytes, rows,
				in.Node.Width, in.Node.Type, ErrArgs)
		}
		s := in.Node.Lead
		if fixed := p.g.Symbols[s].Fixed; fixed >= 0 && fixed != rows {
			return nil, fmt.Errorf("expr: input %q: %d rows, the program has %d: %w", in.Name, rows, fixed,
				ErrArgs)
		}
		if lengths[s] >= 0 && lengths[s] != rows {
			return nil, fmt.Errorf("expr: input %q: %d rows, other inputs have %d: %w", in.Name, rows,
				lengths[s], ErrArgs)
		}
		lengths[s] = rows
	}
	if rows, _, found := array(""); found && lengths[ir.FreeLength] < 0 {
		lengths[ir.FreeLength] = rows // of a program without inputs of that length
	}
	for _, n := range p.g.Nodes {
		if n.Lead == ir.FreeLength && lengths[ir.FreeLength] < 0 {
			return nil, fmt.Errorf(
				`expr: the length is not known: give an input, or Rows of the input "": %w`,
				ErrArgs,
			)
		}
	}
	return lengths, nil
}
