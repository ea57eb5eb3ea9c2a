package transformer

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// shape is the shape of the benchmarks: gopher, 1b and 8b. The weights are random.
var shape = flag.String("shape", "gopher", "the shape of the model of benchmarks: gopher, 1b, 8b")

// kind is the type of its matrices.
var kind = flag.String("kind", quant.F32, "the type of the matrices of the model of benchmarks: F32, BF16, Q8_0")

func shapeOf(name string) architecture.Parameters {
	p := architecture.Parameters{
		Family: architecture.Llama, Layers: 4, Width: 128, Inner: 384, Heads: 4, KVHeads: 2, HeadWidth: 32,
		Vocabulary: 2048, Context: 2048, Epsilon: 1e-5, Rope: architecture.Rope{Theta: 10000}, Tied: true,
	}
	switch name {
	case "1b":
		p.Layers, p.Width, p.Inner, p.Heads, p.KVHeads, p.HeadWidth = 16, 2048, 8192, 32, 8, 64
		p.Vocabulary, p.Context = 128256, 8192
	case "8b":
		p.Layers, p.Width, p.Inner, p.Heads, p.KVHeads, p.HeadWidth = 32, 4096, 14336, 32, 8, 128
		p.Vocabulary, p.Context, p.Tied = 128256, 8192, false
	}
	return p
}

// BenchmarkStep is a step of agents that draw a token behind a number of positions, and the reading
// of a prompt.
func BenchmarkStep(b *testing.B) {
	dev := opentest.Open(b, *opentest.Name, cuda.Options{})
	p := shapeOf(*shape)
	of := filled(b, p, *kind)
	const positions = 1024
	pages := positions/16 + 1
	m := machine(b, dev, of, Options{PagePositions: 16, Context: positions + 16, Chunk: 512})
	r := rand.New(rand.NewPCG(1, 2))
	for _, agents := range []int{1, 8, 64} {
		if int64(agents*pages)*m.o.PageSize > 16<<30 {
			continue
		}
		b.Run(fmt.Sprintf("agents=%d", agents), func(b *testing.B) {
			pool := alloc(b, dev, int64(agents*pages)*m.o.PageSize)
			if err := pool.Fill(0, pool.Size(), 0); err != nil {
				b.Fatal(err)
			}
			runs := make([]Run, agents)
			for i := range runs {
				runs[i] = Run{
					From: positions - 1, Tokens: words(r, 1, p.Vocabulary), Draw: true, Agent: uint64(i),
					Sampling: Sampling{Temperature: 1, TopP: 0.9},
				}
				for k := range pages {
					runs[i].Frames = append(runs[i].Frames, uint32(i*pages+k))
				}
			}
			out := make([]Token, agents)
			for b.Loop() {
				if err := m.Step(b.Context(), pool, runs, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(agents)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
	b.Run("prompt", func(b *testing.B) {
		c := alone(b, dev, m, positions)
		run := c.run(words(r, positions, p.Vocabulary)...)
		for b.Loop() {
			if err := m.Step(b.Context(), c.pool, []Run{run}, make([]Token, 1)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(positions*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	})
}
