package pool

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestProbe: a device that works passes the probe, and one that fails in any call does not.
func TestProbe(t *testing.T) {
	d := faults.New(launches.Host(t))
	testkit.NoError(t, "check", check(t.Context(), d))
	for _, op := range []faults.Op{faults.Alloc, faults.Launch, faults.Wait} {
		d.Fail(op, 0, 1, device.ErrTransient)
		if err := check(t.Context(), d); !errors.Is(err, device.ErrTransient) {
			t.Errorf("%v: check: %v, want %v", op, err, device.ErrTransient)
		}
	}
	if err := check(t.Context(), d); err != nil {
		t.Errorf("check: %v, want no error", err)
	}
}
