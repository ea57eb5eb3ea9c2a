package model_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// folder has the files of modeltest in memory.
func folder(t testing.TB) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{"other.txt": {Data: []byte("GG")}, "f/pipe": {Mode: os.ModeNamedPipe}}
	for _, name := range []string{
		"small.gguf", "small/config.json", "small/model-0.safetensors", "small/model-1.safetensors",
		"small/model.safetensors.index.json", "small/tokenizer.json",
	} {
		data, err := os.ReadFile("modeltest/" + name)
		testkit.NoError(t, "os.ReadFile", err)
		fsys[name] = &fstest.MapFile{Data: data}
	}
	return fsys
}

// TestOpenFiles: a model in no store has its parameters and tensors.
func TestOpenFiles(t *testing.T) {
	for _, name := range []string{"small.gguf", "small"} {
		var parts model.Parts
		testkit.Close(t, &parts)
		if is, err := parts.Open(folder(t), name); !is || err != nil {
			t.Fatalf("Open of %s: %v, %v", name, is, err)
		}
		o, err := model.OpenFiles("m", parts.Files)
		testkit.NoError(t, "OpenFiles", err)
		testkit.Close(t, o)
		if o.Parameters().Layers != 2 {
			t.Errorf("%s: %+v", name, o.Parameters())
		}
		for _, want := range values(t) {
			kind, n, err := o.Tensor(want.Name)
			testkit.NoError(t, "Tensor", err)
			data := make([]byte, n)
			testkit.NoError(t, "Read", o.Read(t.Context(), want.Name, 0, data))
			got := make([]float32, len(want.Of))
			testkit.NoError(t, "quant.Decode", quant.Decode(kind, got, data))
			for i, v := range want.Of {
				if math.Abs(float64(got[i]-v)) > 0.03 || kind == quant.F32 && got[i] != v {
					t.Fatalf("%s: value %d of tensor %s: %v, want %v", name, i, want.Name, got[i], v)
				}
			}
		}
	}
}

// TestPartsRefused: a folder without a model, a pipe and a file of another format.
func TestPartsRefused(t *testing.T) {
	for name, want := range map[string]string{
		"nothing": "file does not exist", "f": "the folder of a language model has config.json",
		"half": "convert other weights to safetensors first", "odd": "no regular file", "other.txt": "", "f/pipe": "",
	} {
		fsys := folder(t)
		fsys["half/config.json"] = fsys["small/config.json"]
		fsys["odd/config.json"] = &fstest.MapFile{Mode: os.ModeNamedPipe}
		var parts model.Parts
		is, err := parts.Open(fsys, name)
		if want == "" && (is || err != nil || len(parts.Files) > 0) || want != "" && err == nil ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Open of %s: %v, %v, want %q", name, is, err, want)
		}
		testkit.NoError(t, "Close", parts.Close())
	}
	if _, err := model.OpenFiles("m", nil); !errors.Is(err, model.ErrFiles) {
		t.Errorf("OpenFiles of nothing: %v, want an ErrFiles", err)
	}
	if _, err := model.Words(nil); !errors.Is(err, model.ErrFiles) {
		t.Errorf("Words of nothing: %v, want an ErrFiles", err)
	}
	_, err := model.Words([]model.Part{part(model.TokenizerName, []byte("{}"))})
	if !errors.Is(err, tokenizer.ErrTokenizer) {
		t.Errorf("Words of an empty file: %v, want an ErrTokenizer", err)
	}
}
