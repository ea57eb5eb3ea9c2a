package cuda

import (
	"context"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// counted is a relay that counts its calls.
type counted struct {
	*host.Relay
	calls int
}

func (c *counted) Sum(ctx context.Context, element device.Kind, n int64, places []device.Place) error {
	c.calls++
	return c.Relay.Sum(ctx, element, n, places)
}

func (c *counted) Gather(ctx context.Context, n int64, places []device.Place) error {
	c.calls++
	return c.Relay.Gather(ctx, n, places)
}

func overHosts(t testing.TB) (*mixed, *counted) {
	t.Helper()
	var all []device.Device
	for range 2 {
		d, err := Open(t.Context(), "host", Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		all = append(all, d)
	}
	r, err := host.NewRelay(all, "a test")
	if err != nil {
		t.Fatal(err)
	}
	large := &counted{Relay: r}
	m, err := newMixed(large)
	if err != nil {
		t.Fatal(err)
	}
	return m, large
}

// TestMixed: a collective of two ways is one.
func TestMixed(t *testing.T) {
	devicetest.RunCollective(t, func(t testing.TB) device.Collective {
		m, _ := overHosts(t)
		return m
	})
}

// TestMixedWays: calls of up to smallCall bytes of a rank go one way, and the others the other.
func TestMixedWays(t *testing.T) {
	m, large := overHosts(t)
	var places []device.Place
	for _, d := range m.Devices() {
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Alloc(4*smallCall, "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = s.Close(), b.Close() })
		places = append(places, device.Place{Stream: s, Buffer: b})
	}
	for _, c := range []struct {
		bytes int64
		want  int
	}{{smallCall, 0}, {smallCall + 8, 2}} {
		large.calls = 0
		if err := m.Gather(t.Context(), c.bytes, places); err != nil {
			t.Fatal(err)
		}
		if err := m.Sum(t.Context(), device.KindUint64, c.bytes/8, places); err != nil {
			t.Fatal(err)
		}
		if large.calls != c.want {
			t.Errorf("%d bytes: %d calls of the large way, want %d", c.bytes, large.calls, c.want)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
