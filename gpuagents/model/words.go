package model

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// maxHead is the most bytes of a GGUF file up to the end of its keys.
const maxHead = 512 << 20

// ReadTokenizer reads the tokenizer of a language model. ErrFiles: the model has none. The errors of
// package tokenizer say what is wrong with it.
func (m *Manifest) ReadTokenizer(ctx context.Context, store snapshot.Store) (_ *tokenizer.Tokenizer, err error) {
	if m.Tokenizer == "" {
		return nil, fmt.Errorf("model %s: %w: it has no tokenizer: load it with its tokenizer.json", m.Name, ErrFiles)
	}
	r, err := store.Open(ctx, Folder(m.Name)+"/"+m.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.Name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if m.Tokenizer != GGUFName {
		data, err := io.ReadAll(io.LimitReader(r, maxJSON+1))
		if err == nil && len(data) > maxJSON {
			err = fmt.Errorf("%w: it has more than %d bytes", ErrTooLarge, maxJSON)
		}
		var t *tokenizer.Tokenizer
		if err == nil {
			t, err = tokenizer.Parse(data)
		}
		if err != nil {
			return nil, fmt.Errorf("model %s: %s: %w", m.Name, m.Tokenizer, err)
		}
		return t, nil
	}
	f, err := gguf.Open(&beginning{r: r}, m.Bytes())
	var t *tokenizer.Tokenizer
	if err == nil {
		t, err = tokenizer.FromGGUF(f)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %s: %w", m.Name, m.Tokenizer, err)
	}
	return t, nil
}

// beginning is a stream whose first bytes are read at any place. It keeps what it has read.
type beginning struct {
	r    io.Reader
	data []byte
}

func (b *beginning) ReadAt(p []byte, at int64) (int, error) {
	end := at + int64(len(p))
	if end > maxHead {
		return 0, fmt.Errorf("%w: its keys take more than %d bytes", ErrTooLarge, maxHead)
	}
	if more := end - int64(len(b.data)); more > 0 {
		next := make([]byte, max(more, 1<<20))
		n, err := io.ReadAtLeast(b.r, next, int(more))
		b.data = append(b.data, next[:n]...)
		if err != nil && int64(len(b.data)) <= at {
			return 0, err
		}
	}
	n := copy(p, b.data[at:])
	if n < len(p) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}
