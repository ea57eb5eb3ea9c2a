package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// Tokenizer reads the tokenizer of a language model, and nothing of its tensors. Its ends are those
// that the file of the tokenizer and the parameters name. Without a tokenizer the error is an
// ErrMismatch; a tokenizer of a kind that is not computed is a tokenizer.ErrTokenizer.
func Tokenizer(ctx context.Context, store snapshot.Store, m *Manifest) (*tokenizer.Tokenizer, error) {
	t, err := m.tokenizer(ctx, store)
	if err == nil && t.Size() > m.Parameters.Vocabulary {
		err = fmt.Errorf("%w: its tokenizer has %d tokens, and its vocabulary %d: store the files of one model",
			ErrMismatch, t.Size(), m.Parameters.Vocabulary)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return t, nil
}

func (m *Manifest) tokenizer(ctx context.Context, store snapshot.Store) (t *tokenizer.Tokenizer, err error) {
	if m.Parameters == nil || m.Tokenizer == "" {
		return nil, fmt.Errorf("%w: it has no tokenizer: load it with the tokenizer.json in its folder, or from GGUF",
			ErrMismatch)
	}
	file := 0
	for i, f := range m.Files {
		if f.Name == m.Tokenizer {
			file = i
		}
	}
	name := Folder(m.Name) + "/" + m.Tokenizer
	if m.Tokenizer == GGUFName {
		f, err := m.headGGUF(ctx, store, file, name)
		if err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(f)
	}
	data, err := read(ctx, store, name, m.Files[file].Bytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, m.Tokenizer)
	case err != nil:
		return nil, err
	case sum(data) != m.Files[file].SHA256:
		return nil, fmt.Errorf("%w: %s has another SHA-256 than the manifest says", ErrCorrupt, m.Tokenizer)
	}
	var ends []int32
	for _, id := range m.Parameters.End {
		ends = append(ends, int32(id))
	}
	return tokenizer.Parse(data, ends...)
}

// headGGUF reads the head of a GGUF file: twice, as the values of keys lie before the end of the
// head.
func (m *Manifest) headGGUF(
	ctx context.Context, store snapshot.Store, file int, name string,
) (f *gguf.File, err error) {
	head := int64(0) // bytes before the first tensor
	for range 2 {
		r, err := store.Open(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, GGUFName)
		}
		if err != nil {
			return nil, err
		}
		var at io.ReaderAt = &forward{r: r, sum: sha256.New(), ended: func() error { return context.Cause(ctx) }}
		if head > 0 {
			data := make([]byte, head)
			_, err = io.ReadFull(r, data)
			at = bytes.NewReader(data)
		}
		if err == nil {
			f, err = gguf.Open(at, m.Files[file].Bytes)
		}
		if errors.Is(err, gguf.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, fmt.Errorf("read the head of %s: %w", GGUFName, err)
		}
		if err := m.same(file, ofGGUF(f)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if head = f.Tensors[0].First; head > maxJSON {
			return nil, fmt.Errorf("%w: the head of %s has %d bytes, of at most %d", ErrTooLarge, GGUFName, head,
				maxJSON)
		}
	}
	return f, nil
}
