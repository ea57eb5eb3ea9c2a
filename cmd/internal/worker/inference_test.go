package worker

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

var update = flag.Bool("update", false, "write ../../worker/testdata/tiny.gguf")

// tiny returns a GGUF file of a random model of two layers, whose tokens are the 256 bytes, a begin
// and an end. The end has an id of the caller, and token 257 is the byte with this id.
func tiny(t testing.TB, end uint32) []byte {
	t.Helper()
	var tokens []string
	other := rune(256)
	for b := range rune(256) { // as GPT-2 writes bytes
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			tokens = append(tokens, string(b))
		} else {
			tokens = append(tokens, string(other))
			other++
		}
	}
	tokens = append(tokens, "<begin>", "<end>")
	tokens[end], tokens[257] = tokens[257], tokens[end]
	keys := []gguf.Pair{
		{Key: "general.architecture", Value: "llama"},
		{Key: "llama.block_count", Value: uint32(2)},
		{Key: "llama.context_length", Value: uint32(200)},
		{Key: "llama.embedding_length", Value: uint32(32)},
		{Key: "llama.feed_forward_length", Value: uint32(32)},
		{Key: "llama.attention.head_count", Value: uint32(2)},
		{Key: "llama.attention.head_count_kv", Value: uint32(1)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: "llama.vocab_size", Value: uint32(len(tokens))},
		{Key: "tokenizer.ggml.model", Value: "gpt2"},
		{Key: "tokenizer.ggml.pre", Value: "gpt-2"},
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.merges", Value: []string{}},
		{Key: "tokenizer.ggml.bos_token_id", Value: uint32(256)},
		{Key: "tokenizer.ggml.add_bos_token", Value: true},
		{Key: "tokenizer.ggml.eos_token_id", Value: end},
	}
	p := architecture.Parameters{
		Family: architecture.Llama, Layers: 2, Width: 32, Inner: 32, Heads: 2, KVHeads: 1, HeadWidth: 16,
		Vocabulary: len(tokens), Context: 200, Tied: true,
	}
	r := rand.New(rand.NewPCG(3, 4))
	var all []gguf.Values
	for _, of := range p.Tensors() {
		v := gguf.Values{Name: of.Name, Type: quant.F32, Shape: of.Shape}
		n := int64(1)
		for _, d := range of.Shape {
			n *= d
		}
		for range n {
			v.Of = append(v.Of, float32(r.NormFloat64()))
		}
		if len(of.Shape) == 2 {
			v.Type = quant.Q8_0
		}
		all = append(all, v)
	}
	var b bytes.Buffer
	testkit.NoError(t, "gguf.Write", gguf.Write(&b, keys, all))
	return b.Bytes()
}

const tinyPath = "../../worker/testdata/tiny.gguf"

// TestGolden: the model of the programs in C is the one of these tests.
func TestGolden(t *testing.T) {
	want := tiny(t, 257)
	if *update {
		testkit.NoError(t, "os.WriteFile", os.WriteFile(tinyPath, want, 0o644))
	}
	if got, err := os.ReadFile(tinyPath); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, %v, and the writer writes %d others: run with -args -update", tinyPath, len(got),
			err, len(want))
	}
}

// load returns the handle of a model.
func load(t testing.TB, l *Library, path string) uint64 {
	t.Helper()
	c, err := l.Init(t.Context(), HostDevice)
	testkit.NoError(t, "Init", err)
	h, info, err := l.LoadModel(t.Context(), c, path)
	testkit.NoError(t, "LoadModel", err)
	if info.Bytes == 0 || info.Parameters.Layers != 2 || strings.Contains(info.Name, ".") {
		t.Errorf("LoadModel: %+v", info)
	}
	return h
}

// generate returns the texts of an inference.
func generate(
	t testing.TB, l *Library, m uint64, prompt string, n int, temperature float32, seed uint64,
) (all []string) {
	t.Helper()
	h, err := l.Start(m, prompt, n, temperature, seed)
	testkit.NoError(t, "Start", err)
	for {
		text, number, more, err := l.Next(h, 100)
		testkit.NoError(t, "Next", err)
		if !more {
			break
		}
		if number != len(all) {
			t.Fatalf("Next: token %d behind %d tokens", number, len(all))
		}
		all = append(all, text)
	}
	testkit.NoError(t, "FreeInference", l.FreeInference(h))
	return all
}

// twin returns the same texts of the model at tinyPath. Its machine has other pages and chunks, and
// reads all tokens again for each.
func twin(t testing.TB, prompt string, n int, temperature float32, seed uint64) (all []string) {
	t.Helper()
	d, err := host.Open(host.Options{})
	testkit.NoError(t, "host.Open", err)
	testkit.Close(t, d)
	var words *tokenizer.Tokenizer
	w, err := weights.NewHolder(d, nil).Hold(t.Context(), weights.Ref{}, func(context.Context) (weights.Source, error) {
		s, of, err := openSource(tinyPath)
		words = of
		return s, err
	})
	testkit.NoError(t, "Hold", err)
	p := *w.Parameters()
	m, err := transformer.New(t.Context(), d, transformer.Options{Parameters: p, PagePositions: 16, Chunk: 3}, w)
	testkit.NoError(t, "transformer.New", err)
	pool, err := d.Alloc(13*transformer.PageBytes(p, 16), "pool")
	testkit.NoError(t, "Alloc", err)
	run := transformer.Run{
		Frames: []uint32{12, 0, 11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6}, Tokens: []int32{256}, Draw: true,
		Sampling: transformer.Sampling{Temperature: temperature}, Seed: seed,
	}
	for _, b := range []byte(prompt) {
		run.Tokens = append(run.Tokens, int32(b))
	}
	text := words.NewDecoder()
	for len(all) < n {
		var out [1]transformer.Token
		testkit.NoError(t, "Step", m.Step(t.Context(), pool, []transformer.Run{run}, out[:]))
		if out[0].Token == 257 {
			break
		}
		run.Tokens = append(run.Tokens, out[0].Token)
		all = append(all, text.Add(out[0].Token))
	}
	if rest := text.Flush(); len(all) == n {
		all[n-1] += rest
	} else if rest != "" {
		all = append(all, rest)
	}
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "\x00", "\uFFFD")
	}
	testkit.NoError(t, "Close", errors.Join(m.Close(), pool.Close(), w.Release()))
	return all
}

// TestInference compares the texts of inferences with a plain loop.
func TestInference(t *testing.T) {
	l := library(t)
	m := load(t, l, tinyPath)
	seen := map[string]bool{}
	for _, of := range []struct {
		n           int
		temperature float32
		seed        uint64
	}{{150, 0, 1}, {150, 1, 1}, {150, 1, 2}, {3, 3, 2}, {1, 3, 7}} {
		const prompt = "The quick brown fox jumps over the lazy dog."
		got := generate(t, l, m, prompt, of.n, of.temperature, of.seed)
		if want := twin(t, prompt, of.n, of.temperature, of.seed); !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", of, got, want)
		}
		if again := generate(t, l, m, prompt, of.n, of.temperature, of.seed); !slices.Equal(got, again) {
			t.Errorf("%+v: %q, and then %q", of, got, again)
		}
		seen[strings.Join(got, "")] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d texts of five pairs of temperature and seed", len(seen))
	}
}

// TestEnd: a token of the end is no text, and no token follows. The prompt "<begin>" is the token
// that begins a text, which is not there twice.
func TestEnd(t *testing.T) {
	l := library(t)
	first := generate(t, l, load(t, l, tinyPath), "<begin>", 40, 0, 0)
	at := slices.IndexFunc(first, func(s string) bool { return len(s) == 1 && s > " " })
	if at < 0 {
		t.Fatalf("the text has no character of one byte: %q", first)
	}
	path := filepath.Join(t.TempDir(), "end.gguf")
	testkit.NoError(t, "os.WriteFile", os.WriteFile(path, tiny(t, uint32(first[at][0])), 0o600))
	got := generate(t, l, load(t, l, path), "<begin>", 40, 0, 0)
	if want := first[:slices.Index(first, first[at])]; strings.Join(got, "") != strings.Join(want, "")+
		strings.Repeat("\uFFFD", len(got)-len(want)) || len(got) > len(want)+1 {
		t.Errorf("with the end %q: %q, want %q", first[at], got, want)
	}
}

// TestRoom: a token whose text does not fit is there again.
func TestRoom(t *testing.T) {
	l := library(t)
	m := load(t, l, tinyPath)
	want := generate(t, l, m, "ab", 50, 0, 0)
	h, err := l.Start(m, "ab", 50, 0, 0)
	testkit.NoError(t, "Start", err)
	for i, text := range want {
		if n := len(text); n > 0 {
			for _, room := range []int{n - 1, 0, -1} {
				if _, _, more, err := l.Next(h, room); more || CodeOf(err, Unknown) != InvalidParameter {
					t.Fatalf("Next of %d bytes with room for %d: %v, %v", n, room, more, err)
				}
			}
		}
		if got, number, more, err := l.Next(h, len(text)); got != text || number != i || !more || err != nil {
			t.Fatalf("Next: %q, %d, %v, %v, want %q, %d", got, number, more, err, text, i)
		}
	}
	for range 2 {
		if _, _, more, err := l.Next(h, 10); more || err != nil {
			t.Errorf("Next behind the end: %v, %v", more, err)
		}
	}
}

// TestModelRefused: each wrong call has its code and one sentence that names what is wrong.
func TestModelRefused(t *testing.T) {
	l, ctx := library(t), t.Context()
	m := load(t, l, tinyPath)
	c, err := l.Init(ctx, HostDevice)
	testkit.NoError(t, "Init", err)
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		testkit.NoError(t, "os.WriteFile", os.WriteFile(filepath.Join(dir, name), data, 0o600))
		return filepath.Join(dir, name)
	}
	loadErr := func(path string) error {
		h, _, err := l.LoadModel(ctx, c, path)
		if h != 0 {
			t.Errorf("LoadModel of %s: handle %#x beside an error", path, h)
		}
		return err
	}
	start := func(prompt string, n int, temperature float32) error {
		_, err := l.Start(m, prompt, n, temperature, 0)
		return err
	}
	whole := tiny(t, 257)
	for _, of := range []struct {
		err  error
		code Code
		want string
	}{
		{loadErr(filepath.Join(dir, "none.gguf")), ModelLoadFailed, "none.gguf"},
		{loadErr("/"), ModelLoadFailed, "load /"},
		{loadErr(dir), ModelLoadFailed, "config.json"},
		{loadErr(file("text", []byte("hello"))), ModelLoadFailed, "name a file of GGUF, or a folder"},
		{loadErr(file("cut.gguf", whole[:len(whole)-1])), ModelLoadFailed, "cut.gguf"},
		{loadErr(file("head.gguf", whole[:100])), ModelLoadFailed, "is it cut short"},
		{loadErr("../../../gpuagents/model/modeltest/small.gguf"), ModelLoadFailed, "tokenizer"},
		{start("a", 0, 0), InvalidParameter, "0 tokens behind a prompt of 2: use 1 to 198"},
		{start("a", 199, 0), InvalidParameter, "199 tokens behind a prompt of 2"},
		{start(strings.Repeat("a", 300), 1, 0), InvalidParameter, "1 tokens behind a prompt of 301: use 1 to 0"},
		{start("a", 1, -1), InvalidParameter, "temperature -1: use 0 to 100"},
		{start(strings.Repeat("a", tokenizer.MaxText+1), 1, 0), InvalidParameter, "text is too long"},
	} {
		if code := CodeOf(of.err, ModelLoadFailed); code != of.code || !strings.Contains(of.err.Error(), of.want) {
			t.Errorf("%v, with code %d: want code %d and %q", of.err, code, of.code, of.want)
		}
	}
	if n, err := l.Usage(c); err != nil || n == 0 {
		t.Errorf("Usage: %d, %v", n, err)
	}
	testkit.NoError(t, "FreeModel", l.FreeModel(m))
	if n, err := l.Usage(c); err != nil || n != 0 {
		t.Errorf("Usage without a model: %d, %v, want 0", n, err)
	}
	for _, err := range []error{
		func() error { _, err := l.ModelInfo(m); return err }(), l.CheckResidency(ctx, m), start("a", 1, 0),
		l.FreeModel(m), l.Cancel(m), l.FreeInference(m),
		func() error { _, _, _, err := l.Next(m, 1); return err }(),
	} {
		if CodeOf(err, Unknown) != InvalidParameter || !strings.Contains(err.Error(), "was freed before") {
			t.Errorf("a call with a freed model: %v", err)
		}
	}
}

// TestResidency: weights that are changed in device memory are found, and no inference uses the
// model any more.
func TestResidency(t *testing.T) {
	l, ctx := library(t), t.Context()
	m := load(t, l, tinyPath)
	testkit.NoError(t, "CheckResidency", l.CheckResidency(ctx, m))
	h, err := l.Start(m, "a", 10, 0, 0)
	testkit.NoError(t, "Start", err)
	_, _, _, err = l.Next(h, 100)
	testkit.NoError(t, "Next", err)
	of, _, err := find[*loaded](&l.handles, m)
	testkit.NoError(t, "find", err)
	w, err := of.weights.Tensor(architecture.Embedding)
	testkit.NoError(t, "Tensor", err)
	testkit.NoError(t, "Write", w.Buffer.Write(w.Offset+3, []byte{0x55}))
	for range 2 {
		if err := l.CheckResidency(ctx, m); CodeOf(err, Unknown) != ResidencyFailed {
			t.Errorf("CheckResidency of changed weights: %v", err)
		}
		if _, _, _, err := l.Next(h, 100); CodeOf(err, Unknown) != ResidencyFailed {
			t.Errorf("Next with changed weights: %v", err)
		}
	}
	testkit.NoError(t, "CheckResidency of another copy", l.CheckResidency(ctx, load(t, l, tinyPath)))
}

// TestFreeInUse: inferences are cancelled and freed beside calls of Next, each object by several
// calls. Each call ends, and nothing is left.
func TestFreeInUse(t *testing.T) {
	l, ctx := library(t), t.Context()
	for i := range 60 {
		c, err := l.Init(ctx, HostDevice)
		testkit.NoError(t, "Init", err)
		m, _, err := l.LoadModel(ctx, c, tinyPath)
		testkit.NoError(t, "LoadModel", err)
		var all []uint64
		for range 3 {
			h, err := l.Start(m, "abc", 100, 1, 1)
			testkit.NoError(t, "Start", err)
			all = append(all, h)
		}
		var running sync.WaitGroup
		for k, h := range all {
			running.Go(func() {
				for more := true; more; {
					var err error
					if _, _, more, err = l.Next(h, 100); err != nil && CodeOf(err, Unknown) != Cancelled &&
						!strings.Contains(err.Error(), "was freed before") {
						t.Errorf("Next: %v", err)
					}
				}
			})
			running.Go(func() {
				var err error
				switch (i + k) % 4 {
				case 0:
					err = l.Cancel(h)
				case 1:
					err = l.FreeInference(h)
				case 2:
					err = l.FreeModel(m)
				default:
					err = l.FreeContext(c)
				}
				if err != nil && !strings.Contains(err.Error(), "was freed before") {
					t.Errorf("a call that ends an inference: %v", err)
				}
			})
		}
		running.Wait()
		if err := l.FreeContext(c); err != nil && !strings.Contains(err.Error(), "was freed before") {
			t.Errorf("FreeContext: %v", err)
		}
		if len(l.handles.open) != 0 || len(l.devices) != 0 {
			t.Fatalf("%d handles and %d devices are left", len(l.handles.open), len(l.devices))
		}
	}
}

// TestCancel: a cancelled inference says so in each later call.
func TestCancel(t *testing.T) {
	l := library(t)
	h, err := l.Start(load(t, l, tinyPath), "abc", 100, 1, 1)
	testkit.NoError(t, "Start", err)
	_, _, _, err = l.Next(h, 100)
	testkit.NoError(t, "Next", err)
	testkit.NoError(t, "Cancel", errors.Join(l.Cancel(h), l.Cancel(h)))
	for range 2 {
		if _, _, more, err := l.Next(h, 100); more || CodeOf(err, Unknown) != Cancelled {
			t.Errorf("Next of a cancelled inference: %v, %v", more, err)
		}
	}
}
