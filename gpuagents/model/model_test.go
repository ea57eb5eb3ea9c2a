package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string) *bucket.Folder {
	t.Helper()
	b, err := bucket.OpenFolder(dir)
	testkit.NoError(t, "bucket.OpenFolder", err)
	testkit.Close(t, b)
	return b
}

// golden is a file that PyTorch has written, of a GRUCell(3, 8) and a Linear(8, 3).
func golden(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/gru.safetensors")
	testkit.NoError(t, "os.ReadFile", err)
	return data
}

func cell(t testing.TB, features int, hidden float64) *cells.Addressed {
	t.Helper()
	c, err := cells.Address("gru", map[string]float64{"hidden": hidden}, 2, features, 3, cells.Voting{})
	testkit.NoError(t, "cells.Address", err)
	return c
}

// TestSave: a model is found again by its name and digest, once stored it does not change, and
// every flipped byte of it is an error.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	b, ctx := open(t, dir), t.Context()
	m, digest, err := model.Save(ctx, b, "first", golden(t))
	testkit.NoError(t, "model.Save", err)
	for what, data := range map[string][]byte{"no file of tensors": []byte("12345678{}"), "empty": nil} {
		if _, _, err := model.Save(ctx, b, "second", data); !errors.Is(err, safetensors.ErrFormat) {
			t.Errorf("Save of %s: %v, want a safetensors.ErrFormat", what, err)
		}
	}
	if _, _, err := model.Save(ctx, b, "second", make([]byte, model.MaxBytes+1)); !errors.Is(err, model.ErrTooLarge) {
		t.Errorf("Save of a large file: %v, want an ErrTooLarge", err)
	}
	again, same, err := model.Save(ctx, b, "first", golden(t))
	if err != nil || same != digest || cmp.Diff(again, m) != "" {
		t.Errorf("Save of the same file: %v, %s, %v, want %s", again, same, err, digest)
	}
	var other bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&other, nil))
	if _, _, err := model.Save(ctx, b, "first", other.Bytes()); !errors.Is(err, model.ErrExists) {
		t.Errorf("Save of another file: %v, want an ErrExists", err)
	}
	if names, err := model.Names(ctx, b); err != nil || cmp.Diff(names, []string{"first"}) != "" {
		t.Errorf("Names: %q, %v, want first", names, err)
	}
	found, err := model.Find(ctx, b, swarms.ModelRef{Name: "first", SHA256: digest})
	if d := cmp.Diff(m, found); err != nil || d != "" {
		t.Errorf("Find: %v, %s", err, d)
	}
	for ref, want := range map[swarms.ModelRef]error{
		{Name: "gone", SHA256: digest}:                   model.ErrNotFound,
		{Name: "first", SHA256: strings.Repeat("0", 64)}: model.ErrMismatch,
	} {
		if _, err := model.Find(ctx, b, ref); !errors.Is(err, want) || !strings.Contains(err.Error(), ref.Name) {
			t.Errorf("Find of %v: %v, want %v with the name", ref, err, want)
		}
	}
	for _, name := range []string{"manifest.json", "weights.safetensors"} {
		file := filepath.Join(dir, "first.model", name)
		whole, err := os.ReadFile(file)
		testkit.NoError(t, "os.ReadFile", err)
		for at := 0; at < len(whole); at += 1 + len(whole)/50 {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 1
			for _, bad := range [][]byte{flipped, whole[:at]} {
				testkit.NoError(t, "os.WriteFile", os.WriteFile(file, bad, 0o600))
				m, err := model.Find(ctx, b, swarms.ModelRef{Name: "first", SHA256: digest})
				if err == nil {
					_, err = model.Read(ctx, b, m)
				}
				if !errors.Is(err, model.ErrCorrupt) && !errors.Is(err, model.ErrMismatch) {
					t.Fatalf("byte %d of %s is changed: %v, want an ErrCorrupt or an ErrMismatch", at, name, err)
				}
			}
		}
		testkit.NoError(t, "os.WriteFile", os.WriteFile(file, whole, 0o600))
	}
	testkit.NoError(t, "os.Remove", os.Remove(filepath.Join(dir, "first.model", "weights.safetensors")))
	_, err = model.Read(ctx, b, m)
	if !errors.Is(err, model.ErrCorrupt) || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("Read without the file: %v, want an ErrCorrupt", err)
	}
}

// TestFits: a tensor that is missing, of another shape, or of no use is an error that names it,
// with both shapes.
func TestFits(t *testing.T) {
	m, _, err := model.Save(t.Context(), open(t, t.TempDir()), "m", golden(t))
	testkit.NoError(t, "model.Save", err)
	testkit.NoError(t, "Fits", m.Fits(cell(t, 3, 8)))
	without, more, half := *m, *m, *m
	without.Tensors = m.Tensors[1:]
	more.Tensors = append(append([]model.Tensor{}, m.Tensors...), model.Tensor{Name: "embed.weight", Type: "F32"})
	half.Tensors = append([]model.Tensor{{Name: "bias_hh", Type: "F16", Shape: []int64{24}}}, m.Tensors[1:]...)
	for want, of := range map[string]struct {
		m    *model.Manifest
		cell *cells.Addressed
	}{
		"its tensor weight_ih is of F32 [24 3], and the cell takes F32 [24 2]": {m, cell(t, 2, 8)},
		"its tensor weight_ih is of F32 [24 3], and the cell takes F32 [12 3]": {m, cell(t, 3, 4)},
		"it has no tensor bias_hh, of F32 [24]":                                {&without, cell(t, 3, 8)},
		"its tensor embed.weight is none of the cell gru":                      {&more, cell(t, 3, 8)},
		"its tensor bias_hh is of F16 [24], and the cell takes F32 [24]":       {&half, cell(t, 3, 8)},
	} {
		if err := of.m.Fits(of.cell); !errors.Is(err, model.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("Fits: %v, want an ErrMismatch with %q", err, want)
		}
	}
	heard, err := cell(t, 2, 8).Hearing(1)
	testkit.NoError(t, "Hearing", err)
	testkit.NoError(t, "Fits with an input that is heard", m.Fits(heard))
}

// TestTorch: agents with the weights of a model have the units and votes that PyTorch 2.11 has
// computed with the same file and the same inputs.
func TestTorch(t *testing.T) {
	var want struct {
		Inputs          [][][]float32 `json:"inputs"`
		Hidden, Readout [][][]float64
	}
	text, err := os.ReadFile("testdata/gru.json")
	testkit.NoError(t, "os.ReadFile", err)
	testkit.NoError(t, "json.Unmarshal", json.Unmarshal(text, &want))
	ctx, b, c := t.Context(), open(t, t.TempDir()), cell(t, 3, 8)
	m, _, err := model.Save(ctx, b, "m", golden(t))
	testkit.NoError(t, "model.Save", err)
	table, err := m.Table(ctx, b, c)
	testkit.NoError(t, "Table", err)
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	a, err := agents.New(d, c, 2, agents.Options{})
	testkit.NoError(t, "agents.New", err)
	testkit.Close(t, a)
	testkit.NoError(t, "SetWeights", a.SetWeights(ctx, table))
	for step := range want.Hidden {
		out, err := a.Observe(ctx, []uint32{0, 1}, append(append([]float32{}, want.Inputs[0][step]...),
			want.Inputs[1][step]...))
		testkit.NoError(t, "Observe", err)
		got, err := a.AgentStates(ctx, []uint32{0, 1})
		testkit.NoError(t, "AgentStates", err)
		for agent := range 2 {
			for k, h := range want.Hidden[step][agent] {
				if off := math.Abs(float64(got.State[agent*got.Width+k]) - h); off > 2e-3 {
					t.Errorf("step %d, agent %d, unit %d: %v, want %v", step, agent, k, got.State[agent*got.Width+k], h)
				}
			}
			best, scores := 0, want.Readout[step][agent]
			for k := range scores {
				if scores[k] > scores[best] {
					best = k
				}
			}
			if int(out.Votes[agent]) != best && scores[best]-scores[out.Votes[agent]] > 4e-3 {
				t.Errorf("step %d, agent %d votes for %d, want %d of %v", step, agent, out.Votes[agent], best, scores)
			}
		}
	}
}

// TestTorchItems: the scores of items are what PyTorch's readouts say, and rows of the embedding
// are as inputs. items.safetensors is gru.safetensors, and the inputs of gru.json as embed.weight.
func TestTorchItems(t *testing.T) {
	var want struct {
		Readout [][][]float64
	}
	text, err := os.ReadFile("testdata/gru.json")
	testkit.NoError(t, "os.ReadFile", err)
	testkit.NoError(t, "json.Unmarshal", json.Unmarshal(text, &want))
	data, err := os.ReadFile("testdata/items.safetensors")
	testkit.NoError(t, "os.ReadFile", err)
	steps := len(want.Readout)
	of, err := cells.Address("gru", nil, 1, 3, 2, cells.Voting{})
	testkit.NoError(t, "Address", err)
	embedding, err := of.Embedding(2 * steps)
	testkit.NoError(t, "Embedding", err)
	c, err := embedding.Asking(3)
	testkit.NoError(t, "Asking", err)
	ctx, b := t.Context(), open(t, t.TempDir())
	m, _, err := model.Save(ctx, b, "m", data)
	testkit.NoError(t, "model.Save", err)
	table, err := m.Table(ctx, b, c)
	testkit.NoError(t, "Table", err)
	d, err := cuda.Open(ctx, "host", cuda.Options{})
	testkit.NoError(t, "cuda.Open", err)
	testkit.Close(t, d)
	a, err := agents.New(d, c, 2, agents.Options{Weights: table})
	testkit.NoError(t, "agents.New", err)
	testkit.Close(t, a)
	for step := range steps {
		asked := []int32{int32(step % 3), int32((step + 1) % 3)}
		out, _, err := a.ObserveParts(ctx, &gpubatch.Splitter{}, []uint32{0, 1},
			[]float32{float32(step), float32(steps + step)}, asked, agents.Launches{})
		testkit.NoError(t, "ObserveParts", err)
		for agent, item := range asked {
			p := 1 / (1 + math.Exp(-want.Readout[step][agent][item]))
			if off := math.Abs(float64(out.Scores[agent]) - p); off > 1e-3 {
				t.Errorf("step %d, agent %d, item %d: score %v, want %v", step, agent, item, out.Scores[agent], p)
			}
		}
	}
}

// TestShared: cells of the same sizes have one table, whoever asks, and others have another.
func TestShared(t *testing.T) {
	ctx, b := t.Context(), open(t, t.TempDir())
	m, digest, err := model.Save(ctx, b, "m", golden(t))
	testkit.NoError(t, "model.Save", err)
	ref := swarms.ModelRef{Name: "m", SHA256: digest}
	one, err := m.Shared(ctx, b, ref, cell(t, 3, 8))
	testkit.NoError(t, "Shared", err)
	two, err := m.Shared(ctx, b, ref, cell(t, 3, 8))
	testkit.NoError(t, "Shared", err)
	if one != two {
		t.Error("two tables of one model")
	}
	want, err := m.Table(ctx, b, cell(t, 3, 8))
	if err != nil || !slices.Equal(one.Table, want) {
		t.Errorf("the shared table is not Table's, %v", err)
	}
	heard, err := cell(t, 2, 8).Hearing(1)
	testkit.NoError(t, "Hearing", err)
	other, err := m.Shared(ctx, b, ref, heard)
	testkit.NoError(t, "Shared", err)
	if other == one {
		t.Error("one table of two cells")
	}
	if _, err := m.Shared(ctx, b, ref, cell(t, 2, 8)); !errors.Is(err, model.ErrMismatch) {
		t.Errorf("Shared of a cell of another size: %v, want an ErrMismatch", err)
	}
}

// TestWeights: weights that are not finite are refused with their place.
func TestWeights(t *testing.T) {
	f, err := safetensors.Open(bytes.NewReader(golden(t)), int64(len(golden(t))))
	testkit.NoError(t, "safetensors.Open", err)
	var all []safetensors.Values
	for _, of := range f.Tensors {
		values, err := f.Floats(of.Name)
		testkit.NoError(t, "Floats", err)
		if of.Name == "weight_hh" {
			values[17] = float32(math.NaN())
		}
		all = append(all, safetensors.Values{Name: of.Name, Shape: of.Shape, Of: values})
	}
	var data bytes.Buffer
	testkit.NoError(t, "safetensors.Write", safetensors.Write(&data, all))
	b := open(t, t.TempDir())
	m, _, err := model.Save(t.Context(), b, "m", data.Bytes())
	testkit.NoError(t, "model.Save", err)
	if _, err := m.Table(t.Context(), b, cell(t, 3, 8)); !errors.Is(err, cells.ErrParameter) ||
		!strings.Contains(err.Error(), "model m: invalid cell parameter: gru: HiddenHidden[17] is NaN") {
		t.Errorf("Table: %v, want an ErrParameter with the place", err)
	}
}

// FuzzManifest: any bytes are a manifest within its limits, or an error of the package.
func FuzzManifest(f *testing.F) {
	b := open(f, f.TempDir())
	_, _, err := model.Save(f.Context(), b, "m", golden(f))
	testkit.NoError(f, "model.Save", err)
	r, err := b.Open(f.Context(), "m.model/manifest.json")
	testkit.NoError(f, "Open", err)
	data, err := io.ReadAll(r)
	testkit.NoError(f, "io.ReadAll", errors.Join(err, r.Close()))
	f.Add(data)
	f.Add(bytes.Replace(data, []byte(`"v": 1`), []byte(`"v": 3`), 1))
	f.Add([]byte(`{"format":"exoswarm-model","v":1,"name":"m","files":[]}`))
	_, _, err = model.Load(f.Context(), b, "l", several(f), model.About{Licence: "x"})
	testkit.NoError(f, "model.Load", err)
	if r, err = b.Open(f.Context(), "l.model/manifest.json"); err == nil {
		data, err = io.ReadAll(r)
		err = errors.Join(err, r.Close())
	}
	testkit.NoError(f, "read the manifest", err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := model.ParseManifest(data)
		switch {
		case err == nil && m.Version == 1 && (len(m.Files) != 1 || m.Files[0].Bytes > model.MaxBytes),
			err == nil && m.Version != 1 && m.Parameters.Validate() != nil:
			t.Fatalf("%+v is read", m)
		case err != nil && !errors.Is(err, model.ErrCorrupt) && !errors.Is(err, model.ErrMismatch):
			t.Fatalf("ParseManifest: %v, want an error of the package", err)
		}
	})
}
