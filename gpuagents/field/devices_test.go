package field

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// openHost opens a host device on which nothing may be left.
func openHost(t *testing.T) *faults.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Close(t, d)
	return faults.New(d)
}

// TestOpen: the first peers with room are opened, and fewer with more bytes each if too few have
// room. An error of a peer that is not about room leaves no device open, and names the peer.
func TestOpen(t *testing.T) {
	a, b, c := openHost(t), openHost(t), openHost(t)
	bytes := func(devices int) int64 { return int64(1200 / devices) }
	for _, x := range []struct {
		room [3]int64
		want []device.Device
	}{
		{[3]int64{300, 300, 300}, []device.Device{a, b, c}},
		{[3]int64{300, 399, 900}, []device.Device{a, b, c}},
		{[3]int64{299, 400, 900}, []device.Device{b, c}},
		{[3]int64{299, 399, 600}, []device.Device{c}},
		{[3]int64{299, 399, 599}, nil},
	} {
		budgets := []*pages.Budget{}
		var peers []Peer
		for i, d := range []device.Device{a, b, c} {
			budgets = append(budgets, pages.NewBudget(x.room[i], 0))
			peers = append(peers, Peer{d, budgets[i]})
		}
		opened, err := openPeers(peers, bytes)
		if err != nil || len(opened) != len(x.want) {
			t.Fatalf("room %v: %d devices, %v, want %d", x.room, len(opened), err, len(x.want))
		}
		for i, d := range (&Devices{All: opened}).List() {
			if d != x.want[i] || opened[i].Memory.Size() != bytes(len(opened)+1) {
				t.Errorf("room %v: device %d has %d bytes, or another device", x.room, i, opened[i].Memory.Size())
			}
		}
		if err := errors.Join(stop(opened), closeDevices(opened), closeDevices(opened)); err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
		for i, left := range budgets {
			if left.Room() != x.room[i] {
				t.Errorf("room %v: peer %d has %d bytes left at the end", x.room, i, left.Room())
			}
		}
	}
	b.Fail(faults.Alloc, 0, 1, device.ErrTransient)
	opened, err := openPeers([]Peer{{a, nil}, {b, nil}}, bytes)
	of := (*PeerError)(nil)
	if !errors.As(err, &of) || of.Device != b || !errors.Is(err, gpubatch.ErrDevice) || opened != nil {
		t.Errorf("%v, want a PeerError of the second peer", err)
	}
	if opened, err := openPeers([]Peer{{a, nil}}, func(int) int64 { return 0 }); err != nil || len(opened) != 1 {
		t.Errorf("%d devices without bytes, %v", len(opened), err)
	} else if err := closeDevices(opened); err != nil {
		t.Error(err)
	}
}

// TestBarrier: work behind a barrier waits for the work of the others before it.
func TestBarrier(t *testing.T) {
	const n = 1 << 20
	a, b := openHost(t), openHost(t)
	all, err := openPeers([]Peer{{a, nil}, {b, nil}}, func(int) int64 { return n })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closeDevices(all); err != nil {
			t.Error(err)
		}
	}()
	peers := &Devices{All: all}
	for round := range 50 {
		one, two := all[0], all[1]
		err := errors.Join(one.Stream.Fill(one.Memory, 0, n, byte(round)), peers.Barrier(peers.Everyone),
			two.Stream.Copy(two.Memory, 0, one.Memory, 0, n), peers.Barrier(peers.Everyone),
			one.Stream.Fill(one.Memory, 0, n, 255), two.Stream.Sync(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		if err := two.Memory.Read(0, got); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != byte(round) {
				t.Fatalf("round %d: byte %d is %d", round, i, v)
			}
		}
	}
	a.Fail(faults.Wait, 0, 1, device.ErrTransient)
	of := (*PeerError)(nil)
	if err := all[0].Fail(all[0].Stream.Sync(t.Context())); !errors.As(err, &of) || of.Device != a {
		t.Errorf("%v, want a PeerError of the device", err)
	}
	if all[0].Fail(nil) != nil {
		t.Error("no error has become one")
	}
}

// TestLink: GPUs with a direct way between all have the fast link, host devices one of their own.
func TestLink(t *testing.T) {
	gpu := func(name string, direct ...string) *Device {
		p := device.Properties{Name: name, ComputeMajor: 9}
		for _, other := range []string{"cuda:0", "cuda:1", "cuda:2"} {
			is := false
			for _, d := range direct {
				is = is || d == other
			}
			p.Peers = append(p.Peers, device.Peer{Name: other, Direct: is})
		}
		return &Device{Device: described{p: p}}
	}
	for _, c := range []struct {
		opened []*Device
		want   Link
	}{
		{[]*Device{gpu("cuda:0", "cuda:1"), gpu("cuda:1")}, Direct},
		{[]*Device{gpu("cuda:0", "cuda:1"), gpu("cuda:1"), gpu("cuda:2")}, ByHost},
		{[]*Device{gpu("cuda:0", "cuda:1", "cuda:2"), gpu("cuda:1"), gpu("cuda:2")}, Direct},
		{[]*Device{{Device: described{}}, {Device: described{}}}, OnTheCPU},
	} {
		if got := (&Devices{All: c.opened}).Link(); got != c.want {
			t.Errorf("%d devices: %+v, want %+v", len(c.opened), got, c.want)
		}
	}
}

// described is a device that has properties only.
type described struct {
	device.Device
	p device.Properties
}

func (d described) Properties() device.Properties { return d.p }
