package opponents

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkScore(b *testing.B) {
	rows := noise(rand.New(rand.NewPCG(1, 2)), 4032, 1)
	for _, d := range All() {
		b.Run(d.Name(), func(b *testing.B) {
			for b.Loop() {
				d.Score(rows, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*4032), "ns/row")
		})
	}
}
