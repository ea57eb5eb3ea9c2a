package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// base is the config.json of a small model of each family, as transformers writes it.
func base(family string) map[string]any {
	m := map[string]any{
		"model_type": family, "architectures": []string{classes[family]}, "hidden_size": 64, "intermediate_size": 176,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
		"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "hidden_act": "silu",
		"bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32", "transformers_version": "5.1.0",
		"use_cache":         true,
		"initializer_range": 0.02, "attention_dropout": 0.0,
	}
	switch family {
	case Llama:
		m["rope_parameters"] = map[string]any{"rope_theta": 500000.0, "rope_type": "default"}
		m["mlp_bias"], m["attention_bias"], m["pretraining_tp"], m["head_dim"] = false, false, 1, 16
	case Mistral:
		m["sliding_window"], m["rope_theta"] = 128, 10000.0
	case Qwen2:
		m["use_sliding_window"], m["sliding_window"], m["max_window_layers"] = false, 4096, 28
		m["layer_types"] = []string{"full_attention", "full_attention"}
	case Qwen3:
		m["head_dim"], m["attention_bias"], m["tie_word_embeddings"] = 32, false, true
		m["eos_token_id"] = []int{2, 3}
	}
	return m
}

func text(m map[string]any) []byte {
	data, _ := json.Marshal(m)
	return data
}

func TestFromConfig(t *testing.T) {
	one := 1
	common := Parameters{
		Layers: 2, Width: 64, Inner: 176, Heads: 4, KVHeads: 2, HeadWidth: 16, Vocabulary: 256, Context: 512,
		Epsilon: 1e-6, Rope: Rope{Theta: 10000}, Begin: &one, End: []int{2},
	}
	for family, change := range map[string]func(p *Parameters){
		Llama:   func(p *Parameters) { p.Rope.Theta = 500000 },
		Mistral: func(p *Parameters) { p.Window = 128 },
		Qwen2:   func(p *Parameters) { p.Bias = true },
		Qwen3:   func(p *Parameters) { p.HeadWidth, p.HeadNorms, p.Tied, p.End = 32, true, true, []int{2, 3} },
	} {
		want := common
		want.Family = family
		change(&want)
		got, err := FromConfig(text(base(family)))
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("FromConfig of %s: %+v, %v, want %+v", family, got, err, want)
		}
	}
	for name, of := range map[string]struct {
		key   string
		value any
		want  Rope
	}{
		"linear": {
			"rope_scaling",
			map[string]any{"type": "linear", "factor": 2.0},
			Rope{Theta: 10000, Scaling: Linear, Factor: 2},
		},
		"llama3": {
			"rope_parameters",
			map[string]any{
				"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
				"high_freq_factor": 4.0, "original_max_position_embeddings": 256,
			},
			Rope{Theta: 5e5, Scaling: Llama3, Factor: 8, Low: 1, High: 4, Original: 256},
		},
	} {
		m := base(Mistral)
		m[of.key] = of.value
		if got, err := FromConfig(text(m)); err != nil || got.Rope != of.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, of.want)
		}
	}
}

// changes are members of a config.json of a family that are refused, and a part of the error.
var changes = []struct {
	family, key string
	value       any // nil: without the key
	want        string
}{
	{Llama, "model_type", "gemma", `model_type "gemma"`},
	{Llama, "architectures", []string{"LlamaForSequenceClassification"}, "only LlamaForCausalLM"},
	{Llama, "hidden_size", nil, "hidden_size: it is missing"},
	{Llama, "hidden_size", "64", "hidden_size: json"},
	{Llama, "hidden_size", 1 << 40, "width 1099511627776: use 1 to 65536"},
	{Llama, "num_hidden_layers", 0, "layers 0: use 1 to 1024"},
	{Llama, "num_hidden_layers", -1, "layers -1"},
	{Llama, "num_key_value_heads", 3, "4 heads are no multiple of 3"},
	{Llama, "head_dim", 15, "a head of 15 values"},
	{Llama, "vocab_size", 1 << 30, "vocabulary 1073741824"},
	{Llama, "rms_norm_eps", 0, "epsilon 0"},
	{Llama, "hidden_act", "gelu", "hidden_act: gelu: only silu"},
	{Llama, "mlp_bias", true, "mlp_bias: true: only false"},
	{Llama, "attention_bias", true, "attention_bias: true"},
	{Llama, "partial_rotary_factor", 0.5, "partial_rotary_factor"},
	{Llama, "eos_token_id", 256, "tokens of the end [256]"},
	{Llama, "eos_token_id", "x", "eos_token_id: x: use a token"},
	{Llama, "bos_token_id", -1, "token of the beginning -1"},
	{Llama, "quantization_config", map[string]any{"bits": 4}, `"quantization_config": this key is unknown`},
	{Llama, "num_experts", 8, `"num_experts"`},
	{Llama, "logit_scale", 2.0, `"logit_scale"`},
	{Llama, "rope_parameters", map[string]any{"rope_type": "yarn"}, `rope_parameters.rope_type: "yarn"`},
	{Llama, "rope_parameters", map[string]any{"mrope_section": []int{1}}, `rope_parameters."mrope_section"`},
	{Llama, "rope_parameters", map[string]any{"rope_type": "linear"}, "linear scaling by 0"},
	{Llama, "rope_parameters", map[string]any{"rope_type": "llama3", "factor": 8}, "llama3 scaling"},
	{Llama, "rope_parameters", map[string]any{"rope_theta": 0}, "base of rotary positions 0"},
	{Llama, "rope_parameters", 5, "rope_parameters: an object"},
	{Mistral, "num_key_value_heads", nil, "num_key_value_heads: it is missing"},
	{Mistral, "sliding_window", -5, "window -5"},
	{Qwen2, "layer_types", []string{"full_attention", "sliding_attention"}, "sliding_window: 4096"},
	{Qwen3, "head_dim", nil, "head_dim: it is missing"},
}

func TestFromConfigRefuses(t *testing.T) {
	for _, of := range changes {
		m := base(of.family)
		if m[of.key] = of.value; of.value == nil {
			delete(m, of.key)
		}
		_, err := FromConfig(text(m))
		if !errors.Is(err, ErrArchitecture) || !strings.Contains(err.Error(), of.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s, %s %v: %v, want an ErrArchitecture with %q", of.family, of.key, of.value, err, of.want)
		}
	}
	for data, want := range map[string]string{
		"": "an object", "[]": "an object", "{": "EOF", "{} {}": "more than spaces", `{"a":1,"a":2}`: "there twice",
		strings.Repeat("[", 1<<20) + "]": "at most",
	} {
		if _, err := FromConfig([]byte(data)); !errors.Is(err, ErrArchitecture) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("FromConfig of %.20q: %v, want an ErrArchitecture with %q", data, err, want)
		}
	}
}

// ggufKeysOf are the keys of a small model of a family, as convert_hf_to_gguf.py of llama.cpp names
// them.
func ggufKeysOf(family string) map[string]any {
	m := map[string]any{
		"general.architecture": family, "general.type": "model", "general.name": "small",
		"general.file_type":     uint32(0),
		family + ".block_count": uint32(2), family + ".context_length": uint32(512),
		family + ".embedding_length": uint32(64), family + ".feed_forward_length": uint32(176),
		family + ".attention.head_count": uint32(4), family + ".attention.head_count_kv": uint32(2),
		family + ".attention.layer_norm_rms_epsilon": float32(1e-6), family + ".rope.freq_base": float32(500000),
		"tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.eos_token_id": uint32(2),
		"tokenizer.ggml.model": "gpt2",
	}
	switch family {
	case Llama:
		m["llama.rope.dimension_count"], m["llama.vocab_size"] = uint32(16), uint32(256)
	case Qwen3:
		m["qwen3.attention.key_length"], m["qwen3.attention.value_length"] = uint32(32), uint32(32)
	}
	return m
}

func file(t testing.TB, keys map[string]any, tensors []Tensor) *gguf.File {
	t.Helper()
	var pairs []gguf.Pair
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		pairs = append(pairs, gguf.Pair{Key: k, Value: keys[k]})
	}
	var all []gguf.Values
	for _, of := range tensors {
		n := int64(1)
		for _, d := range of.Shape {
			n *= d
		}
		all = append(all, gguf.Values{Name: of.Name, Type: "F32", Shape: of.Shape, Of: make([]float32, n)})
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, pairs, all); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var embedding = Tensor{Embedding, []int64{256, 64}}

func TestFromGGUF(t *testing.T) {
	for _, family := range []string{Llama, Qwen2, Qwen3} {
		want, err := FromConfig(text(base(family)))
		if err != nil {
			t.Fatal(err)
		}
		want.Rope.Theta, want.Rope.Pairs, want.End = 500000, family == Llama, []int{2}
		tensors := []Tensor{embedding}
		if !want.Tied {
			tensors = append(tensors, Tensor{Head, embedding.Shape})
		}
		got, err := FromGGUF(file(t, ggufKeysOf(family), tensors))
		if err == nil {
			want.Epsilon = got.Epsilon // it is a float32
		}
		if err != nil || !reflect.DeepEqual(got, want) || got.Epsilon != float64(float32(1e-6)) {
			t.Errorf("FromGGUF of %s: %+v, %v, want %+v", family, got, err, want)
		}
	}
	k := ggufKeysOf(Llama)
	k["llama.rope.scaling.type"], k["llama.rope.scaling.factor"] = "linear", float32(4)
	if got, err := FromGGUF(file(t, k, []Tensor{embedding})); err != nil || got.Rope.Scaling != Linear ||
		got.Rope.Factor != 4 {
		t.Errorf("linear scaling: %+v, %v", got, err)
	}
	got, err := FromGGUF(file(t, ggufKeysOf(Llama), []Tensor{embedding, {RopeFreqs, []int64{8}}}))
	if err != nil || got.Rope.Scaling != Factors {
		t.Errorf("a tensor of factors: %+v, %v", got, err)
	}
}

func TestFromGGUFRefuses(t *testing.T) {
	for _, of := range []struct {
		key   string
		value any
		want  string
	}{
		{"general.architecture", "gemma3", `"gemma3": llama, qwen2`},
		{"general.architecture", uint32(1), "use a text"},
		{"general.type", "adapter", "adapter: only model"},
		{"split.count", uint32(3), "gguf-split --merge"},
		{"llama.expert_count", uint32(8), "llama.expert_count: 8: only 0"},
		{"llama.logit_scale", float32(2), "llama.logit_scale: this key is unknown"},
		{"llama.block_count", uint64(1 << 60), "layers 2147483648"},
		{"llama.block_count", nil, "llama.block_count: it is missing"},
		{"llama.attention.head_count", uint32(0), "is no multiple of 0 heads"},
		{"llama.attention.head_count", []int32{4, 4}, "it is an array"},
		{"llama.rope.dimension_count", uint32(8), "8: only 16"},
		{"llama.rope.scaling.type", "yarn", `"yarn": none and linear`},
		{"llama.vocab_size", uint32(300), "300: only 256"},
		{"llama.attention.layer_norm_rms_epsilon", uint32(1), "use a float"},
		{"llama.attention.causal", false, "false: only true"},
	} {
		k := ggufKeysOf(Llama)
		if k[of.key] = of.value; of.value == nil {
			delete(k, of.key)
		}
		_, err := FromGGUF(file(t, k, []Tensor{embedding}))
		if !errors.Is(err, ErrArchitecture) || !strings.Contains(err.Error(), of.want) {
			t.Errorf("%s %v: %v, want an ErrArchitecture with %q", of.key, of.value, err, of.want)
		}
	}
	if _, err := FromGGUF(file(t, ggufKeysOf(Llama), nil)); !errors.Is(err, ErrArchitecture) {
		t.Errorf("a file without tensors: %v, want an ErrArchitecture", err)
	}
}

// TestCheck: the tensors of both conventions fit the parameters, and any other is named.
func TestCheck(t *testing.T) {
	other := map[string]string{}
	for from, to := range hugging {
		other[to] = from
	}
	for _, family := range families {
		p, err := FromConfig(text(base(family)))
		if err != nil {
			t.Fatal(err)
		}
		canonical := p.Tensors()
		hf := slices.Clone(canonical)
		for i, of := range hf {
			var layer int
			var end string
			if n, _ := fmt.Sscanf(of.Name, "blk.%d.%s", &layer, &end); n == 2 {
				hf[i].Name = fmt.Sprintf("model.layers.%d.%s", layer, other[end])
				continue
			}
			hf[i].Name = map[string]string{
				Embedding: "model.embed_tokens.weight", LastNorm: "model.norm.weight", Head: "lm_head.weight",
			}[of.Name]
		}
		table := Tensor{Name: "model.layers.0.self_attn.rotary_emb.inv_freq"}
		for _, all := range [][]Tensor{canonical, hf, append(slices.Clone(hf), table)} {
			if err := p.Check(all); err != nil {
				t.Errorf("%s: %v", family, err)
			}
		}
		shape := slices.Clone(hf)
		shape[1].Shape = []int64{1}
		for want, bad := range map[string][]Tensor{
			"token_embd.weight of shape [256 64] is missing": hf[1:],
			"input_layernorm.weight has the shape [1], and":  shape,
			"are the same: remove one":                       append(slices.Clone(hf), canonical[0]),
			"tensor model.layers.2.self_attn.q_proj.weight is none of the": append(slices.Clone(hf),
				Tensor{"model.layers.2.self_attn.q_proj.weight", nil}),
			"tensor model.layers.0.self_attn.sinks is none of the family " + family: append(slices.Clone(hf),
				Tensor{"model.layers.0.self_attn.sinks", nil}),
		} {
			if err := p.Check(bad); !errors.Is(err, ErrArchitecture) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want an ErrArchitecture with %q", family, err, want)
			}
		}
	}
}

// FuzzFromConfig: any bytes are an ErrArchitecture, or valid parameters.
func FuzzFromConfig(f *testing.F) {
	for _, family := range families {
		f.Add(text(base(family)))
	}
	for _, of := range changes {
		m := base(of.family)
		m[of.key] = of.value
		f.Add(text(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := FromConfig(data)
		switch {
		case err == nil && p.Validate() != nil:
			t.Fatalf("%+v is read: %v", p, p.Validate())
		case err != nil && !errors.Is(err, ErrArchitecture):
			t.Fatalf("FromConfig: %v, want an ErrArchitecture", err)
		}
	})
}

// FuzzFromGGUF: any file that can be opened is an ErrArchitecture, an error of the file, or valid
// parameters whose tensors can be compared.
func FuzzFromGGUF(f *testing.F) {
	var b bytes.Buffer
	var pairs []gguf.Pair
	for k, v := range ggufKeysOf(Qwen3) {
		pairs = append(pairs, gguf.Pair{Key: k, Value: v})
	}
	one := gguf.Values{Name: Embedding, Type: "F32", Shape: []int64{1, 1}, Of: []float32{0}}
	if err := gguf.Write(&b, pairs, []gguf.Values{one}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		of, err := gguf.Open(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		p, err := FromGGUF(of)
		switch {
		case err != nil && !errors.Is(err, ErrArchitecture) && !errors.Is(err, gguf.ErrFormat) &&
			!errors.Is(err, gguf.ErrValue):
			t.Fatalf("FromGGUF: %v, want an error of the packages", err)
		case err == nil:
			_ = p.Check(nil)
		}
	})
}
