package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// Parts are the open files of a language model that need not be in a store. The caller closes them,
// also after an error.
type Parts struct {
	Files []Part
	open  []io.Closer
}

// Close closes the files. A second call does nothing.
func (p *Parts) Close() (err error) {
	for _, f := range p.open {
		err = errors.Join(err, f.Close())
	}
	p.open = nil
	return err
}

// Open opens a file of GGUF, or the files in a folder. It reports whether it is one of these: a
// file of GGUF is known by its first bytes.
func (p *Parts) Open(dir fs.FS, name string) (is bool, err error) {
	info, err := fs.Stat(dir, name)
	if err != nil {
		return false, err
	}
	if info.IsDir() {
		sub, err := fs.Sub(dir, name)
		if err != nil {
			return true, err
		}
		return true, p.folder(sub)
	}
	if !info.Mode().IsRegular() {
		return false, nil
	}
	if err := p.add(dir, name, GGUFName); err != nil {
		return false, err
	}
	head := make([]byte, 4)
	if n, _ := p.Files[0].From.ReadAt(head, 0); string(head[:n]) == "GGUF" {
		return true, nil
	}
	p.Files = nil
	return false, p.Close()
}

// folder opens the files of a language model in a folder of safetensors. Links out of it are
// followed if dir follows them: caches of downloads have them.
func (p *Parts) folder(dir fs.FS) error {
	for _, of := range []string{ConfigName, TokenizerName, TemplateName} {
		if err := p.add(dir, of, of); err != nil && (of == ConfigName || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%w: the folder of a language model has %s, and %s or %s; of GGUF name the file", err,
				ConfigName, OneName, safetensors.IndexName)
		}
	}
	files := []string{OneName}
	switch err := p.add(dir, safetensors.IndexName, safetensors.IndexName); {
	case err == nil:
		data, err := whole(p.Files[len(p.Files)-1])
		if err != nil {
			return err
		}
		of, err := safetensors.ParseIndex(data)
		if err != nil {
			return err
		}
		files = slices.Compact(slices.Sorted(maps.Values(of)))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, of := range files {
		if err := p.add(dir, of, of); err != nil {
			return fmt.Errorf("%w: convert other weights to safetensors first", err)
		}
	}
	return nil
}

// add opens a file of a folder as a part of a model. It must be a regular file: a pipe would hold
// the caller up.
func (p *Parts) add(dir fs.FS, file, part string) error {
	// It is asked for before it is opened: the opening of a pipe waits for a writer.
	info, err := fs.Stat(dir, file)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", file)
	}
	if err != nil {
		return err
	}
	f, err := dir.Open(file)
	if err != nil {
		return err
	}
	p.open = append(p.open, f)
	from, is := f.(io.ReaderAt)
	if info, err = f.Stat(); err == nil && !is {
		err = fmt.Errorf("%s cannot be read at any place", file)
	}
	if err != nil {
		return err
	}
	p.Files = append(p.Files, Part{Name: part, Bytes: info.Size(), From: from})
	return nil
}

// unstored is a file of a model whose owner closes it.
type unstored struct{ io.ReaderAt }

func (unstored) Close() error { return nil }

// OpenFiles is Open of the files of a language model that are in no store. They are checked as Load
// checks them, and have no checksums. The caller keeps them open until it has closed the model.
func OpenFiles(name string, parts []Part) (*Opened, error) {
	m, err := describe(name, parts, About{})
	if err != nil {
		return nil, err
	}
	o := &Opened{Manifest: m, places: map[string]tensor{}}
	for i, p := range parts {
		o.files = append(o.files, unstored{p.From})
		if p.Name != GGUFName && !isSafetensors(p.Name) {
			continue
		}
		all, err := tensors(p.Name, p.From, p.Bytes)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", name, err)
		}
		for _, t := range all {
			t.File = i
			o.places[architecture.Canonical(t.Name)] = t
		}
	}
	return o, nil
}

// Words reads the tokenizer of a language model from its files. An ErrFiles: they have none.
func Words(parts []Part) (*tokenizer.Tokenizer, error) {
	for _, p := range parts {
		switch p.Name {
		case GGUFName:
			f, err := gguf.Open(p.From, p.Bytes)
			if err != nil {
				return nil, err
			}
			return tokenizer.FromGGUF(f)
		case TokenizerName:
			data, err := whole(p)
			if err != nil {
				return nil, err
			}
			return tokenizer.Parse(data)
		}
	}
	return nil, fmt.Errorf("%w: they have no tokenizer: put %s beside them", ErrFiles, TokenizerName)
}
