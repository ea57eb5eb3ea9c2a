package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
)

// maxConfig is the most bytes of a config.json.
const maxConfig = 1 << 20

// ignored are the keys of a config.json that change nothing that is computed.
var ignored = []string{
	"_name_or_path", "attention_dropout", "chunk_size_feed_forward", "dtype", "id2label", "initializer_range",
	"is_encoder_decoder", "label2id", "output_attentions", "output_hidden_states", "pad_token_id", "problem_type",
	"return_dict", "torch_dtype", "transformers_version", "use_cache",
}

// object reads a JSON object whose keys are there once.
func object(data []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("an object is expected"), err)
	}
	all := map[string]json.RawMessage{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("key %.100q: %w", key, err)
		}
		if _, again := all[key]; again {
			return nil, fmt.Errorf("key %.100q is there twice: remove one", key)
		}
		all[key] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than spaces follow the object")
	}
	return all, nil
}

// config takes the keys of an object one by one. It keeps the first error. What is left at the end
// is unknown.
type config struct {
	of   map[string]json.RawMessage
	path string // before the names of keys, in errors
	err  error
}

func (c *config) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = refuse("config.json: %s%s: %s", c.path, key, fmt.Sprintf(format, args...))
	}
}

// take decodes the value of a key into to, and reports whether there is one; null is none.
func (c *config) take(key string, to any) bool {
	data, there := c.of[key]
	delete(c.of, key)
	if !there || string(data) == "null" {
		return false
	}
	if err := json.Unmarshal(data, to); err != nil {
		c.fail(key, "%v", err)
		return false
	}
	return true
}

// number takes a whole number; without the key it is the default, or an error if that is negative.
func (c *config) number(key string, otherwise int) (n int) {
	if c.take(key, &n) {
		return n
	}
	if otherwise < 0 {
		c.fail(key, "it is missing: is the file whole?")
	}
	return otherwise
}

// must takes a key that has one value or is absent.
func must[T comparable](c *config, key string, value T) {
	var is T
	if c.take(key, &is) && is != value {
		c.fail(key, "%s: only %v is computed", short(is), value)
	}
}

// unknown is the error of a key that nobody knows.
const unknown = "this key is unknown, and may change what the model computes: if it does not, remove it"

// rest fails on the first key, by name, that nobody has taken. A null says nothing.
func (c *config) rest() {
	for _, key := range slices.Sorted(maps.Keys(c.of)) {
		if string(c.of[key]) != "null" {
			c.fail(fmt.Sprintf("%.100q", key), "%s", unknown)
		}
	}
}

// classes are the classes of transformers that compute a family.
var classes = map[string]string{
	Llama: "LlamaForCausalLM", Mistral: "MistralForCausalLM", Qwen2: "Qwen2ForCausalLM", Qwen3: "Qwen3ForCausalLM",
}

// FromConfig reads the parameters of a model from its config.json, as transformers writes it. Keys
// that are unknown are refused, as they may change what the model computes. The error is an
// ErrArchitecture that names the key.
func FromConfig(data []byte) (*Parameters, error) {
	if len(data) > maxConfig {
		return nil, refuse("config.json has %d bytes: at most %d are read", len(data), maxConfig)
	}
	all, err := object(data)
	if err != nil {
		return nil, refuse("config.json: %v", err)
	}
	c, p := &config{of: all}, &Parameters{}
	for _, key := range ignored {
		delete(all, key)
	}
	var architectures []string
	c.take("model_type", &p.Family)
	class := classes[p.Family]
	if c.err == nil && class == "" {
		return nil, refuse("config.json: model_type %.100q: llama, mistral, qwen2 and qwen3 are computed", p.Family)
	}
	if c.take("architectures", &architectures) && !slices.Equal(architectures, []string{class}) {
		c.fail("architectures", "%.100q: only %s is computed for the type %s", architectures, class, p.Family)
	}
	p.Width, p.Inner = c.number("hidden_size", -1), c.number("intermediate_size", -1)
	p.Layers, p.Heads = c.number("num_hidden_layers", -1), c.number("num_attention_heads", -1)
	p.Vocabulary, p.Context = c.number("vocab_size", -1), c.number("max_position_embeddings", -1)
	heads := -1
	if p.Family == Llama {
		heads = p.Heads
	}
	p.KVHeads = c.number("num_key_value_heads", heads)
	width := 0
	if p.Family == Qwen3 {
		width = -1 // its default is a number of its own
	} else if p.Heads > 0 && p.Width%p.Heads == 0 {
		width = p.Width / p.Heads
	}
	if p.HeadWidth = c.number("head_dim", width); c.err == nil && p.HeadWidth == 0 {
		c.fail("hidden_size", "%d is no multiple of num_attention_heads, %d: name head_dim", p.Width, p.Heads)
	}
	if !c.take("rms_norm_eps", &p.Epsilon) {
		c.fail("rms_norm_eps", "it is missing: is the file whole?")
	}
	c.take("tie_word_embeddings", &p.Tied)
	must(c, "hidden_act", "silu")
	must(c, "mlp_bias", false)
	must(c, "pretraining_tp", 1)
	must(c, "partial_rotary_factor", 1.0)
	p.Bias, p.HeadNorms = p.Family == Qwen2, p.Family == Qwen3
	must(c, "attention_bias", p.Bias)
	c.rope(&p.Rope)
	c.window(p)
	c.tokens(p)
	c.rest()
	if c.err != nil {
		return nil, c.err
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return p, nil
}

// rope takes the keys of rotary positions: rope_parameters of transformers 5, or rope_theta and
// rope_scaling of those before.
func (c *config) rope(r *Rope) {
	r.Theta = 10000
	c.take("rope_theta", &r.Theta)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		var data json.RawMessage
		if !c.take(key, &data) {
			continue
		}
		all, err := object(data)
		if err != nil {
			c.fail(key, "%v", err)
			return
		}
		in := &config{of: all, path: key + "."}
		kind := "default"
		in.take("type", &kind)
		in.take("rope_type", &kind)
		in.take("rope_theta", &r.Theta)
		must(in, "partial_rotary_factor", 1.0)
		switch kind {
		case "default":
			in.take("factor", new(float64))
		case Linear:
			r.Scaling = kind
			in.take("factor", &r.Factor)
		case Llama3:
			r.Scaling = kind
			in.take("factor", &r.Factor)
			in.take("low_freq_factor", &r.Low)
			in.take("high_freq_factor", &r.High)
			in.take("original_max_position_embeddings", &r.Original)
		default:
			in.fail("rope_type", "%.100q: default, linear and llama3 are computed", kind)
		}
		in.rest()
		if c.err == nil {
			c.err = in.err
		}
	}
}

// window takes the keys of a sliding window. All layers have it, or none.
func (c *config) window(p *Parameters) {
	window := c.number("sliding_window", 0)
	c.number("max_window_layers", 0)
	use, kinds := p.Family == Mistral, []string(nil)
	c.take("use_sliding_window", &use)
	c.take("layer_types", &kinds)
	kinds = slices.Compact(kinds)
	switch {
	case window == 0 || !use && !slices.Contains(kinds, "sliding_attention"):
	case len(kinds) == 1 && kinds[0] == "full_attention":
	case p.Family == Mistral && len(kinds) == 0, len(kinds) == 1 && kinds[0] == "sliding_attention":
		p.Window = window
	default:
		c.fail("sliding_window", "%d with layers %.100q: a window in all layers or in none is computed", window, kinds)
	}
}

// tokens takes the tokens of the beginning and the end, each a number or a list.
func (c *config) tokens(p *Parameters) {
	if begin := 0; c.take("bos_token_id", &begin) {
		p.Begin = &begin
	}
	var value any
	if !c.take("eos_token_id", &value) {
		return
	}
	list, is := value.([]any)
	if !is {
		list = []any{value}
	}
	for _, v := range list {
		n, is := v.(float64)
		if !is || n != math.Trunc(n) || math.Abs(n) > maxVocabulary {
			c.fail("eos_token_id", "%s: use a token or a list of tokens", short(v))
			return
		}
		p.End = append(p.End, int(n))
	}
}
