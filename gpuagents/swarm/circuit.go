package swarm

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// quantum reports whether the agents are qubits.
func (s *Spec) quantum() bool { return s.Addressed == ByAgent && s.Cell.Kind == cells.QuantumName }

// readCircuit puts the text of the circuit that the spec names into it.
func (s *Spec) readCircuit(folder fs.FS) (path []string, err error) {
	name, path := s.Cell.Circuit, []string{"cell", "circuit"}
	switch {
	case name == "" || strings.Contains(name, ";"):
		return nil, nil
	case folder == nil:
		return path, fmt.Errorf("circuit %q: only a spec that is read from a folder can name files of it: write the "+
			"text under circuit", name)
	}
	s.Cell.Circuit, err = readText(folder, "circuit", name, cells.MaxCircuitBytes)
	return path, err
}

func (s *Spec) validateCircuit() (path []string, err error) {
	switch quantum := s.quantum(); {
	case quantum && s.Cell.Circuit == "":
		return []string{"cell"}, fmt.Errorf("cell kind %s: its circuit is missing: write circuit: FILE.qasm",
			cells.QuantumName)
	case !quantum && s.Cell.Circuit != "":
		return []string{"cell", "circuit"}, errors.New("circuit: it is for the cell quantum: write addressed: agent " +
			"and kind: quantum, or leave it out")
	case quantum && cells.QuantumCandidates(s.Cell.Circuit) == nil: // the number of candidates is not known
		_, err = s.Address()
		return []string{"cell", "circuit"}, err
	}
	return nil, nil
}
