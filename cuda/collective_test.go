package cuda_test

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
)

// TestOpenCollective: devices that NCCL does not serve meet in host memory, and the route says why.
func TestOpenCollective(t *testing.T) {
	devicetest.RunCollective(t, func(t testing.TB) device.Collective {
		var all []device.Device
		for range 2 {
			d, err := cuda.Open(t.Context(), "host", cuda.Options{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		c, err := cuda.OpenCollective(t.Context(), all, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := c.Route(); r.Name != "host" || r.Reason == "" {
			t.Errorf("route %+v", r)
		}
		return c
	})
	if _, err := cuda.OpenCollective(t.Context(), nil, nil); !errors.Is(err, device.ErrInvalidArgument) {
		t.Error(err)
	}
}
