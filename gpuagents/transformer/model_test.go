package transformer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// model is a model in memory. Its values are exact in the type of each tensor.
type model struct {
	p       architecture.Parameters
	kind    string // of matrices
	tensors map[string]tensor
}

type tensor struct {
	shape  []int64
	kind   string
	data   []byte
	values []float32
}

// set encodes values as a type; what is left are the values that the type has.
func (m *model) set(name string, shape []int64, values []float32, kind string) error {
	var data []byte
	switch kind {
	case quant.F32:
		data = device.Bytes(values)
	case quant.BF16:
		for _, v := range values {
			data = binary.LittleEndian.AppendUint16(data, device.ToBF16(v))
		}
	case quant.Q8_0:
		var err error
		if data, err = quant.EncodeQ8(values); err != nil {
			return err
		}
	}
	exact := make([]float32, len(values))
	if err := quant.Decode(kind, exact, data); err != nil {
		return err
	}
	m.tensors[name] = tensor{shape, kind, data, exact}
	return nil
}

// random returns a model with random weights, large enough for states that differ.
func random(t testing.TB, seed uint64, p architecture.Parameters, kind string) *model {
	t.Helper()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 7))
	m := &model{p: p, kind: kind, tensors: map[string]tensor{}}
	for _, of := range p.Tensors() {
		n := int64(1)
		for _, d := range of.Shape {
			n *= d
		}
		values, form := make([]float32, n), kind
		for i := range values {
			switch {
			case len(of.Shape) > 1:
				values[i] = float32(r.NormFloat64()) / float32(math.Sqrt(float64(of.Shape[1])))
			case of.Name == architecture.RopeFreqs:
				values[i] = 1 + r.Float32()
			default:
				values[i] = 1 + 0.2*float32(r.NormFloat64())
			}
		}
		if len(of.Shape) == 1 {
			form = quant.F32
		}
		if err := m.set(of.Name, of.Shape, values, form); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// as returns the model with matrices of another type: the same values, if that has them.
func (m *model) as(t testing.TB, kind string) *model {
	t.Helper()
	other := &model{p: m.p, kind: kind, tensors: map[string]tensor{}}
	for name, of := range m.tensors {
		form := of.kind
		if len(of.shape) > 1 {
			form = kind
		}
		if err := other.set(name, of.shape, of.values, form); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// onDevice are the tensors of a model in one buffer of a device.
type onDevice struct {
	m      *model
	buffer device.Buffer
	at     map[string]int64
}

func (d *onDevice) Tensor(name string) (weights.Tensor, error) {
	of, there := d.m.tensors[name]
	if !there {
		return weights.Tensor{}, fmt.Errorf("%w: %s", weights.ErrTensor, name)
	}
	t := weights.Tensor{
		Buffer: d.buffer, Offset: d.at[name], Bytes: int64(len(of.data)), Type: of.kind, Rows: 1,
		Columns: int(of.shape[0]),
	}
	if len(of.shape) > 1 {
		t.Rows, t.Columns = int(of.shape[0]), int(of.shape[1])
	}
	return t, nil
}

// put copies a model to a device.
func (m *model) put(t testing.TB, dev device.Device) *onDevice {
	t.Helper()
	d, end := &onDevice{m: m, at: map[string]int64{}}, int64(0)
	for _, of := range m.p.Tensors() {
		d.at[of.Name] = end
		end += (int64(len(m.tensors[of.Name].data)) + 255) &^ 255
	}
	d.buffer = alloc(t, dev, end)
	for name, at := range d.at {
		if err := d.buffer.Write(at, m.tensors[name].data); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func alloc(t testing.TB, dev device.Device, n int64) device.Buffer {
	t.Helper()
	b, err := dev.Alloc(n, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// machine opens a machine over a model.
func machine(t testing.TB, dev device.Device, m *model, o Options) *Machine {
	t.Helper()
	o.Parameters = m.p
	made, err := New(t.Context(), dev, o, m.put(t, dev))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

// small are parameters of a family that tests compute in milliseconds.
func small(family string) architecture.Parameters {
	p := architecture.Parameters{
		Family: family, Layers: 2, Width: 64, Inner: 96, Heads: 4, KVHeads: 2, HeadWidth: 16, Vocabulary: 96,
		Context: 1024, Epsilon: 1e-5, Rope: architecture.Rope{Theta: 10000},
	}
	switch family {
	case architecture.Llama:
		p.Rope = architecture.Rope{
			Theta: 10000, Pairs: true, Scaling: architecture.Llama3, Factor: 8, Low: 1, High: 4, Original: 32,
		}
		p.KVHeads = 1
	case architecture.Mistral:
		p.Window, p.Rope.Scaling, p.Rope.Factor = 20, architecture.Linear, 4
		p.HeadWidth = 32
	case architecture.Qwen2:
		p.Bias, p.Tied, p.Rope.Scaling = true, true, architecture.Factors
	case architecture.Qwen3:
		p.HeadNorms, p.KVHeads = true, 4
	}
	return p
}

var families = []string{architecture.Llama, architecture.Mistral, architecture.Qwen2, architecture.Qwen3}

// filled is random for large models: matrices repeat a few values.
func filled(t testing.TB, p architecture.Parameters, kind string) *model {
	t.Helper()
	r := rand.New(rand.NewPCG(17, 18))
	noise := make([]float32, 1<<16)
	for i := range noise {
		noise[i] = float32(r.NormFloat64()) * 0.02
	}
	m := &model{p: p, kind: kind, tensors: map[string]tensor{}}
	pattern := &model{tensors: m.tensors}
	if err := pattern.set("noise", nil, noise, kind); err != nil {
		t.Fatal(err)
	}
	data := m.tensors["noise"].data
	for _, of := range p.Tensors() {
		if len(of.Shape) == 1 {
			ones := make([]float32, of.Shape[0])
			for i := range ones {
				ones[i] = 1
			}
			if err := m.set(of.Name, of.Shape, ones, quant.F32); err != nil {
				t.Fatal(err)
			}
			continue
		}
		elements, bytes, _ := quant.Block(kind)
		n := of.Shape[0] * of.Shape[1] / elements * bytes
		whole := make([]byte, 0, n)
		for int64(len(whole)) < n {
			whole = append(whole, data[:min(int64(len(data)), n-int64(len(whole)))]...)
		}
		m.tensors[of.Name] = tensor{shape: of.Shape, kind: kind, data: whole}
	}
	return m
}
