//go:build cuda

package driver

import (
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestPriority: a stream has a higher priority than a background stream, also one that was closed
// and is opened again.
func TestPriority(t *testing.T) {
	d := openGPU(t, Options{})
	open := map[rank]func() (device.Stream, error){ahead: d.NewStream, behind: d.NewBackgroundStream}
	for range 3 {
		var priorities [2]int
		for of, open := range open {
			opened, err := open()
			testkit.NoError(t, "open a stream", err)
			s := opened.(*stream)
			raw := *(*cu.Stream)(unsafe.Pointer(&s.raw)) // a struct of nothing but it
			err = d.enter(func() (err error) {
				priorities[of], err = raw.Priority()
				return err
			})
			testkit.NoError(t, "Priority", err)
			testkit.NoError(t, "Close", s.Close())
		}
		if priorities[ahead] >= priorities[behind] {
			t.Fatalf("priorities %v of streams and background streams, want a lower number of streams", priorities)
		}
	}
	testkit.NoError(t, "Close", d.Close())
}
