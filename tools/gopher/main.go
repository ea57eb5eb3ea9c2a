// Command gopher makes the GGUF file of the language model gopher from what examples/model/gopher.py
// writes: matrices of the type Q8_0, norms of F32, and the tokenizer.
//
//	go run -C tools ./gopher FOLDER FILE
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// template is the form of conversations that gopher has seen. Programs that run templates read it;
// this project knows it by its digest.
const template = `{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}` +
	`<|agent|>{{ message['content'] }}<|end|>{% else %}<|user|>{{ message['content'] }}{% endif %}{% endfor %}` +
	`{% if add_generation_prompt %}<|agent|>{% endif %}`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gopher FOLDER FILE")
		os.Exit(2)
	}
	if err := convert(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gopher:", err)
		os.Exit(1)
	}
}

// convert writes the file of a folder.
func convert(folder, file string) error {
	config, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return err
	}
	p, err := architecture.FromConfig(config)
	if err != nil {
		return err
	}
	keys, err := tokenizer(filepath.Join(folder, "tokenizer.json"))
	if err != nil {
		return err
	}
	tensors, err := weights(filepath.Join(folder, "model.safetensors"), p)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, append(parameters(p), keys...), tensors); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// parameters returns the keys of a model.
func parameters(p *architecture.Parameters) []gguf.Pair {
	number := func(n int) uint32 { return uint32(n) }
	return []gguf.Pair{
		{Key: "general.architecture", Value: "llama"},
		{Key: "general.name", Value: "gopher"},
		{Key: "general.license", Value: "BSD-3-Clause"},
		{Key: "general.source.url", Value: "https://github.com/exoswarm/exoswarm/tree/main/examples/model"},
		{Key: "general.file_type", Value: uint32(7)}, // mostly Q8_0
		{Key: "general.quantization_version", Value: uint32(2)},
		{Key: "llama.context_length", Value: number(p.Context)},
		{Key: "llama.embedding_length", Value: number(p.Width)},
		{Key: "llama.block_count", Value: number(p.Layers)},
		{Key: "llama.feed_forward_length", Value: number(p.Inner)},
		{Key: "llama.attention.head_count", Value: number(p.Heads)},
		{Key: "llama.attention.head_count_kv", Value: number(p.KVHeads)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(p.Epsilon)},
		{Key: "llama.rope.dimension_count", Value: number(p.HeadWidth)},
		{Key: "llama.rope.freq_base", Value: float32(p.Rope.Theta)},
		{Key: "llama.vocab_size", Value: number(p.Vocabulary)},
	}
}

// tokenizer returns the keys of the tokenizer in a file. Special tokens are of type 3, all others of
// type 1.
func tokenizer(file string) ([]gguf.Pair, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var of struct {
		Added []struct{ ID int } `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	tokens, types := make([]string, len(of.Model.Vocab)), make([]int32, len(of.Model.Vocab))
	for text, id := range of.Model.Vocab {
		tokens[id], types[id] = text, 1
	}
	for _, a := range of.Added {
		types[a.ID] = 3
	}
	merges := make([]string, len(of.Model.Merges))
	for i, pair := range of.Model.Merges {
		merges[i] = pair[0] + " " + pair[1]
	}
	id := func(text string) uint32 { return uint32(slices.Index(tokens, text)) }
	return []gguf.Pair{
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: "llama-bpe"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: merges},
		{Key: "tokenizer.ggml.bos_token_id", Value: id("<|begin|>")},
		{Key: "tokenizer.ggml.eos_token_id", Value: id("<|end|>")},
		{Key: "tokenizer.ggml.add_bos_token", Value: true},
		{Key: "tokenizer.chat_template", Value: template},
	}, nil
}

// weights returns the tensors of a file by canonical names. The rows of queries and keys are in the
// order of GGUF: values that rotary positions turn together are neighbours.
func weights(file string, p *architecture.Parameters) (all []gguf.Values, err error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	info, err := in.Stat()
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Open(in, info.Size())
	if err != nil {
		return nil, err
	}
	for _, want := range p.Tensors() {
		i := slices.IndexFunc(f.Tensors, func(t safetensors.Tensor) bool {
			return architecture.Canonical(t.Name) == want.Name
		})
		if i < 0 {
			return nil, fmt.Errorf("%s: tensor %s is missing", file, want.Name)
		}
		values, err := f.Floats(f.Tensors[i].Name)
		if err != nil {
			return nil, err
		}
		t := gguf.Values{Name: want.Name, Type: quant.F32, Shape: want.Shape, Of: values}
		if len(want.Shape) == 2 {
			t.Type = quant.Q8_0
		}
		if strings.HasSuffix(want.Name, "attn_q.weight") || strings.HasSuffix(want.Name, "attn_k.weight") {
			t.Of = neighbours(values, p.HeadWidth, int(want.Shape[1]))
		}
		all = append(all, t)
	}
	return all, nil
}

// neighbours returns rows of heads with row i and row i + head/2 beside one another.
func neighbours(rows []float32, head, width int) []float32 {
	to := make([]float32, 0, len(rows))
	for from := 0; from < len(rows); from += head * width {
		for i := range head / 2 {
			for _, row := range []int{i, i + head/2} {
				to = append(to, rows[from+row*width:][:width]...)
			}
		}
	}
	return to
}
