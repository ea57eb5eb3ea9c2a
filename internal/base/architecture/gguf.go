package architecture

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// ggufKeys are the known keys of an architecture in a GGUF file, behind its name and a dot.
var ggufKeys = []string{
	"attention.causal", "attention.head_count", "attention.head_count_kv", "attention.key_length",
	"attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.value_length", "block_count",
	"context_length", "embedding_length", "expert_count", "expert_used_count", "feed_forward_length",
	"rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.factor", "rope.scaling.finetuned",
	"rope.scaling.original_context_length", "rope.scaling.type", "vocab_size",
}

// keys reads the keys of a file, and keeps the first error.
type keys struct {
	f   *gguf.File
	err error
}

func (k *keys) fail(key, format string, args ...any) {
	if k.err == nil {
		k.err = refuse("key %s: %s", key, fmt.Sprintf(format, args...))
	}
}

// value returns the value of a key, nil without it. An array is an error: parameters that differ by
// layer are not computed.
func (k *keys) value(key string) any {
	i := slices.IndexFunc(k.f.Keys, func(of gguf.Key) bool { return of.Name == key })
	if i < 0 || k.err != nil {
		return nil
	}
	if k.f.Keys[i].Type == gguf.Array {
		k.fail(key, "it is an array: only parameters that all layers share are computed")
		return nil
	}
	v, err := k.f.Get(key)
	if err != nil {
		k.err = err
	}
	return v
}

// number returns a whole number; without the key the default, or an error if that is negative.
func (k *keys) number(key string, otherwise int) int {
	const most = 1 << 31 // far above all limits
	switch v := k.value(key).(type) {
	case nil:
		if otherwise < 0 {
			k.fail(key, "it is missing: is the file whole?")
		}
		return otherwise
	case uint64:
		return int(min(v, most))
	case int64:
		return int(max(min(v, most), -1))
	default:
		k.fail(key, "%s of type %T: use a whole number", short(v), v)
		return 0
	}
}

// float returns a number; without the key the default, or an error if that is negative.
func (k *keys) float(key string, otherwise float64) float64 {
	switch v := k.value(key).(type) {
	case nil:
		if otherwise < 0 {
			k.fail(key, "it is missing: is the file whole?")
		}
		return otherwise
	case float64:
		return v
	default:
		k.fail(key, "%s of type %T: use a float", short(v), v)
		return 0
	}
}

func (k *keys) text(key string) string {
	switch v := k.value(key).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		k.fail(key, "%s of type %T: use a text", short(v), v)
		return ""
	}
}

// only fails if a key is there and has another value. A number is an int, of any type in the file.
func (k *keys) only(key string, value any) {
	v := k.value(key)
	if want, is := value.(int); is {
		v = k.number(key, want)
	}
	if v != nil && v != value {
		k.fail(key, "%s: only %v is computed", short(v), value)
	}
}

// FromGGUF reads the parameters of a model from the keys and the tensors of a GGUF file. Keys of
// the architecture that are unknown are refused, as they may change what the model computes; keys
// of others are passed over. The error is an ErrArchitecture that names the key, or an error of the
// file.
func FromGGUF(f *gguf.File) (*Parameters, error) {
	k := &keys{f: f}
	p := &Parameters{Family: k.text("general.architecture")}
	switch {
	case k.err != nil:
		return nil, k.err
	case p.Family != Llama && p.Family != Qwen2 && p.Family != Qwen3:
		return nil, refuse("key general.architecture: %.100q: llama, qwen2 and qwen3 are computed", p.Family)
	}
	k.only("general.type", "model")
	if n := k.number("split.count", 1); n > 1 {
		k.fail("split.count", "the model is in %d files: make one of them with gguf-split --merge", n)
	}
	at := p.Family + "."
	if name := f.Unknown(at, ggufKeys); name != "" {
		k.fail(name, "%s", unknown)
	}
	k.only(at+"expert_count", 0)
	k.only(at+"expert_used_count", 0)
	k.only(at+"attention.causal", true)
	p.Layers, p.Width = k.number(at+"block_count", -1), k.number(at+"embedding_length", -1)
	p.Inner, p.Context = k.number(at+"feed_forward_length", -1), k.number(at+"context_length", -1)
	p.Heads = k.number(at+"attention.head_count", -1)
	p.KVHeads = k.number(at+"attention.head_count_kv", p.Heads)
	p.Epsilon = k.float(at+"attention.layer_norm_rms_epsilon", -1)
	p.Window = k.number(at+"attention.sliding_window", 0)
	width := 0
	if p.Heads > 0 && p.Width%p.Heads == 0 {
		width = p.Width / p.Heads
	}
	if p.HeadWidth = k.number(at+"attention.key_length", width); k.err == nil && p.HeadWidth == 0 {
		k.fail(at+"embedding_length", "%d is no multiple of %d heads: name attention.key_length", p.Width, p.Heads)
	}
	k.only(at+"attention.value_length", p.HeadWidth)
	k.only(at+"rope.dimension_count", p.HeadWidth)
	shape := func(name string) []int64 {
		for _, t := range f.Tensors {
			if t.Name == name {
				return t.Shape
			}
		}
		return nil
	}
	if embedding := shape(Embedding); len(embedding) == 2 {
		p.Vocabulary = int(min(embedding[0], maxVocabulary+1))
	} else {
		k.fail("general.architecture", "the file has no tensor %s of 2 dimensions: is it whole?", Embedding)
	}
	k.only(at+"vocab_size", p.Vocabulary)
	p.Tied = shape(Head) == nil
	p.Bias, p.HeadNorms = p.Family == Qwen2, p.Family == Qwen3
	p.Rope = Rope{Theta: k.float(at+"rope.freq_base", 10000), Pairs: p.Family == Llama}
	k.scaling(at, &p.Rope)
	if shape(RopeFreqs) != nil {
		if p.Rope.Scaling != "" {
			k.fail(at+"rope.scaling.type", "%s beside the tensor %s: one of them is computed", p.Rope.Scaling,
				RopeFreqs)
		}
		p.Rope.Scaling = Factors
	}
	if n := k.number("tokenizer.ggml.bos_token_id", 1<<31); n < 1<<31 {
		p.Begin = &n
	}
	for _, key := range []string{"eos", "eot"} {
		if n := k.number("tokenizer.ggml."+key+"_token_id", 1<<31); n < 1<<31 && !slices.Contains(p.End, n) {
			p.End = append(p.End, n)
		}
	}
	if k.err != nil {
		return nil, k.err
	}
	return p, p.Validate()
}

// scaling reads how angles are scaled.
func (k *keys) scaling(at string, r *Rope) {
	kind := k.text(at + "rope.scaling.type")
	factor := k.float(at+"rope.scaling.factor", k.float(at+"rope.scale_linear", 0))
	switch {
	case kind == Linear || kind == "" && factor > 1:
		r.Scaling, r.Factor = Linear, factor
	case kind != "" && kind != "none":
		k.fail(at+"rope.scaling.type", "%.100q: none and linear are computed", kind)
	}
}
