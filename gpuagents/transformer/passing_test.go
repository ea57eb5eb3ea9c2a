package transformer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// source is a model as weights.Source.
type source struct{ m *model }

func (s source) Parameters() *architecture.Parameters { return &s.m.p }

func (s source) Tensor(name string) (string, int64, error) {
	of := s.m.tensors[name]
	return of.kind, int64(len(of.data)), nil
}

func (s source) Read(_ context.Context, name string, off int64, p []byte) error {
	copy(p, s.m.tensors[name].data[off:][:len(p)])
	return nil
}

func (source) Close() error { return nil }

// TestPassingLayers: a model whose layers pass through the device in each walk says the same as the
// model on the device.
func TestPassingLayers(t *testing.T) {
	dev, p := opentest.Device(t), small(architecture.Llama)
	p.Layers = 9
	of := random(t, 21, p, quant.Q8_0)
	o := Options{Parameters: p, PagePositions: 8, Chunk: 10}
	tokens := words(rand.New(rand.NewPCG(21, 22)), 35, p.Vocabulary)
	want := alone(t, dev, machine(t, dev, of, o), len(tokens)).read(t, tokens...)
	h := weights.NewHolder(dev, pages.NewBudget(700<<10, 0))
	ref := weights.Ref{ModelRef: swarms.ModelRef{Name: "m", SHA256: strings.Repeat("a", 64)}, Exact: true}
	held, err := h.Hold(t.Context(), ref, func(context.Context) (weights.Source, error) { return source{of}, nil })
	testkit.NoError(t, "Hold", err)
	defer func() { testkit.NoError(t, "Release", held.Release()) }()
	if n := h.Models()[0].Passing; n < 3 {
		t.Fatalf("%d layers pass: the test needs more", n)
	}
	m, err := New(t.Context(), dev, o, held)
	testkit.NoError(t, "New", err)
	defer func() { testkit.NoError(t, "Close", m.Close()) }()
	c := alone(t, dev, m, len(tokens))
	if got := c.read(t, tokens...); !slices.Equal(got, want) {
		t.Errorf("off by %.2e", off(got, want))
	}
}
