package tokenizer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/gguf"
)

// TestLlama compares tokens with llama.cpp's, which reads the same files. EXOSWARM_LLAMA is the
// path of a folder in which npm has installed node-llama-cpp; without it the test skips.
func TestLlama(t *testing.T) {
	folder := os.Getenv("EXOSWARM_LLAMA")
	if folder == "" {
		t.Skip("EXOSWARM_LLAMA names no folder with node-llama-cpp")
	}
	parameters := []gguf.Pair{
		{Key: "general.architecture", Value: "llama"},
		{Key: "llama.context_length", Value: uint32(128)},
		{Key: "llama.embedding_length", Value: uint32(32)},
		{Key: "llama.block_count", Value: uint32(1)},
		{Key: "llama.feed_forward_length", Value: uint32(32)},
		{Key: "llama.attention.head_count", Value: uint32(1)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
	}
	texts, err := filepath.Abs("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string][]gguf.Pair{
		"sentence": sentenceKeys(), "gpt2": ggufOf(t, "gpt2"), "llama3": ggufOf(t, "llama3"),
		"qwen2": ggufOf(t, "qwen2"),
	} {
		data := write(t, append(slices.Clone(parameters), keys...))
		file := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := open(data)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := FromGGUF(f)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "node", "testdata/llama.mjs", folder, file, texts).Output()
		var want [][2][]int32
		if err == nil {
			err = json.Unmarshal(out, &want)
		}
		if err != nil {
			t.Fatalf("node: %v\n%s", err, out)
		}
		for i, text := range readGolden(t).Texts {
			for k, special := range []bool{false, true} {
				if got := encode(t, tok, text, special); !slices.Equal(got, want[i][k]) {
					t.Errorf("%s: Encode of %q: %q, want %q", name, text, quoted(tok, got), quoted(tok, want[i][k]))
				}
			}
		}
	}
}
