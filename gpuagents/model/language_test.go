package model_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

const config = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":32,"intermediate_size":32,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":40,"max_position_embeddings":128,
"rms_norm_eps":1e-5,"tie_word_embeddings":true,"eos_token_id":2}`

// values are the tensors of a small model of config, with values that follow from their names.
func values(t testing.TB) []safetensors.Values {
	t.Helper()
	return valuesOf(t, config)
}

func valuesOf(t testing.TB, config string) []safetensors.Values {
	t.Helper()
	p, err := architecture.FromConfig([]byte(config))
	testkit.NoError(t, "architecture.FromConfig", err)
	r := rand.New(rand.NewPCG(1, 2))
	var all []safetensors.Values
	for _, of := range p.Tensors() {
		v := safetensors.Values{Name: of.Name, Shape: of.Shape}
		n := int64(1)
		for _, d := range of.Shape {
			n *= d
		}
		for range n {
			v.Of = append(v.Of, float32(r.NormFloat64()))
		}
		all = append(all, v)
	}
	return all
}

func part(name string, data []byte) model.Part {
	return model.Part{Name: name, Bytes: int64(len(data)), From: bytes.NewReader(data)}
}

func tensorsOf(t testing.TB, all []safetensors.Values) []byte {
	t.Helper()
	var b bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&b, all))
	return b.Bytes()
}

// several returns the files of a model in two files of safetensors, with names of transformers.
func several(t testing.TB) []model.Part {
	t.Helper()
	all := values(t)
	for i := range all {
		if all[i].Name == architecture.Embedding {
			all[i].Name = "model.embed_tokens.weight"
		}
	}
	index := map[string]string{}
	for i, v := range all {
		index[v.Name] = fmt.Sprintf("model-%d.safetensors", 2*i/len(all))
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": index})
	testkit.NoError(t, "json.Marshal", err)
	half := (len(all) + 1) / 2
	return []model.Part{
		part(model.ConfigName, []byte(config)), part(model.TokenizerName, []byte("{}")),
		part(safetensors.IndexName, text),
		part("model-0.safetensors", tensorsOf(t, all[:half])), part("model-1.safetensors", tensorsOf(t, all[half:])),
	}
}

// ofGGUF returns a GGUF file of the same model: its matrices are of type Q8_0.
func ofGGUF(t testing.TB, keys ...gguf.Pair) []byte {
	t.Helper()
	keys = append([]gguf.Pair{
		{Key: "general.architecture", Value: "llama"},
		{Key: "general.license", Value: "BSD-3-Clause"},
		{Key: "llama.block_count", Value: uint32(2)},
		{Key: "llama.context_length", Value: uint32(128)},
		{Key: "llama.embedding_length", Value: uint32(32)},
		{Key: "llama.feed_forward_length", Value: uint32(32)},
		{Key: "llama.attention.head_count", Value: uint32(2)},
		{Key: "llama.attention.head_count_kv", Value: uint32(1)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
	}, keys...)
	var all []gguf.Values
	for _, v := range values(t) {
		kind := quant.F32
		if len(v.Shape) == 2 {
			kind = quant.Q8_0
		}
		all = append(all, gguf.Values{Name: v.Name, Type: kind, Shape: v.Shape, Of: v.Of})
	}
	var b bytes.Buffer
	testkit.NoError(t, "gguf.Write", gguf.Write(&b, keys, all))
	return b.Bytes()
}

// TestGolden: the files of modeltest, which other tests load, are what the writers write.
func TestGolden(t *testing.T) {
	want := map[string][]byte{"small.gguf": ofGGUF(t)}
	for _, p := range several(t) {
		want["small/"+p.Name] = whole(t, p)
	}
	for name, data := range want {
		got, err := os.ReadFile("modeltest/" + name)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("modeltest/%s has %d bytes, %v, and the writer writes %d others", name, len(got), err, len(data))
		}
	}
}

// BenchmarkVerify reads, sums and decodes a model of 256 MiB from the page cache.
func BenchmarkVerify(b *testing.B) {
	large := strings.NewReplacer(`vocab_size":40`, `vocab_size":2097152`, `layers":2`, `layers":1`)
	p, err := architecture.FromConfig([]byte(large.Replace(config)))
	testkit.NoError(b, "architecture.FromConfig", err)
	var all []safetensors.Values
	for _, of := range p.Tensors() {
		n := int64(1)
		for _, d := range of.Shape {
			n *= d
		}
		all = append(all, safetensors.Values{Name: of.Name, Shape: of.Shape, Of: make([]float32, n)})
	}
	store := open(b, b.TempDir())
	m, _, err := model.Load(b.Context(), store, "m", []model.Part{
		part(model.ConfigName, []byte(large.Replace(config))), part(model.OneName, tensorsOf(b, all)),
	}, model.About{})
	testkit.NoError(b, "model.Load", err)
	b.SetBytes(m.Bytes())
	for b.Loop() {
		testkit.NoError(b, "Verify", m.Verify(b.Context(), store))
	}
}

// TestLoad: a model in several files and a GGUF file are stored, described, and read tensor by
// tensor; a second load of the same files changes nothing, and of others is refused.
func TestLoad(t *testing.T) {
	b, ctx := open(t, t.TempDir()), t.Context()
	for name, parts := range map[string][]model.Part{
		"several": several(t), "gguf": {part(model.GGUFName, ofGGUF(t))},
		"one": {part(model.ConfigName, []byte(config)), part(model.OneName, tensorsOf(t, values(t)))},
	} {
		m, digest, err := model.Load(ctx, b, name, parts, model.About{Source: "here"})
		if err != nil {
			t.Fatalf("Load of %s: %v", name, err)
		}
		again, same, err := model.Load(ctx, b, name, parts, model.About{Source: "here"})
		if err != nil || same != digest || gocmp.Diff(again, m) != "" {
			t.Errorf("Load of %s again: %v, %s, %s", name, err, same, gocmp.Diff(again, m))
		}
		_, _, err = model.Load(ctx, b, name, parts, model.About{Source: "there"})
		if !errors.Is(err, model.ErrExists) {
			t.Errorf("Load of %s from elsewhere: %v, want an ErrExists", name, err)
		}
		m, found, err := model.ReadManifest(ctx, b, name)
		if err != nil || found != digest || m.Version != 2 || m.Parameters.Layers != 2 ||
			m.Parameters.Vocabulary != 40 || m.Source != "here" || (m.Licence == "BSD-3-Clause") != (name == "gguf") ||
			(m.Tokenizer == "") != (name == "one") {
			t.Errorf("ReadManifest of %s: %+v, %s, %v", name, m, found, err)
		}
		testkit.NoError(t, "Verify", m.Verify(ctx, b))
		got := map[string][]float32{}
		testkit.NoError(t, "Each", m.Each(ctx, b, func(of model.Tensor, n int64, r io.Reader) error {
			data, err := io.ReadAll(r)
			elements, size, _ := quant.Block(of.Type)
			into := make([]float32, n/size*elements)
			got[architecture.Canonical(of.Name)] = into
			return cmp.Or(err, quant.Decode(of.Type, into, data))
		}))
		for _, want := range values(t) {
			bound := 0.0
			if name == "gguf" {
				bound = 0.03
			}
			if len(got[want.Name]) != len(want.Of) {
				t.Fatalf("%s: tensor %s has %d elements, want %d", name, want.Name, len(got[want.Name]), len(want.Of))
			}
			for i, v := range want.Of {
				if off := math.Abs(float64(got[want.Name][i] - v)); off > bound {
					t.Fatalf("%s: tensor %s, element %d: %v, want %v", name, want.Name, i, got[want.Name][i], v)
				}
			}
		}
	}
}

// TestLoadDamaged: every flipped byte and every cut of a file of a language model is found.
func TestLoadDamaged(t *testing.T) {
	for name, parts := range map[string][]model.Part{"several": several(t), "gguf": {part(model.GGUFName, ofGGUF(t))}} {
		dir := t.TempDir()
		b, ctx := open(t, dir), t.Context()
		m, _, err := model.Load(ctx, b, name, parts, model.About{})
		testkit.NoError(t, "model.Load", err)
		for _, f := range m.Files {
			file := filepath.Join(dir, model.Folder(name), f.Name)
			whole, err := os.ReadFile(file)
			testkit.NoError(t, "os.ReadFile", err)
			for at := 0; at < len(whole); at += 1 + len(whole)/37 {
				flipped := bytes.Clone(whole)
				flipped[at] ^= 1
				for _, bad := range [][]byte{flipped, whole[:at], append(bytes.Clone(whole), 0)} {
					testkit.NoError(t, "os.WriteFile", os.WriteFile(file, bad, 0o600))
					if err := m.Verify(ctx, b); !errors.Is(err, model.ErrCorrupt) ||
						!strings.Contains(err.Error(), name) {
						t.Fatalf("byte %d of %s is changed, or it has %d bytes: %v, want an ErrCorrupt", at, f.Name,
							len(bad), err)
					}
				}
			}
			testkit.NoError(t, "os.Remove", os.Remove(file))
			if err := m.Verify(ctx, b); !errors.Is(err, model.ErrCorrupt) ||
				!strings.Contains(err.Error(), "is missing") {
				t.Fatalf("without %s: %v, want an ErrCorrupt", f.Name, err)
			}
			testkit.NoError(t, "os.WriteFile", os.WriteFile(file, whole, 0o600))
		}
		testkit.NoError(t, "Verify", m.Verify(ctx, b))
		stop := errors.New("stop")
		if err := m.Each(ctx, b, func(model.Tensor, int64, io.Reader) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("Each with a function that fails: %v, want its error", err)
		}
	}
}

// TestLoadRefuses: files that are no language model are refused before anything is stored.
func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	b, ctx := open(t, dir), t.Context()
	all := several(t)
	without := func(i int) []model.Part { return slices.Delete(slices.Clone(all), i, i+1) }
	with := func(i int, data string) []model.Part {
		parts := slices.Clone(all)
		parts[i] = part(parts[i].Name, []byte(data))
		return parts
	}
	for want, of := range map[string]struct {
		parts []model.Part
		class error
	}{
		"0 files":                    {nil, model.ErrFiles},
		"config.json is missing":     {without(0), model.ErrFiles},
		"is one of them missing":     {without(4), model.ErrFiles},
		"token_embd.weight of shape": {slices.Delete(slices.Clone(all), 2, 5), nil},
		"model.safetensors.index":    {with(2, `{"weight_map":{"a":"b.safetensors"}}`), model.ErrFiles},
		`model-0.safetensors, and model.safetensors.index.json says "model-1.safetensors"`: {
			with(2, strings.NewReplacer("model-0", "model-1", "model-1", "model-0").Replace(
				string(whole(t, all[2])))),
			model.ErrFiles,
		},
		"not a safetensors file": {with(4, "12345678{}"), safetensors.ErrFormat},
		"layers 0: use": {
			with(0, strings.Replace(config, `layers":2`, `layers":0`, 1)),
			architecture.ErrArchitecture,
		},
		"are the same: remove one": {
			append(slices.Clone(all[:2]), all[3], all[4], part("x.safetensors", whole(t, all[3]))),
			architecture.ErrArchitecture,
		},
		"is there twice": {append(slices.Clone(all), all[1]), model.ErrFiles},
		`file "../x.safetensors"`: {
			append(without(2), part("../x.safetensors", tensorsOf(t, nil))),
			model.ErrFiles,
		},
		`file "setup.py": use`:   {append(without(2), part("setup.py", nil)), model.ErrFiles},
		"weights.gguf is beside": {[]model.Part{part(model.GGUFName, nil), all[0]}, model.ErrFiles},
		"not a GGUF file":        {[]model.Part{part(model.GGUFName, nil)}, gguf.ErrFormat},
		"elements of type I64":   {[]model.Part{all[0], part(model.OneName, integers(t))}, model.ErrFiles},
		"llama.logit_scale: this key": {
			[]model.Part{part(model.GGUFName, ofGGUF(t, gguf.Pair{Key: "llama.logit_scale", Value: float32(2)}))},
			architecture.ErrArchitecture,
		},
	} {
		class := of.class
		if class == nil {
			class = architecture.ErrArchitecture
		}
		_, _, err := model.Load(ctx, b, "m", of.parts, model.About{})
		if !errors.Is(err, class) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Load: %v, want %v with %q", err, class, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v are stored, want nothing", entries, err)
	}
	short := part(model.GGUFName, ofGGUF(t))
	short.From = io.NewSectionReader(short.From, 0, short.Bytes-1)
	if _, _, err := model.Load(ctx, b, "m", []model.Part{short}, model.About{}); err == nil ||
		!strings.Contains(err.Error(), "it was cut short") {
		t.Errorf("Load of a file that is cut short while it is read: %v, want an error", err)
	}
	if _, _, err := model.ReadManifest(ctx, b, "m"); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("ReadManifest: %v, want an ErrNotFound", err)
	}
}

func whole(t testing.TB, p model.Part) []byte {
	t.Helper()
	data := make([]byte, p.Bytes)
	_, err := p.From.ReadAt(data, 0)
	testkit.NoError(t, "ReadAt", err)
	return data
}

// integers returns a file of safetensors whose first tensor is of integers.
func integers(t testing.TB) []byte {
	t.Helper()
	data := tensorsOf(t, []safetensors.Values{{Name: "abc", Shape: []int64{2}, Of: []float32{0, 0}}})
	return bytes.Replace(bytes.Replace(data, []byte("F32"), []byte("I64"), 1), []byte("[2]"), []byte("[1]"), 1)
}

// TestVerifyValues: a value that is not finite is found with its place.
func TestVerifyValues(t *testing.T) {
	all := values(t)
	all[0].Of[77] = float32(math.Inf(-1))
	b := open(t, t.TempDir())
	m, _, err := model.Load(t.Context(), b, "m", []model.Part{
		part(model.ConfigName, []byte(config)), part(model.OneName, tensorsOf(t, all)),
	}, model.About{})
	testkit.NoError(t, "model.Load", err)
	if err := m.Verify(t.Context(), b); !errors.Is(err, model.ErrCorrupt) ||
		!strings.Contains(err.Error(), "value 77 of tensor token_embd.weight is -Inf") {
		t.Errorf("Verify: %v, want an ErrCorrupt with the place", err)
	}
}

// TestVerifyTensors: a manifest whose checksums are right and whose tensors are not is found.
func TestVerifyTensors(t *testing.T) {
	b := open(t, t.TempDir())
	m, _, err := model.Load(t.Context(), b, "m", []model.Part{part(model.GGUFName, ofGGUF(t))}, model.About{})
	testkit.NoError(t, "model.Load", err)
	named := func(end string) *model.Tensor {
		return &m.Tensors[slices.IndexFunc(m.Tensors, func(of model.Tensor) bool {
			return strings.HasSuffix(of.Name, end)
		})]
	}
	gate, up := named("ffn_gate.weight"), named("ffn_up.weight")
	gate.Name, up.Name = up.Name, gate.Name
	if err := m.Verify(t.Context(), b); !errors.Is(err, model.ErrCorrupt) ||
		!strings.Contains(err.Error(), "weights.gguf has other tensors than the manifest") {
		t.Errorf("Verify: %v, want an ErrCorrupt", err)
	}
}

// TestLanguageFits: a gru does not take a language model.
func TestLanguageFits(t *testing.T) {
	b := open(t, t.TempDir())
	m, _, err := model.Load(t.Context(), b, "m", several(t), model.About{})
	testkit.NoError(t, "model.Load", err)
	if _, err := m.Table(t.Context(), b, cell(t, 3, 8)); !errors.Is(err, model.ErrMismatch) {
		t.Errorf("Table: %v, want an ErrMismatch", err)
	}
}
