// Package model keeps named models in the store of snapshots: the trained weights of cells (Save),
// or language models of others (Load). A model is files, and a manifest that is written last.
// docs/formats/model.md describes the format.
//
// Manifest.Each reads a language model: it gives each tensor with its bytes once, in the order of
// the files, and compares all with the manifest. architecture.Canonical has the one name of a
// tensor, and quant.Decode its elements.
package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Versions of the format that this code writes and reads: a cell's weights are of version 1, and
// language models of version 2.
const (
	cellVersion     = 1
	languageVersion = 2
)

const (
	format = "exoswarm-model"
	// fileName is the name of the file of the weights of a cell below the folder of a model.
	fileName = "weights.safetensors"
	// suffix ends the folder of a model. Names of snapshots have no dot, so the folder of a model
	// is not the folder of a snapshot.
	suffix = ".model"
)

// Limits of a model. The file of a cell's weights is whole in memory while a shard starts. The
// largest weights of a cell, an embedding of 1,048,576 rows of 32 values and 65,536 items, take 137
// MiB.
const (
	MaxBytes    = 160 << 20 // of the weights of a cell
	maxManifest = 64 << 20
	maxFile     = 1 << 44 // bytes of a file of a language model
	maxFiles    = 4096 + 3
	maxText     = 4096 // bytes of the licence and of the source
)

// Manifest describes a model. It holds neither a time nor a place, so two writers of the same file
// under one name write the same bytes. Its SHA-256 is the digest of the model.
type Manifest struct {
	Format  string   `json:"format"`
	Version int      `json:"v"`
	Name    string   `json:"name"`
	Files   []File   `json:"files"`
	Tensors []Tensor `json:"tensors"` // in the order of the files and of their elements

	// Of a language model alone.
	Parameters *architecture.Parameters `json:"parameters,omitempty"`
	Tokenizer  string                   `json:"tokenizer,omitempty"` // the file that has it; empty: none
	Licence    string                   `json:"licence,omitempty"`
	Source     string                   `json:"source,omitempty"` // where the model is from
}

// Bytes returns the bytes of all files.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Bytes
	}
	return n
}

// File is a file of a model.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits
}

// Tensor describes a tensor of a model.
type Tensor struct {
	Name  string  `json:"name"`
	Type  string  `json:"dtype"`          // as in the file: F32, F16, BF16 and so on
	Shape []int64 `json:"shape"`          // row-major; empty: one element
	File  int     `json:"file,omitempty"` // the index of its file
}

// Folder returns the folder of a model in the store of snapshots.
func Folder(name string) string { return name + suffix }

// Names returns the sorted names of the models in a store. A model may be incomplete; ReadManifest
// then returns an ErrNotFound.
func Names(ctx context.Context, store snapshot.Store) (names []string, err error) {
	all, err := store.Folders(ctx)
	if err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	for _, folder := range all {
		if name, is := strings.CutSuffix(folder, suffix); is && jobs.CheckID("model", name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Save stores the bytes of a file of tensors as the weights of a cell, and returns its digest. The
// model is durable then. A model of the same name and file is left as it is; a different one is an
// ErrExists. A file that is no safetensors file is a safetensors.ErrFormat.
func Save(
	ctx context.Context, store snapshot.Store, name string, data []byte,
) (m *Manifest, digest string, err error) {
	if len(data) > MaxBytes {
		return nil, "", fmt.Errorf("model %s: %w: %d bytes, and the weights of a cell have at most %d: name the "+
			"folder with the config.json of a language model", name, ErrTooLarge, len(data), MaxBytes)
	}
	part := Part{fileName, int64(len(data)), bytes.NewReader(data)}
	t, err := tensors(part.Name, part.From, part.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("model %s: %w", name, err)
	}
	m = &Manifest{Format: format, Version: cellVersion, Name: name, Tensors: described(t, 0)}
	return m.save(ctx, store, []Part{part})
}

// read returns the bytes of an object of at most n bytes. A longer object is an ErrCorrupt.
func read(ctx context.Context, store snapshot.Store, name string, n int64) ([]byte, error) {
	r, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, n+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > n {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrCorrupt, name, n)
	}
	return data, nil
}

// ReadManifest reads the manifest of a model, and its digest.
func ReadManifest(ctx context.Context, store snapshot.Store, name string) (m *Manifest, digest string, err error) {
	if err := jobs.CheckID("model", name); err != nil {
		return nil, "", err
	}
	data, err := read(ctx, store, Folder(name)+"/"+snapshot.ManifestName, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("model %s: %w", name, ErrNotFound)
	}
	if err == nil {
		m, err = ParseManifest(data)
	}
	if err != nil {
		return nil, "", fmt.Errorf("model %s: %w", name, err)
	}
	if m.Name != name {
		return nil, "", fmt.Errorf("model %s: %w: it was written as %s", name, ErrCorrupt, m.Name)
	}
	return m, sum(data), nil
}

// ParseManifest reads a manifest from bytes that anybody may have written. The error is an
// ErrCorrupt, or an ErrMismatch for another version of the format.
func ParseManifest(data []byte) (*Manifest, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Format != format {
		return nil, fmt.Errorf("%w: %s: its format is %.100q, not %q", ErrCorrupt, snapshot.ManifestName, head.Format,
			format)
	}
	if head.Version != cellVersion && head.Version != languageVersion {
		return nil, fmt.Errorf("%w: it is of version %d of the format, this program reads %d and %d: update the older "+
			"side", ErrMismatch, head.Version, cellVersion, languageVersion)
	}
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, snapshot.ManifestName, err)
	}
	if err := jobs.CheckID("model", m.Name); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, snapshot.ManifestName, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, snapshot.ManifestName, err)
	}
	return m, nil
}

// check checks what a manifest of its version may say.
func (m *Manifest) check() error {
	if m.Version == languageVersion {
		return m.checkLanguage()
	}
	if len(m.Files) != 1 || m.Files[0].Name != fileName || m.Files[0].Bytes < 0 || m.Files[0].Bytes > MaxBytes {
		return fmt.Errorf("want the file %s alone, of at most %d bytes", fileName, MaxBytes)
	}
	if m.Parameters != nil || m.Tokenizer+m.Licence+m.Source != "" {
		return errors.New("the weights of a cell have no parameters of a language model")
	}
	return nil
}

// Read reads the weights of a cell whole, and compares the length, the SHA-256 and the tensors of
// their file with the manifest.
func Read(ctx context.Context, store snapshot.Store, m *Manifest) (*safetensors.File, error) {
	want := m.Files[0]
	data, err := read(ctx, store, Folder(m.Name)+"/"+want.Name, want.Bytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model %s: %w: %s is missing", m.Name, ErrCorrupt, want.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	if got := sum(data); got != want.SHA256 || int64(len(data)) != want.Bytes {
		return nil, fmt.Errorf("model %s: %w: %s has %d bytes and the SHA-256 %s, the manifest says %d and %s", m.Name,
			ErrCorrupt, want.Name, len(data), got, want.Bytes, want.SHA256)
	}
	f, err := safetensors.Open(bytes.NewReader(data), want.Bytes)
	if err == nil {
		err = m.same(0, ofSafetensors(f))
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w: %w", m.Name, ErrCorrupt, err)
	}
	return f, nil
}

func (t Tensor) equal(o Tensor) bool {
	return t.Name == o.Name && t.Type == o.Type && t.File == o.File && slices.Equal(t.Shape, o.Shape)
}

// Find reads the manifest of a model that is pinned by its digest. ErrMismatch: the model of that
// name has another digest.
func Find(ctx context.Context, store snapshot.Store, ref swarms.ModelRef) (*Manifest, error) {
	m, digest, err := ReadManifest(ctx, store, ref.Name)
	if err == nil && digest != ref.SHA256 {
		return nil, fmt.Errorf("model %s: %w: its manifest has the SHA-256 %s, and %s is asked for: put that one back",
			ref.Name, ErrMismatch, digest, ref.SHA256)
	}
	return m, err
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
