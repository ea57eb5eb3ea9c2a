package cells

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Embedding names the state variables that are an agent's knowledge, as indices of the layout's
// variables, in their order: an embedding is their elements behind one another, in float32. width
// is how many those are; 0: the cell has none.
func (b *Bound) Embedding() (vars []int, width int) {
	all := b.Cell.vars(b)
	for _, name := range b.Cell.embedding {
		i := slices.IndexFunc(all, func(v kernels.Var) bool { return v.Name == name && !v.Group })
		vars, width = append(vars, i), width+all[i].Width
	}
	return vars, width
}

// customEmbedding returns the names of the variables of the embedding of a custom cell: the given
// ones, or all variables of f32 and bf16. The result shares no memory with names. The error is an
// ErrEmbedding.
func customEmbedding(vars []kernels.Var, names []string) ([]string, error) {
	var float []string
	for _, v := range vars {
		if v.Elem == kernels.F32 || v.Elem == kernels.BF16 {
			float = append(float, v.Name)
		}
	}
	if len(names) == 0 {
		return float, nil
	}
	for i, name := range names {
		switch {
		case !slices.Contains(float, name):
			return nil, fmt.Errorf("%w: %q is no variable of f32 or bf16; those there are: %q", ErrEmbedding, name,
				float)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%w: %q is named twice", ErrEmbedding, name)
		}
	}
	return slices.Clone(names), nil
}
