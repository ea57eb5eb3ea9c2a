package swarm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// modelFiles are the open files of a model to load. The caller closes them, also after an error.
type modelFiles struct {
	model.Parts          // of a language model
	cell        *os.File // the weights of a cell; nil: it is a language model
}

// Close closes the files.
func (m *modelFiles) Close() error {
	if m.cell == nil {
		return m.Parts.Close()
	}
	return errors.Join(m.Parts.Close(), m.cell.Close())
}

// openParts opens the file of a model, or the files of a folder that a language model has.
func openParts(name string) (*modelFiles, error) {
	m := &modelFiles{}
	path, err := filepath.Abs(name)
	if err != nil {
		return m, fmt.Errorf("--file: %w", err)
	}
	is, err := m.Open(os.DirFS(filepath.Dir(path)), filepath.Base(path))
	if err == nil && !is {
		m.cell, err = os.Open(path)
	}
	if err != nil {
		return m, command.Usage("--file %s: %v", name, err)
	}
	return m, nil
}
