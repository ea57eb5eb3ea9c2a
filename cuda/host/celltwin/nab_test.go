package celltwin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/quality"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func loadStreams(t testing.TB) []quality.Stream {
	t.Helper()
	dir, err := quality.NABDir()
	if errors.Is(err, quality.ErrNoData) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	streams, err := quality.LoadNAB(dir)
	if err != nil {
		t.Fatal(err)
	}
	return streams
}

// detect scores every stream with its own group, all with the same spec.
func detect(t testing.TB, streams []quality.Stream, values map[string]float64, agents int) (scores [][]float32,
	alarms int,
) {
	b := bind(t, "predictor", values, agents, 1, cells.Weighted)
	for _, s := range streams {
		x := make([]float32, len(s.Values))
		for i, v := range s.Values {
			x[i] = float32(v)
		}
		out := newSwarm(t, b, 1<<20).series(s.Times, x)
		for _, d := range out.decisions {
			if d == kernels.VoteAnomalous {
				alarms++
			}
		}
		scores = append(scores, out.scores)
	}
	return scores, alarms
}

// TestStreams: on real labelled streams the predictor beats the random cut forest (52.0) and the
// windowed Gaussian (36.7). Learning is worth nothing here and must not harm either; package
// celldetector shows what it is worth on generated series.
func TestStreams(t *testing.T) {
	streams := loadStreams(t)
	agents := testkit.Of(256, 48)
	if testing.Short() {
		agents = 48
	}
	score := func(values map[string]float64) float64 {
		scores, alarms := detect(t, streams, values, agents)
		r, err := quality.NABScore(quality.Standard, streams, scores)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: standard score %.2f at threshold %.3f, %.1f anomalous decisions a stream", values, r.Score,
			r.Threshold, float64(alarms)/float64(len(streams)))
		return r.Score
	}
	on, off := score(nil), score(map[string]float64{"learn": 0})
	if on <= 67 {
		t.Errorf("standard score %.2f, want above 67", on)
	}
	if on < off-2 {
		t.Errorf("standard score %.2f with learning, %.2f without", on, off)
	}
}

func BenchmarkPredictor(b *testing.B) {
	for _, run := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("run=%d", run), func(b *testing.B) { benchmarkCell(b, "predictor", 256, run) })
	}
}

// BenchmarkRelations times a group of several features, without relations and with them.
func BenchmarkRelations(b *testing.B) {
	for _, features := range []int{2, 8, 32} {
		for _, on := range []float64{0, 1} {
			b.Run(fmt.Sprintf("features=%d,relations=%v", features, on), func(b *testing.B) {
				benchmarkFeatures(b, "predictor", map[string]float64{"relations": on}, 256, 16, features)
			})
		}
	}
}

func BenchmarkLeaky(b *testing.B) { benchmarkCell(b, "leaky", 64, 16) }

// benchmarkCell times runs of one length; ns/agent-step is what one agent costs for one observation
// on one core.
func benchmarkCell(b *testing.B, cell string, agents, run int) {
	benchmarkFeatures(b, cell, nil, agents, run, 1)
}

func benchmarkFeatures(b *testing.B, cell string, values map[string]float64, agents, run, features int) {
	s := newSwarm(b, bind(b, cell, values, agents, features, cells.Weighted), 1<<20)
	times, x := make([]int64, run), make([]float32, run*features)
	steps := 0
	for b.Loop() {
		for i := range x {
			times[i/features], x[i] = int64(steps+i/features)*300e9, float32((steps+i/features+i%features)%37)
		}
		s.series(times, x)
		steps += run
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(steps*agents), "ns/agent-step")
	b.ReportMetric(0, "ns/op")
}
