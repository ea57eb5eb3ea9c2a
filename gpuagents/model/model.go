// Package model keeps named models, the trained weights of cells, in the store of snapshots: one
// file of tensors, and a manifest that is written last. docs/formats/model.md describes the format.
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
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Version is the version of the format that this code writes and reads.
const Version = 1

const (
	format = "exoswarm-model"
	// fileName is the name of the file of tensors below the folder of a model.
	fileName = "weights.safetensors"
	// suffix ends the folder of a model. Names of snapshots have no dot, so the folder of a model
	// is not the folder of a snapshot.
	suffix = ".model"
)

// Limits of a model. A whole file is in memory while a shard starts. The largest weights of a cell,
// an embedding of 1,048,576 rows of 32 values and 65,536 items, take 137 MiB.
const (
	MaxBytes    = 160 << 20 // of a file
	maxManifest = 64 << 20
)

// Manifest describes a model. It holds neither a time nor a place, so two writers of the same file
// under one name write the same bytes. Its SHA-256 is the digest of the model.
type Manifest struct {
	Format  string   `json:"format"`
	Version int      `json:"v"`
	Name    string   `json:"name"`
	Files   []File   `json:"files"`   // one in this version
	Tensors []Tensor `json:"tensors"` // in the order of their elements
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
	Type  string  `json:"dtype"` // as in the file: F32, F16, BF16 and so on
	Shape []int64 `json:"shape"` // empty: one element
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

// tensors reads the header of a file.
func tensors(data []byte) (*safetensors.File, []Tensor, error) {
	f, err := safetensors.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	all := []Tensor{}
	for _, t := range f.Tensors {
		all = append(all, Tensor{t.Name, t.Type, t.Shape})
	}
	return f, all, nil
}

// Save stores the bytes of a file of tensors as a model, and returns its digest. The model is
// durable then. A model of the same name and file is left as it is; a different one is an
// ErrExists. A file that is no safetensors file is a safetensors.ErrFormat.
func Save(
	ctx context.Context, store snapshot.Store, name string, data []byte,
) (m *Manifest, digest string, err error) {
	if len(data) > MaxBytes {
		return nil, "", fmt.Errorf("model %s: %w: %d bytes, of at most %d", name, ErrTooLarge, len(data), MaxBytes)
	}
	_, all, err := tensors(data)
	if err != nil {
		return nil, "", fmt.Errorf("model %s: %w", name, err)
	}
	m = &Manifest{format, Version, name, []File{{fileName, int64(len(data)), sum(data)}}, all}
	there, digest, err := ReadManifest(ctx, store, name)
	switch {
	case err == nil && there.Files[0] == m.Files[0]:
		return there, digest, nil
	case err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMismatch):
		return nil, "", fmt.Errorf("model %s: %w: choose another name, or delete it first", name, ErrExists)
	case !errors.Is(err, ErrNotFound):
		return nil, "", err
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, "", fmt.Errorf("model %s: encode the manifest: %w", name, err)
	}
	err = store.Sweep(ctx, Folder(name))
	for _, o := range []struct {
		name string
		data []byte
	}{{fileName, data}, {snapshot.ManifestName, text}} {
		if err == nil {
			err = write(ctx, store, Folder(name)+"/"+o.name, o.data)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("model %s: %w", name, err)
	}
	return m, sum(text), nil
}

func write(ctx context.Context, store snapshot.Store, name string, data []byte) error {
	o, err := store.Create(ctx, name)
	if err != nil {
		return err
	}
	defer o.Abort()
	if _, err := o.Write(data); err != nil {
		return err
	}
	return o.Commit()
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
	if head.Version != Version {
		return nil, fmt.Errorf("%w: it is of version %d of the format, this program reads %d: update the older side",
			ErrMismatch, head.Version, Version)
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
	if len(m.Files) != 1 || m.Files[0].Name != fileName || m.Files[0].Bytes < 0 || m.Files[0].Bytes > MaxBytes {
		return nil, fmt.Errorf("%w: %s: want the file %s alone, of at most %d bytes", ErrCorrupt,
			snapshot.ManifestName, fileName, MaxBytes)
	}
	return m, nil
}

// Read reads the file of a model whole, and compares its length, its SHA-256 and its tensors with
// the manifest.
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
	f, all, err := tensors(data)
	if err == nil && !slices.EqualFunc(all, m.Tensors, Tensor.equal) {
		err = fmt.Errorf("%s has other tensors than the manifest", want.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w: %w", m.Name, ErrCorrupt, err)
	}
	return f, nil
}

func (t Tensor) equal(o Tensor) bool {
	return t.Name == o.Name && t.Type == o.Type && slices.Equal(t.Shape, o.Shape)
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
