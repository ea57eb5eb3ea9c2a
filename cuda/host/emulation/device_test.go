package emulation

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/host"
)

// TestBuildIsKept: two devices with the same kernels have one program, whatever the order in which
// the kernels were made. Otherwise each run of the tests compiles it.
func TestBuildIsKept(t *testing.T) {
	const many = 8 // orders by chance agree once in 40,320
	program := func(order func(i int) int) string {
		h, err := host.Open(host.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatalf("host.Open: %v", err)
		}
		d := NewDevice(t, h)
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		for i := range many {
			name := fmt.Sprintf("kept_%d", order(i))
			source := fmt.Sprintf("extern \"C\" __global__ void %s(unsigned *out) { out[0] = %d; }", name, order(i))
			if _, err := d.Compile(name, source); err != nil {
				t.Fatalf("Compile: %v", err)
			}
		}
		if err := d.Build(); err != nil {
			t.Fatalf("Build: %v", err)
		}
		return d.kernels["kept_0"].program
	}
	first := program(func(i int) int { return i })
	if second := program(func(i int) int { return many - 1 - i }); second != first {
		t.Errorf("the programs are %s and %s", first, second)
	}
}
