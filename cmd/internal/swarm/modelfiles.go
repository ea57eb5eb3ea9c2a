package swarm

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// modelFiles are the open files of a model to load. The caller closes them, also after an error.
type modelFiles struct {
	open  []*os.File
	parts []model.Part // of a language model
	cell  bool         // the one file is the weights of a cell
}

// Close closes the files.
func (m *modelFiles) Close() (err error) {
	for _, f := range m.open {
		err = errors.Join(err, f.Close())
	}
	return err
}

// openParts opens the file of a model, or the files of a folder that a language model has. A file
// of GGUF is known by its first bytes.
func openParts(name string) (*modelFiles, error) {
	m := &modelFiles{}
	f, err := os.Open(name)
	if err != nil {
		return m, command.Usage("--file: %v", err)
	}
	m.open = append(m.open, f)
	info, err := f.Stat()
	switch {
	case err != nil:
		return m, fmt.Errorf("--file: %w", err)
	case info.IsDir():
		return m, m.folder(name)
	}
	head := make([]byte, 4)
	if n, _ := f.ReadAt(head, 0); info.Mode().IsRegular() && string(head[:n]) == "GGUF" {
		m.parts = []model.Part{{Name: model.GGUFName, Bytes: info.Size(), From: f}}
		return m, nil
	}
	m.cell = true
	return m, nil
}

// folder opens the files of a language model in a folder. Links out of it are followed: caches of
// downloads have them.
func (m *modelFiles) folder(name string) error {
	dir := os.DirFS(name)
	for _, of := range []string{model.ConfigName, model.TokenizerName, model.TemplateName} {
		if err := m.add(dir, of); err != nil && (of == model.ConfigName || !errors.Is(err, fs.ErrNotExist)) {
			return command.Usage("--file %s: %v: the folder of a language model has %s, and model.safetensors or %s; "+
				"of GGUF name the file", name, err, model.ConfigName, safetensors.IndexName)
		}
	}
	files := []string{model.OneName}
	switch err := m.add(dir, safetensors.IndexName); {
	case err == nil:
		p := m.parts[len(m.parts)-1]
		data, err := io.ReadAll(io.NewSectionReader(p.From, 0, min(p.Bytes, model.MaxBytes)))
		if err != nil {
			return fmt.Errorf("--file %s: %w", name, err)
		}
		of, err := safetensors.ParseIndex(data)
		if err != nil {
			return command.Usage("--file %s: %v", name, err)
		}
		files = slices.Compact(slices.Sorted(maps.Values(of)))
	case !errors.Is(err, fs.ErrNotExist):
		return command.Usage("--file %s: %v", name, err)
	}
	for _, of := range files {
		if err := m.add(dir, of); err != nil {
			return command.Usage("--file %s: %v: convert other weights to safetensors first", name, err)
		}
	}
	return nil
}

// add opens a file of a folder. It must be a regular file: a pipe would hold the command up.
func (m *modelFiles) add(dir fs.FS, name string) error {
	info, err := fs.Stat(dir, name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", name)
	}
	in, err := dir.Open(name)
	if err != nil {
		return err
	}
	f, is := in.(*os.File)
	if !is {
		return errors.Join(fmt.Errorf("%s is no file of this machine", name), in.Close())
	}
	m.open = append(m.open, f)
	if info, err = f.Stat(); err != nil {
		return err
	}
	m.parts = append(m.parts, model.Part{Name: name, Bytes: info.Size(), From: f})
	return nil
}
