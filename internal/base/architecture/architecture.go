// Package architecture is what a language model computes, as one set of parameters for the families
// llama, mistral, qwen2 and qwen3: a decoder with RMSNorm, rotary positions, grouped queries and a
// gated layer. FromConfig reads it from the config.json of a folder of safetensors, FromGGUF from
// the keys of a GGUF file. Canonical gives both conventions of tensor names one name, and Check
// compares the tensors of a model with its parameters. What a parameter set cannot say is refused
// by its name.
package architecture

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// ErrArchitecture is a model whose parameters fit no known family, are beyond a limit,
// or do not fit its tensors.
var ErrArchitecture = errors.New("architecture that cannot be computed")

// Families of models.
const (
	Llama   = "llama"
	Mistral = "mistral" // a GGUF file of one says llama
	Qwen2   = "qwen2"
	Qwen3   = "qwen3"
)

var families = []string{Llama, Mistral, Qwen2, Qwen3}

// Parameters are all that a decoder computes with, without its tensors. A manifest keeps them.
type Parameters struct {
	Family     string  `json:"family"`
	Layers     int     `json:"layers"`
	Width      int     `json:"width"`      // of a state between layers
	Inner      int     `json:"inner"`      // of the gated layer
	Heads      int     `json:"heads"`      // of queries
	KVHeads    int     `json:"kv_heads"`   // a divisor of Heads; query head h reads h / (Heads/KVHeads)
	HeadWidth  int     `json:"head_width"` // even; Heads * HeadWidth may differ from Width
	Vocabulary int     `json:"vocabulary"` // tokens, the rows of the embedding
	Context    int     `json:"context"`    // positions that the model was made for
	Epsilon    float64 `json:"epsilon"`    // of RMSNorm: x / sqrt(mean(x*x) + Epsilon) * weight
	Rope       Rope    `json:"rope"`
	Window     int     `json:"window,omitempty"`     // positions that a query sees, with its own; 0: all before it
	Bias       bool    `json:"bias,omitempty"`       // of queries, keys and values
	HeadNorms  bool    `json:"head_norms,omitempty"` // RMSNorm of each head of queries and keys, before Rope
	Tied       bool    `json:"tied,omitempty"`       // the embedding is the head
	Begin      *int    `json:"begin,omitempty"`      // token before a text; nil: none is named
	End        []int   `json:"end,omitempty"`        // tokens that end a text
}

// Rope turns pairs of values of each head of queries and keys. Pair i of a head at position p has
// the angle p * Theta^(-2i/HeadWidth), which Scaling changes.
type Rope struct {
	Theta float64 `json:"theta"`
	// Pairs: pair i is values 2i and 2i+1. Otherwise it is values i and i + HeadWidth/2. GGUF files of
	// the family llama have the rows of queries and keys in the former order.
	Pairs bool `json:"pairs,omitempty"`
	// Scaling is empty; or linear: angles are divided by Factor; or llama3: frequencies of a wave
	// longer than Original/Low are divided by Factor, waves shorter than Original/High are not, and
	// between both lies a blend, as modeling_rope_utils.py of transformers computes it; or tensor:
	// angle i is divided by value i of the tensor rope_freqs.weight.
	Scaling  string  `json:"scaling,omitempty"`
	Factor   float64 `json:"factor,omitempty"`
	Low      float64 `json:"low,omitempty"`
	High     float64 `json:"high,omitempty"`
	Original int     `json:"original,omitempty"` // positions
}

// Ways to scale angles.
const (
	Linear  = "linear"
	Llama3  = "llama3"
	Factors = "tensor"
)

// Limits of parameters.
const (
	maxLayers     = 1024
	maxWidth      = 1 << 16
	maxInner      = 1 << 18
	maxHeads      = 1024
	maxHeadWidth  = 512
	maxVocabulary = 4 << 20
	maxContext    = 1 << 24
)

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArchitecture, fmt.Sprintf(format, args...))
}

// short returns a value of a file for an error: its author may have made it long.
func short(v any) string { return fmt.Sprintf("%.100s", fmt.Sprint(v)) }

// Validate checks limits, and that parameters divide where they must. FromConfig and FromGGUF have
// called it; parameters of another source are validated by whoever reads them.
func (p *Parameters) Validate() error {
	if !slices.Contains(families, p.Family) {
		return refuse("family %.100q: %s are computed", p.Family, strings.Join(families, ", "))
	}
	for _, of := range []struct {
		name     string
		is, most int
	}{
		{"layers", p.Layers, maxLayers},
		{"width", p.Width, maxWidth},
		{"inner width", p.Inner, maxInner},
		{"heads", p.Heads, maxHeads},
		{"heads of keys and values", p.KVHeads, maxHeads},
		{"width of a head", p.HeadWidth, maxHeadWidth},
		{"vocabulary", p.Vocabulary, maxVocabulary},
		{"context", p.Context, maxContext},
	} {
		if of.is < 1 || of.is > of.most {
			return refuse("%s %d: use 1 to %d", of.name, of.is, of.most)
		}
	}
	r := &p.Rope
	switch {
	case p.Heads%p.KVHeads != 0:
		return refuse("%d heads are no multiple of %d heads of keys and values", p.Heads, p.KVHeads)
	case p.HeadWidth%2 != 0:
		return refuse("a head of %d values: rotary positions take an even number", p.HeadWidth)
	case !(p.Epsilon > 0 && p.Epsilon < 1):
		return refuse("epsilon %v: use a value between 0 and 1", p.Epsilon)
	case !(r.Theta >= 1 && r.Theta < 1e12):
		return refuse("base of rotary positions %v: use 1 to 1e12", r.Theta)
	case p.Window < 0 || p.Window > maxContext:
		return refuse("window %d: use 0 to %d", p.Window, maxContext)
	case len(p.End) > 64 || slices.ContainsFunc(p.End, func(t int) bool { return t < 0 || t >= p.Vocabulary }):
		return refuse("tokens of the end %v: use at most 64, below the vocabulary %d", p.End, p.Vocabulary)
	case p.Begin != nil && (*p.Begin < 0 || *p.Begin >= p.Vocabulary):
		return refuse("token of the beginning %d: use one below the vocabulary %d", *p.Begin, p.Vocabulary)
	}
	finite := func(v float64) bool { return v >= 1 && v <= math.MaxUint16 }
	switch r.Scaling {
	case "", Factors:
		if r.Factor != 0 || r.Low != 0 || r.High != 0 || r.Original != 0 {
			return refuse("factors of rotary positions without a scaling that has them")
		}
	case Linear:
		if !finite(r.Factor) {
			return refuse("linear scaling by %v: use 1 to %d", r.Factor, math.MaxUint16)
		}
	case Llama3:
		if !finite(r.Factor) || !finite(r.Low) || !(r.High > r.Low) || !finite(r.High) || r.Original < 1 ||
			r.Original > maxContext {
			return refuse("llama3 scaling with factor %v, low %v, high %v and %d positions: use factors of 1 and "+
				"more, low below high, and 1 to %d positions", r.Factor, r.Low, r.High, r.Original, maxContext)
		}
	default:
		return refuse("scaling %.100q of rotary positions: linear and llama3 are computed", r.Scaling)
	}
	return nil
}

// Tensor is a tensor that a model has: its canonical name and its shape, row-major.
type Tensor struct {
	Name  string
	Shape []int64
}

// Canonical names of the tensors that are no part of a layer.
const (
	Embedding = "token_embd.weight"
	LastNorm  = "output_norm.weight"
	Head      = "output.weight"
	RopeFreqs = "rope_freqs.weight"
)

// hugging has the canonical end of a name by its end in the convention of transformers, for a
// layer.
var hugging = map[string]string{
	"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
	"self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_proj.bias": "attn_q.bias",
	"self_attn.k_proj.weight": "attn_k.weight", "self_attn.k_proj.bias": "attn_k.bias",
	"self_attn.v_proj.weight": "attn_v.weight", "self_attn.v_proj.bias": "attn_v.bias",
	"self_attn.o_proj.weight": "attn_output.weight",
	"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
	"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
	"mlp.down_proj.weight": "ffn_down.weight",
}

var huggingLayer = regexp.MustCompile(`^model\.layers\.(0|[1-9][0-9]{0,3})\.(.+)$`)

// Canonical returns the canonical name of a tensor, which is its name in GGUF files. A name of
// neither convention is returned as it is.
func Canonical(name string) string {
	switch name {
	case "model.embed_tokens.weight":
		return Embedding
	case "model.norm.weight":
		return LastNorm
	case "lm_head.weight":
		return Head
	}
	if m := huggingLayer.FindStringSubmatch(name); m != nil {
		if end := hugging[m[2]]; end != "" {
			return Layered(m[1], end)
		}
	}
	return name
}

// Layered returns the canonical name of a tensor of a layer, numbered from 0.
func Layered(layer any, end string) string { return fmt.Sprintf("blk.%v.%s", layer, end) }

// Tensors returns all tensors that a model with valid parameters has, by canonical names: the
// embedding, the layers from the first to the last, the last norm, and the head if it is not tied.
// Products are y = W x with W of shape [outputs, inputs].
func (p *Parameters) Tensors() []Tensor {
	w, inner, head := int64(p.Width), int64(p.Inner), int64(p.HeadWidth)
	q, kv, vocabulary := int64(p.Heads)*head, int64(p.KVHeads)*head, int64(p.Vocabulary)
	all := []Tensor{{Embedding, []int64{vocabulary, w}}}
	for layer := range p.Layers {
		add := func(end string, shape ...int64) { all = append(all, Tensor{Layered(layer, end), shape}) }
		add("attn_norm.weight", w)
		add("attn_q.weight", q, w)
		add("attn_k.weight", kv, w)
		add("attn_v.weight", kv, w)
		if p.Bias {
			add("attn_q.bias", q)
			add("attn_k.bias", kv)
			add("attn_v.bias", kv)
		}
		if p.HeadNorms {
			add("attn_q_norm.weight", head)
			add("attn_k_norm.weight", head)
		}
		add("attn_output.weight", w, q)
		add("ffn_norm.weight", w)
		add("ffn_gate.weight", inner, w)
		add("ffn_up.weight", inner, w)
		add("ffn_down.weight", w, inner)
	}
	all = append(all, Tensor{LastNorm, []int64{w}})
	if !p.Tied {
		all = append(all, Tensor{Head, []int64{vocabulary, w}})
	}
	if p.Rope.Scaling == Factors {
		all = append(all, Tensor{RopeFreqs, []int64{head / 2}})
	}
	return all
}

// Unused reports whether a model may have a tensor of a canonical name that no computation reads: a
// head beside a tied embedding, and tables of frequencies, which follow from the parameters.
func (p *Parameters) Unused(name string) bool {
	return p.Tied && name == Head || huggingLayer.MatchString(name) && strings.HasSuffix(name, ".rotary_emb.inv_freq")
}

// Check compares the tensors of a model, of either convention of names, with its parameters. The
// error is an ErrArchitecture that names the first tensor that is missing, is there twice, has
// another shape, or is none of the model.
func (p *Parameters) Check(tensors []Tensor) error {
	have := map[string]Tensor{}
	for _, t := range tensors {
		name := Canonical(t.Name)
		if other, again := have[name]; again {
			return refuse("tensors %s and %s are the same: remove one", other.Name, t.Name)
		}
		have[name] = t
	}
	for _, want := range p.Tensors() {
		t, there := have[want.Name]
		if !there {
			return refuse("tensor %s of shape %v is missing: is the file whole?", want.Name, want.Shape)
		}
		if !slices.Equal(t.Shape, want.Shape) {
			return refuse("tensor %s has the shape %v, and its parameters ask for %v", t.Name, t.Shape, want.Shape)
		}
		delete(have, want.Name)
	}
	for _, t := range tensors { // in the order of the file, so that the error is the same each time
		if name := Canonical(t.Name); !p.Unused(name) {
			if _, rest := have[name]; rest {
				return refuse("tensor %s is none of the family %s: a model with it computes something else", t.Name,
					p.Family)
			}
		}
	}
	return nil
}
