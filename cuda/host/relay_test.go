package host_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/cuda/host"
)

func hosts(t testing.TB, n int) []device.Device {
	t.Helper()
	var all []device.Device
	for range n {
		d, err := host.Open(host.Options{Workers: 2, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func over(n int) devicetest.CollectiveOpener {
	return func(t testing.TB) device.Collective {
		c, err := host.NewRelay(hosts(t, n), "a test")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func TestRelayConformance(t *testing.T) {
	t.Run("two", func(t *testing.T) { devicetest.RunCollective(t, over(2)) })
	t.Run("three", func(t *testing.T) { devicetest.RunCollective(t, over(3)) })
}

func BenchmarkCollective(b *testing.B) { devicetest.BenchCollective(b, over(2)) }

// TestRelayRefusals: what can be no rank, and no memory for the staging of the last one, leave
// nothing behind.
func TestRelayRefusals(t *testing.T) {
	all := hosts(t, 2)
	last := faults.New(all[1])
	defer func() {
		for _, d := range all {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	for what, ranks := range map[string][]device.Device{
		"none": nil, "nil": {all[0], nil},
		"twice": {all[0], all[1], all[0]},
	} {
		if _, err := host.NewRelay(ranks, ""); !errors.Is(err, device.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	last.Fail(faults.Pin, 0, 1, device.ErrOutOfMemory)
	if _, err := host.NewRelay([]device.Device{all[0], last}, ""); !errors.Is(err, device.ErrOutOfMemory) {
		t.Error(err)
	}
}

// TestRelayFaults: a copy or a wait that fails on one device fails the call with its class, and the
// next call is right.
func TestRelayFaults(t *testing.T) {
	all := hosts(t, 2)
	sick := faults.New(all[1])
	c, err := host.NewRelay([]device.Device{all[0], sick}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	places := make([]device.Place, 2)
	for rank, d := range c.Devices() {
		b, err := d.Alloc(64, "test")
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		places[rank] = device.Place{Stream: s, Buffer: b}
	}
	defer func() {
		for _, p := range places {
			if err := errors.Join(p.Stream.Close(), p.Buffer.Close()); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(c.Close(), all[0].Close(), sick.Close()); err != nil {
			t.Error(err)
		}
	}()
	settle := func() { // work of the ranks that are well may be under way
		for _, p := range places {
			if err := p.Stream.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, op := range []faults.Op{faults.Copy, faults.Wait} {
		for skip := range 2 {
			for rank, p := range places {
				if err := p.Buffer.Write(0, device.Bytes([]uint64{5, uint64(rank)})); err != nil {
					t.Fatal(err)
				}
			}
			sick.Fail(op, skip, 1, device.ErrTransient)
			if err := c.Sum(t.Context(), device.KindUint64, 2, places); !errors.Is(err, device.ErrTransient) {
				t.Errorf("sum: %v %d: %v", op, skip, err)
			}
			settle()
			sick.Fail(op, skip, 1, device.ErrTransient)
			if err := c.Gather(t.Context(), 16, places); !errors.Is(err, device.ErrTransient) {
				t.Errorf("gather: %v %d: %v", op, skip, err)
			}
			settle()
		}
	}
	for rank, p := range places {
		if err := p.Buffer.Write(0, device.Bytes([]uint64{5, uint64(rank)})); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Sum(t.Context(), device.KindUint64, 2, places); err != nil {
		t.Fatal(err)
	}
	got := make([]uint64, 2)
	if err := places[1].Buffer.Read(0, device.Bytes(got)); err != nil || got[0] != 10 || got[1] != 1 {
		t.Errorf("%v: %v", got, err)
	}
}
