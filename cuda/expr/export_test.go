package expr

import "github.com/exoswarm/exoswarm/cuda/expr/ir"

// Graph returns the graph of a program.
func Graph(p *Program) *ir.Graph { return &p.g }
