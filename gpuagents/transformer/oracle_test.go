package transformer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
)

// oracle has the files of the models that testdata/oracle.py made, by folder and name.
func oracle(t *testing.T) map[string]map[string][]byte {
	t.Helper()
	file, err := os.Open("testdata/oracle.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		folder, name := path.Dir(h.Name), path.Base(h.Name)
		if all[folder] == nil {
			all[folder] = map[string][]byte{}
		}
		if all[folder][name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// floats reads the tensors of a file of safetensors.
func floats(t *testing.T, data []byte) (f *safetensors.File, read func(name string) []float32) {
	t.Helper()
	f, err := safetensors.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f, func(name string) []float32 {
		values, err := f.Floats(name)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
}

// modelOf is a model of files, with matrices of a type.
func modelOf(t *testing.T, files map[string][]byte, kind string) *model {
	t.Helper()
	p, err := architecture.FromConfig(files["config.json"])
	if err != nil {
		t.Fatal(err)
	}
	m := &model{p: *p, kind: kind, tensors: map[string]tensor{}}
	f, read := floats(t, files["model.safetensors"])
	var have []architecture.Tensor
	for _, of := range f.Tensors {
		have = append(have, architecture.Tensor{Name: of.Name, Shape: of.Shape})
		form := kind
		if len(of.Shape) == 1 {
			form = quant.F32
		}
		if err := m.set(architecture.Canonical(of.Name), of.Shape, read(of.Name), form); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Check(have); err != nil {
		t.Fatal(err)
	}
	m.roundFrequencies(t)
	return m
}

// roundFrequencies rounds the frequencies of rotary positions to bf16: the models of the oracle
// were made float32, and a model of transformers that is made bf16 rounds its frequencies too.
func (m *model) roundFrequencies(t *testing.T) {
	t.Helper()
	plain := m.p
	plain.Rope = architecture.Rope{Theta: m.p.Rope.Theta}
	factors := make([]float32, m.p.HeadWidth/2)
	for i, f := range frequencies(&m.p, nil) {
		factors[i] = float32(frequencies(&plain, nil)[i] / float64(device.RoundBF16(float32(f))))
	}
	m.p.Rope = architecture.Rope{Theta: m.p.Rope.Theta, Scaling: architecture.Factors}
	if err := m.set(architecture.RopeFreqs, []int64{int64(len(factors))}, factors, quant.F32); err != nil {
		t.Fatal(err)
	}
}

// largest returns the token with the largest logit, and how far it is above the next.
func largest(logits []float32) (token int, margin float64) {
	order := slices.Clone(logits)
	slices.Sort(order)
	return slices.Index(logits, order[len(order)-1]), float64(order[len(order)-1] - order[len(order)-2])
}

// TestOracle compares logits with transformers' in float32 and in bf16, for weights of BF16 and of
// F32, which have the same values. In bf16 transformers rounds every state to 8 bits, and is off
// from its own float32 by 1.4e-2 to 3e-2 of the norm: a machine is as near to it as float32 is.
func TestOracle(t *testing.T) {
	dev := opentest.Device(t)
	for name, files := range oracle(t) {
		t.Run(name, func(t *testing.T) {
			var tokens []int32
			if err := json.Unmarshal(files["tokens.json"], &tokens); err != nil {
				t.Fatal(err)
			}
			_, read := floats(t, files["logits.safetensors"])
			want, rough := read("f32"), read("bf16")
			for _, kind := range []string{quant.F32, quant.BF16} {
				of := modelOf(t, files, kind)
				n := of.p.Vocabulary
				c := alone(t, dev, machine(t, dev, of, Options{PagePositions: 16}), len(tokens))
				rows := len(want) / n
				got := c.read(t, tokens[:len(tokens)-rows+1]...)
				for _, token := range tokens[len(tokens)-rows+1:] {
					got = append(got, c.read(t, token)...)
				}
				if o := off(got, want); o > 1e-5 {
					t.Errorf("%s: off by %.2e from float32", kind, o)
				}
				if o, own := off(got, rough), off(want, rough); o > own*1.01 {
					t.Errorf("%s: off by %.2e from bf16, and float32 by %.2e", kind, o, own)
				}
				for row := range rows {
					a, _ := largest(got[row*n:][:n])
					b, margin := largest(want[row*n:][:n])
					var most float64
					for i := range n {
						most = max(most, math.Abs(float64(got[row*n+i]-want[row*n+i])))
					}
					if a != b && margin > 2*most {
						t.Errorf("%s: row %d: token %d, want %d, which is %v above the next", kind, row, a, b, margin)
					}
				}
			}
		})
	}
}
