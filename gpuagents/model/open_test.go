package model_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestOpen: a model of several files, and one of a GGUF file, are held with the bytes of their
// tensors. Another digest, the weights of a cell, a missing file and a changed one are refused.
func TestOpen(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	store := open(t, dir)
	files := bucket.NewFiles(store, nil, "")
	testkit.Close(t, files)
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	refs := map[string]swarms.ModelRef{}
	for name, parts := range map[string][]model.Part{
		"several": several(t), "one": {part(model.GGUFName, ofGGUF(t))},
	} {
		_, digest, err := model.Load(ctx, store, name, parts, model.About{})
		testkit.NoError(t, "model.Load", err)
		ref := swarms.ModelRef{Name: name, SHA256: digest}
		refs[name] = ref
		h := weights.NewHolder(d, nil)
		exact := weights.Ref{ModelRef: ref, Exact: true}
		m, err := h.Hold(ctx, exact, func(ctx context.Context) (weights.Source, error) {
			return model.Open(ctx, store, files, ref)
		})
		testkit.NoError(t, "Hold", err)
		for _, v := range values(t) {
			at, err := m.Tensor(v.Name)
			testkit.NoError(t, "Tensor", err)
			got := make([]float32, at.Bytes/4)
			testkit.NoError(t, "Read", at.Buffer.Read(at.Offset, device.Bytes(got)))
			want := v.Of
			if name == "one" && len(v.Shape) == 2 {
				data, err := quant.EncodeQ8(v.Of)
				testkit.NoError(t, "EncodeQ8", err)
				testkit.NoError(t, "Decode", quant.Decode(quant.Q8_0, want, data))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s: element %d of %s is %v, want %v", name, i, v.Name, got[i], want[i])
				}
			}
		}
		testkit.NoError(t, "Release", m.Release())
	}
	cell, digest, err := model.Save(ctx, store, "cell", golden(t))
	testkit.NoError(t, "model.Save", err)
	for ref, want := range map[swarms.ModelRef]error{
		{Name: cell.Name, SHA256: digest}:                  model.ErrMismatch,
		{Name: "one", SHA256: strings.Repeat("0", 64)}:     model.ErrMismatch,
		{Name: "nowhere", SHA256: strings.Repeat("0", 64)}: model.ErrNotFound,
	} {
		if _, err := model.Open(ctx, store, files, ref); !errors.Is(err, want) {
			t.Errorf("Open of %v: %v, want %v", ref, err, want)
		}
	}
	file := filepath.Join(dir, "several.model", "model-1.safetensors")
	data, err := os.ReadFile(file)
	testkit.NoError(t, "os.ReadFile", err)
	data[len(data)-1] ^= 1
	testkit.NoError(t, "os.WriteFile", os.WriteFile(file, data, 0o600))
	if _, err := weights.NewHolder(d, nil).Hold(ctx, weights.Ref{ModelRef: refs["several"]},
		func(ctx context.Context) (weights.Source, error) {
			return model.Open(ctx, store, files, refs["several"])
		}); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("Hold of a changed file: %v, want a bucket.ErrChanged", err)
	}
	testkit.NoError(t, "os.Remove", os.Remove(file))
	if _, err := model.Open(ctx, store, files, refs["several"]); !errors.Is(err, model.ErrCorrupt) ||
		!strings.Contains(err.Error(), "model-1.safetensors is missing") {
		t.Errorf("Open without a file: %v, want an ErrCorrupt with its name", err)
	}
}

// TestCut: a file that is cut short while its layers pass is an error of the step.
func TestCut(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	store := open(t, dir)
	files := bucket.NewFiles(store, nil, "")
	testkit.Close(t, files)
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	large := strings.Replace(config, `"num_hidden_layers":2`, `"num_hidden_layers":6`, 1)
	all := valuesOf(t, large)
	parts := []model.Part{part(model.ConfigName, []byte(large)), part(model.OneName, tensorsOf(t, all))}
	_, digest, err := model.Load(ctx, store, "m", parts, model.About{})
	testkit.NoError(t, "model.Load", err)
	ref := swarms.ModelRef{Name: "m", SHA256: digest}
	h := weights.NewHolder(d, pages.NewBudget(80<<10, 0))
	m, err := h.Hold(ctx, weights.Ref{ModelRef: ref, Exact: true}, func(ctx context.Context) (weights.Source, error) {
		return model.Open(ctx, store, files, ref)
	})
	testkit.NoError(t, "Hold", err)
	if i := h.Models()[0]; i.File == 0 {
		t.Fatalf("%+v: no layer passes from the file", i)
	}
	s, err := d.NewStream()
	testkit.NoError(t, "NewStream", err)
	testkit.Close(t, s)
	step := func() error {
		p, err := m.Pass(ctx, s)
		testkit.NoError(t, "Pass", err)
		for i := 0; i < 6 && err == nil; i++ {
			err = p.Layer(i)
		}
		return errors.Join(err, p.End(), s.Sync(ctx))
	}
	testkit.NoError(t, "a step", step())
	testkit.NoError(t, "os.Truncate", os.Truncate(filepath.Join(dir, "m.model", model.OneName), 4096))
	if err := step(); !errors.Is(err, model.ErrCorrupt) || !strings.Contains(err.Error(), "was cut short") {
		t.Errorf("a step with a file that is cut short: %v, want an ErrCorrupt", err)
	}
	testkit.NoError(t, "Release", m.Release())
}
