package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// Names of the files of a language model. Files of safetensors keep their names.
const (
	GGUFName      = "weights.gguf"      // alone
	ConfigName    = "config.json"       // beside safetensors
	OneName       = "model.safetensors" // the file of a model without an index
	TokenizerName = "tokenizer.json"
	TemplateName  = "tokenizer_config.json" // has the chat template
)

// maxJSON is the most bytes of a file of a language model that is no file of tensors.
const maxJSON = 64 << 20

// ErrFiles is a set of files that is no language model.
var ErrFiles = errors.New("not the files of a language model")

// Part is a file that becomes one of a model. The caller keeps From open.
type Part struct {
	Name  string
	Bytes int64
	From  io.ReaderAt
}

// About says where a language model is from. What is empty is read from the file, if it is GGUF.
type About struct{ Licence, Source string }

// Load checks the files of a language model, stores them, and returns the digest. They are one file
// called GGUFName, or a config.json and safetensors: one called OneName, or all files of an index,
// with the index. A tokenizer.json and a tokenizer_config.json may be beside them. Only the heads
// of the files are read before anything is stored. An ErrFormat of safetensors or gguf, an
// architecture.ErrArchitecture and an ErrFiles say what is wrong with them. Names that are taken
// are as in Save.
func Load(
	ctx context.Context, store snapshot.Store, name string, parts []Part, about About,
) (m *Manifest, digest string, err error) {
	if m, err = describe(name, parts, about); err != nil {
		return nil, "", err
	}
	return m.save(ctx, store, parts)
}

// describe returns the manifest of files, without their checksums.
func describe(name string, parts []Part, about About) (*Manifest, error) {
	m := &Manifest{Format: format, Version: languageVersion, Name: name, Licence: about.Licence, Source: about.Source}
	err := m.describe(parts)
	if err == nil {
		for _, p := range parts {
			m.Files = append(m.Files, File{Name: p.Name, Bytes: p.Bytes})
		}
		err = m.checkLanguage()
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	return m, nil
}

// describe fills in all that a manifest says of the content of files.
func (m *Manifest) describe(parts []Part) error {
	if len(parts) == 1 && parts[0].Name == GGUFName {
		return m.describeGGUF(parts[0])
	}
	index := map[string]string{}
	for i, p := range parts {
		var err error
		switch {
		case p.Name == ConfigName || p.Name == safetensors.IndexName:
			var data []byte
			if data, err = whole(p); err != nil {
				break
			}
			if p.Name == ConfigName {
				m.Parameters, err = architecture.FromConfig(data)
			} else {
				index, err = safetensors.ParseIndex(data)
			}
		case p.Name == TokenizerName:
			m.Tokenizer = p.Name
		case isSafetensors(p.Name):
			var all []tensor
			if all, err = tensors(p.Name, p.From, p.Bytes); err == nil {
				m.Tensors = append(m.Tensors, described(all, i)...)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if len(index) == 0 {
		return nil
	}
	for _, t := range m.Tensors {
		if file := parts[t.File].Name; index[t.Name] != file {
			return fmt.Errorf("%w: tensor %s is in %s, and %s says %q", ErrFiles, t.Name, file, safetensors.IndexName,
				index[t.Name])
		}
	}
	if len(index) != len(m.Tensors) {
		return fmt.Errorf("%w: %s names %d tensors, and its files have %d: is one of them missing?", ErrFiles,
			safetensors.IndexName, len(index), len(m.Tensors))
	}
	return nil
}

func (m *Manifest) describeGGUF(p Part) error {
	f, err := gguf.Open(p.From, p.Bytes)
	if err != nil {
		return err
	}
	if m.Parameters, err = architecture.FromGGUF(f); err != nil {
		return err
	}
	m.Tensors = described(ofGGUF(f), 0)
	text := func(to *string, keys ...string) {
		for _, key := range keys {
			v, gerr := f.Get(key)
			if s, is := v.(string); is && *to == "" {
				*to = s
			}
			err = errors.Join(err, gerr)
		}
	}
	text(&m.Licence, "general.license")
	text(&m.Source, "general.source.url", "general.source.repo_url", "general.url", "general.repo_url")
	kind := ""
	if text(&kind, "tokenizer.ggml.model"); kind != "" {
		m.Tokenizer = p.Name
	}
	return err
}

// whole reads a file that is no file of tensors.
func whole(p Part) ([]byte, error) {
	if p.Bytes > maxJSON {
		return nil, fmt.Errorf("%w: it has %d bytes, of at most %d", ErrTooLarge, p.Bytes, maxJSON)
	}
	data := make([]byte, p.Bytes)
	if n, err := p.From.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("read %d bytes: %w", len(data), err)
	}
	return data, nil
}

func isSafetensors(name string) bool { return strings.HasSuffix(name, ".safetensors") }

// checkLanguage checks what a manifest of a language model says, whose source anybody may be.
func (m *Manifest) checkLanguage() error {
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return fmt.Errorf("%w: %d files: use 1 to %d", ErrFiles, len(m.Files), maxFiles)
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		weights := f.Name == GGUFName || isSafetensors(f.Name)
		most := int64(maxFile)
		if !weights {
			most = maxJSON
		}
		switch {
		case names[f.Name] || strings.ContainsAny(f.Name, "/\\\x00") || strings.HasPrefix(f.Name, ".") ||
			len(f.Name) > 255:
			return fmt.Errorf("%w: file %.100q: its name is there twice, too long, or has a path", ErrFiles, f.Name)
		case !weights && !slices.Contains(others, f.Name):
			return fmt.Errorf("%w: file %.100q: use %s, safetensors and %s", ErrFiles, f.Name, GGUFName,
				strings.Join(others, ", "))
		case f.Bytes < 0 || f.Bytes > most:
			return fmt.Errorf("%w: file %s: %d bytes, of at most %d", ErrTooLarge, f.Name, f.Bytes, most)
		}
		names[f.Name] = true
	}
	switch {
	case names[GGUFName] && len(names) > 1:
		return fmt.Errorf("%w: %s is beside other files", ErrFiles, GGUFName)
	case m.Parameters == nil:
		return fmt.Errorf("%w: %s is missing", ErrFiles, ConfigName)
	case m.Tokenizer != "" && !names[m.Tokenizer]:
		return fmt.Errorf("%w: the file of the tokenizer, %.100q, is missing", ErrFiles, m.Tokenizer)
	case len(m.Licence) > maxText || len(m.Source) > maxText:
		return fmt.Errorf("%w: licence or source: use at most %d bytes", ErrFiles, maxText)
	}
	if err := m.Parameters.Validate(); err != nil {
		return err
	}
	all := make([]architecture.Tensor, len(m.Tensors))
	for i, t := range m.Tensors {
		switch _, _, known := quant.Block(t.Type); {
		case t.File < 0 || t.File >= len(m.Files) || i > 0 && t.File < m.Tensors[i-1].File:
			return fmt.Errorf("%w: tensor %.100q is in file %d of %d, and tensors are in the order of the files",
				ErrFiles, t.Name, t.File, len(m.Files))
		case !known:
			return fmt.Errorf("%w: tensor %s: elements of type %.100s: convert them to F32, F16 or BF16", ErrFiles,
				t.Name, t.Type)
		}
		all[i] = architecture.Tensor{Name: t.Name, Shape: t.Shape}
	}
	return m.Parameters.Check(all)
}

// others are the files of a language model that are no files of tensors.
var others = []string{ConfigName, TokenizerName, TemplateName, safetensors.IndexName}

// save stores files and then the manifest, which it completes with their checksums.
func (m *Manifest) save(
	ctx context.Context, store snapshot.Store, parts []Part,
) (saved *Manifest, digest string, err error) {
	there, digest, err := ReadManifest(ctx, store, m.Name)
	taken := err == nil || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMismatch)
	if !taken && !errors.Is(err, ErrNotFound) {
		return nil, "", err
	}
	if !taken {
		if err := store.Sweep(ctx, Folder(m.Name)); err != nil {
			return nil, "", fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	m.Files = nil
	for _, p := range parts {
		var sum string
		if taken {
			sum, err = copyPart(ctx, p, io.Discard)
		} else {
			sum, err = writePart(ctx, store, Folder(m.Name)+"/"+p.Name, p)
		}
		if err != nil {
			return nil, "", fmt.Errorf("model %s: %s: %w", m.Name, p.Name, err)
		}
		m.Files = append(m.Files, File{p.Name, p.Bytes, sum})
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, "", fmt.Errorf("model %s: encode the manifest: %w", m.Name, err)
	}
	switch {
	case taken && there != nil && digest == sum(text):
		return there, digest, nil
	case taken:
		return nil, "", fmt.Errorf("model %s: %w: choose another name, or delete it first", m.Name, ErrExists)
	}
	manifest := Part{snapshot.ManifestName, int64(len(text)), bytes.NewReader(text)}
	if _, err := writePart(ctx, store, Folder(m.Name)+"/"+manifest.Name, manifest); err != nil {
		return nil, "", fmt.Errorf("model %s: %w", m.Name, err)
	}
	return m, sum(text), nil
}
