package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Opened is a language model whose tensors are read at any place. It implements weights.Source.
type Opened struct {
	*Manifest
	files  []snapshot.At // by file; nil: no file of tensors
	places map[string]tensor
}

// Open opens a language model that is pinned by its digest. The caller closes it. An ErrMismatch
// says that the model has another digest, or is the weights of a cell.
func Open(ctx context.Context, store snapshot.Store, files snapshot.Files, ref swarms.ModelRef) (_ *Opened, err error) {
	m, err := Find(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	if m.Parameters == nil {
		return nil, fmt.Errorf("model %s: %w: it is the weights of a cell, and not a language model", m.Name,
			ErrMismatch)
	}
	o := &Opened{Manifest: m, files: make([]snapshot.At, len(m.Files)), places: map[string]tensor{}}
	for i, f := range m.Files {
		if f.Name != GGUFName && !isSafetensors(f.Name) {
			continue
		}
		o.files[i], err = files.OpenAt(ctx, Folder(m.Name)+"/"+f.Name, f.Bytes, f.SHA256)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s is missing", ErrCorrupt, f.Name)
		}
		var all []tensor
		if err == nil {
			all, err = tensors(f.Name, o.files[i], f.Bytes)
		}
		if err == nil {
			err = m.same(i, all)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("model %s: %w", m.Name, err), o.Close())
		}
		for _, t := range all {
			t.File = i
			o.places[architecture.Canonical(t.Name)] = t
		}
	}
	return o, nil
}

// Parameters implements weights.Source.
func (o *Opened) Parameters() *architecture.Parameters { return o.Manifest.Parameters }

// Tensor implements weights.Source.
func (o *Opened) Tensor(name string) (kind string, bytes int64, err error) {
	t, there := o.places[name]
	if !there {
		return "", 0, fmt.Errorf("model %s: %w: it has no tensor %s", o.Name, ErrMismatch, name)
	}
	return t.Type, t.bytes, nil
}

// Read implements weights.Source.
func (o *Opened) Read(_ context.Context, name string, off int64, p []byte) error {
	t, there := o.places[name]
	if !there || off < 0 || int64(len(p)) > t.bytes-off {
		return fmt.Errorf("model %s: %w: %d bytes at %d of tensor %s", o.Name, ErrMismatch, len(p), off, name)
	}
	n, err := o.files[t.File].ReadAt(p, t.first+off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %s was cut short", ErrCorrupt, o.Files[t.File].Name)
	}
	return fmt.Errorf("model %s: read %d bytes of tensor %s: %w", o.Name, len(p), name, err)
}

// Close closes the files.
func (o *Opened) Close() (err error) {
	for _, f := range o.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
