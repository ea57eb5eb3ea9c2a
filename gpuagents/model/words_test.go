package model_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// TestReadTokenizer: the tokenizer that a model in a place has is the one of its file. A model
// without one, and a tokenizer that is none, are refused.
func TestReadTokenizer(t *testing.T) {
	store := open(t, t.TempDir())
	data, err := os.ReadFile("../../examples/model/gopher.gguf")
	testkit.NoError(t, "os.ReadFile", err)
	m, _, err := model.Load(t.Context(), store, "gopher", []model.Part{part(model.GGUFName, data)}, model.About{})
	testkit.NoError(t, "model.Load", err)
	got, err := m.ReadTokenizer(t.Context(), store)
	testkit.NoError(t, "ReadTokenizer", err)
	f, err := gguf.Open(bytes.NewReader(data), int64(len(data)))
	testkit.NoError(t, "gguf.Open", err)
	want, err := tokenizer.FromGGUF(f)
	testkit.NoError(t, "tokenizer.FromGGUF", err)
	if got.Size() != want.Size() || got.Size() != m.Parameters.Vocabulary {
		t.Errorf("%d tokens, want %d and %d", got.Size(), want.Size(), m.Parameters.Vocabulary)
	}
	small, _, err := model.Load(t.Context(), store, "several", several(t), model.About{})
	testkit.NoError(t, "model.Load", err)
	if _, err := small.ReadTokenizer(t.Context(), store); err == nil {
		t.Error("a tokenizer.json that is {} is read")
	}
	small.Tokenizer = ""
	if _, err := small.ReadTokenizer(t.Context(), store); !errors.Is(err, model.ErrFiles) {
		t.Errorf("without a tokenizer: %v, want %v", err, model.ErrFiles)
	}
}
