package training

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestHostBits: 200 steps on the device of the tests and on the host, with batches cut otherwise,
// end with the same bits.
func TestHostBits(t *testing.T) {
	steps := testkit.Of(200, 20)
	for _, hidden := range []int{8, 16, 32} {
		for _, s := range shapes(hidden) {
			train := func(device string, bytes int64) [32]byte {
				o := Options{
					Shape: s, Window: 24, Dropout: 0.2, Clip: 0.5, Seed: 3, BatchBytes: bytes,
					Adam: Adam{Rate: 4e-3, Decay: 1e-5},
				}
				tr, err := New(t.Context(), opentest.Open(t, device, cuda.Options{Poison: true}), o, nil)
				testkit.NoError(t, "New", err)
				testkit.Close(t, tr)
				r := rand.New(rand.NewPCG(4, uint64(hidden)))
				for range steps {
					_, err := tr.TrainStep(t.Context(), randomBatch(r, s, 1+r.IntN(70), 1+r.IntN(24), 0.2))
					testkit.NoError(t, "TrainStep", err)
				}
				data, err := tr.Checkpoint(t.Context())
				testkit.NoError(t, "Checkpoint", err)
				return sha256.Sum256(data)
			}
			got, want := train(*opentest.Name, 0), train("host", 1<<18)
			if got != want {
				t.Errorf("%+v: the checkpoint on %s is %x, on the host %x", s, *opentest.Name, got, want)
			}
		}
	}
}
