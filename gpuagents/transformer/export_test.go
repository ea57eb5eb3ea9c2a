package transformer

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
)

// Shaped opens a machine with random weights of the flags -shape and -kind, for conversations of
// context tokens in pages of at least 16 positions, and returns its parameters and the bytes of a
// page.
func Shaped(t testing.TB, dev device.Device, context int) (*Machine, architecture.Parameters, int) {
	t.Helper()
	p := shapeOf(*shape)
	p.Context = max(p.Context, context)
	page := 256 << 10
	for page < 8*context || int64(page) < PageBytes(p, 16) {
		page *= 2
	}
	return machine(t, dev, filled(t, p, *kind), Options{
		PagePositions: page / int(PositionBytes(p)), PageSize: int64(page), Context: context, Chunk: 512,
	}), p, page
}
