package fusion

// SortAgents in place of a number of phases: agents are sorted by their node.
const SortAgents = sortAgents

// Tuned is options with other launches for the ranges of the nodes, and other lengths of runs.
func Tuned(o Options, phases, runRows int) Options {
	o.phases, o.runRows = phases, runRows
	return o
}

// Sorts reports whether the fuser sorts agents at each fusion.
func (f *Fuser) Sorts() bool { return f.sorts() }
