package model_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// wide is config with a vocabulary for the tokenizer of 901 tokens.
func wide(t *testing.T, vocabulary string) []model.Part {
	t.Helper()
	data, err := os.ReadFile("../../internal/base/tokenizer/testdata/gpt2.json")
	testkit.NoError(t, "os.ReadFile", err)
	all := values(t)
	rows := 40
	if vocabulary != "40" {
		rows = 901
	}
	all[0].Shape = []int64{int64(rows), 32}
	all[0].Of = make([]float32, rows*32)
	text := strings.Replace(config, `"vocab_size":40`, `"vocab_size":`+vocabulary, 1)
	return []model.Part{
		part(model.ConfigName, []byte(strings.Replace(text, `"eos_token_id":2`, `"eos_token_id":[2,7]`, 1))),
		part(model.OneName, tensorsOf(t, all)), part(model.TokenizerName, data),
	}
}

// TestTokenizer: of a tokenizer.json with the ends of config.json, and of a GGUF file.
func TestTokenizer(t *testing.T) {
	store := open(t, t.TempDir())
	m, _, err := model.Load(t.Context(), store, "json", wide(t, "901"), model.About{})
	testkit.NoError(t, "Load", err)
	tok, err := model.Tokenizer(t.Context(), store, m)
	testkit.NoError(t, "Tokenizer", err)
	if got := tok.Ends(); !slices.Equal(got, []int32{1, 2, 7}) || tok.Size() != 901 {
		t.Errorf("Tokenizer: ends %v of %d tokens, want [1 2 7] of 901", got, tok.Size())
	}
	m, _, err = model.Load(t.Context(), store, "few", wide(t, "40"), model.About{})
	testkit.NoError(t, "Load", err)
	if _, err = model.Tokenizer(t.Context(), store, m); !errors.Is(err, model.ErrMismatch) {
		t.Errorf("Tokenizer of 901 tokens for a vocabulary of 40: %v, want an ErrMismatch", err)
	}

	data, err := os.ReadFile("../../examples/model/gopher.gguf")
	testkit.NoError(t, "os.ReadFile", err)
	m, _, err = model.Load(t.Context(), store, "gopher", []model.Part{part(model.GGUFName, data)}, model.About{})
	testkit.NoError(t, "Load", err)
	tok, err = model.Tokenizer(t.Context(), store, m)
	testkit.NoError(t, "Tokenizer", err)
	if begin, is := tok.Begin(); tok.Size() != 2048 || begin != 0 || !is || !slices.Equal(tok.Ends(), []int32{1}) {
		t.Errorf("Tokenizer of gopher: %d tokens, begin %d, ends %v, want 2048, 0, [1]", tok.Size(), begin, tok.Ends())
	}
}

// TestTokenizerDamaged: a model without a tokenizer, with one that is not computed, or whose file
// has changed.
func TestTokenizerDamaged(t *testing.T) {
	store := open(t, t.TempDir())
	parts := wide(t, "901")
	bare, _, err := model.Load(t.Context(), store, "bare", parts[:2], model.About{})
	testkit.NoError(t, "Load", err)
	empty, _, err := model.Load(t.Context(), store, "empty",
		[]model.Part{parts[0], parts[1], part(model.TokenizerName, []byte("{}"))}, model.About{})
	testkit.NoError(t, "Load", err)
	changed, _, err := model.Load(t.Context(), store, "changed", parts, model.About{})
	testkit.NoError(t, "Load", err)
	write := func(m *model.Manifest, name string, data []byte) {
		o, err := store.Create(t.Context(), model.Folder(m.Name)+"/"+name)
		if err == nil {
			if _, err = o.Write(data); err == nil {
				err = o.Commit()
			}
		}
		testkit.NoError(t, "write "+name, err)
	}
	write(changed, model.TokenizerName, []byte("[]"))
	data, err := os.ReadFile("../../examples/model/gopher.gguf")
	testkit.NoError(t, "os.ReadFile", err)
	cut, _, err := model.Load(t.Context(), store, "cut", []model.Part{part(model.GGUFName, data)}, model.About{})
	testkit.NoError(t, "Load", err)
	write(cut, model.GGUFName, data[:4096])
	for _, of := range []struct {
		m    *model.Manifest
		want error
		text string
	}{
		{bare, model.ErrMismatch, "model bare: model does not fit: it has no tokenizer"},
		{empty, tokenizer.ErrTokenizer, "model empty: tokenizer that cannot be used: tokenizer.json: model"},
		{changed, model.ErrCorrupt, "another SHA-256"},
		{cut, model.ErrCorrupt, "read the head of weights.gguf"},
	} {
		_, err := model.Tokenizer(t.Context(), store, of.m)
		if !errors.Is(err, of.want) || !strings.Contains(err.Error(), of.text) {
			t.Errorf("Tokenizer of %s: %v, want %v with %q", of.m.Name, err, of.want, of.text)
		}
	}
}
