package fusion

import (
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
)

// Total is the sum of the nodes of several shards. Its sums are float64, so that adding shards up
// loses nothing that float32 can show: up to 2^29 shards of equal sign have a smaller error
// together than the rounding of one sum to float32.
type Total struct {
	Dim     int
	Sums    []float64 // [M][Dim]
	Weights []uint64  // [M], in units of 1/65536
	Counts  []uint64  // [M]
}

// Means writes the weighted mean of each node to dst, which has [M][Dim] elements; 0 for a node
// without weight. The quotient is rounded once.
func (t *Total) Means(dst []float32) error {
	if len(dst) != len(t.Sums) {
		return fmt.Errorf("means of %d values into %d: %w", len(t.Sums), len(dst), ErrLength)
	}
	for i, v := range t.Sums {
		dst[i] = 0
		if w := t.Weights[i/t.Dim]; w > 0 {
			dst[i] = float32(v / (float64(w) / consensus.One))
		}
	}
	return nil
}
