package swarm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Custom says that the step of the swarm's cell was written by its user.
func (s *Spec) Custom() bool { return s.Cell.Kind == cells.CustomName }

// readStep puts the text of the file that the spec names into it.
func (s *Spec) readStep(folder fs.FS) (path []string, err error) {
	name, path := s.Cell.StepFile, []string{"cell", "step_file"}
	switch {
	case name == "":
		return nil, nil
	case s.Cell.Step != "":
		return path, fmt.Errorf("step_file %q: the step stands in the spec too: write one of the two", name)
	case folder == nil:
		return path, fmt.Errorf("step_file %q: only a spec that is read from a folder can name files of it: write "+
			"the text under step", name)
	}
	text, err := readText(folder, "step_file", name, kernels.MaxStepBytes)
	if err != nil {
		return path, err
	}
	s.Cell.Step, s.Cell.StepFile = text, ""
	return nil, nil
}

// readText returns the text of the file that a key of the spec names, or one byte more than max of
// it.
func readText(folder fs.FS, key, name string, max int64) (string, error) {
	f, err := folder.Open(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w: name a file below the spec's own folder", key, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, max+1)) // one more than passes the check
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf("%s %q: it is empty", key, name)
	}
	return string(text), nil
}

func (s *Spec) validateStep() (path []string, err error) {
	onLattice := s.Topology().custom
	switch {
	case s.Custom() && s.Cell.Step == "":
		signature := kernels.StepSignature
		if onLattice {
			signature = lattice.StepSignature
		}
		return []string{"cell"}, fmt.Errorf("cell kind %s: its step is missing: write step: | and %s { ... }, or "+
			"step_file: NAME", cells.CustomName, signature)
	case !onLattice && len(s.Cell.Hear.terms()) > 0:
		return []string{"cell", "hear"}, errors.New("hear: it is for a custom cell on a grid or a graph: write " +
			"addressed: agent and kind: custom, or leave it out")
	case !onLattice && s.Vote.By != "":
		return []string{"vote", "by"}, fmt.Errorf("by %q: it is for a custom cell on a grid or a graph: write "+
			"addressed: agent and kind: custom, or leave it out", s.Vote.By)
	case onLattice && len(s.Cell.Embedding) > 0:
		return []string{"cell", "embedding"}, errors.New("embedding: agents on a grid have none: leave it out, and " +
			"ask swarm compute for means of variables")
	case !s.Custom() && s.Cell.Step != "":
		return []string{"cell", "step"}, fmt.Errorf("step: the cell %s has its own: use the kind %s", s.Cell.Kind,
			cells.CustomName)
	case !s.Custom() && len(s.Cell.State) > 0:
		return []string{"cell", "state"}, fmt.Errorf("state: the cell %s has its own: use the kind %s", s.Cell.Kind,
			cells.CustomName)
	case !s.Custom() && len(s.Cell.Embedding) > 0:
		return []string{"cell", "embedding"}, fmt.Errorf("embedding: the cell %s has its own: use the kind %s",
			s.Cell.Kind, cells.CustomName)
	}
	return nil, nil
}
