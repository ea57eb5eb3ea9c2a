package team

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/internal/base/leak"
)

func TestMain(m *testing.M) { leak.Check(m) }

// openHost opens a host device on which nothing may be left.
func openHost(t *testing.T) *faults.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("d.Close: %v, want no error", err)
		}
	})
	return faults.New(d)
}

// TestOpen: seats are those of the first members with room, and fewer with more bytes each if there are too
// few. An error of a member that is not about room leaves no seat, and names the member.
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
		var members []Member
		for i, d := range []device.Device{a, b, c} {
			budgets = append(budgets, pages.NewBudget(x.room[i], 0))
			members = append(members, Member{d, budgets[i]})
		}
		seats, err := Open(members, bytes)
		if err != nil || len(seats) != len(x.want) {
			t.Fatalf("room %v: %d seats, %v, want %d", x.room, len(seats), err, len(x.want))
		}
		for i, d := range Devices(seats) {
			if d != x.want[i] || seats[i].Memory.Size() != bytes(len(seats)+1) {
				t.Errorf("room %v: seat %d has %d bytes, or another device", x.room, i, seats[i].Memory.Size())
			}
		}
		if err := errors.Join(Stop(seats), Close(seats), Close(seats)); err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
		for i, left := range budgets {
			if left.Room() != x.room[i] {
				t.Errorf("room %v: member %d has %d bytes left at the end", x.room, i, left.Room())
			}
		}
	}
	b.Fail(faults.Alloc, 0, 1, device.ErrTransient)
	seats, err := Open([]Member{{a, nil}, {b, nil}}, bytes)
	of := (*Error)(nil)
	if !errors.As(err, &of) || of.Device != b || !errors.Is(err, fault.ErrDevice) || seats != nil {
		t.Errorf("%v, want an Error of the second member", err)
	}
	if seats, err := Open([]Member{{a, nil}}, func(int) int64 { return 0 }); err != nil || len(seats) != 1 {
		t.Errorf("%d seats without bytes, %v", len(seats), err)
	} else if err := Close(seats); err != nil {
		t.Error(err)
	}
}

// TestMeet: work behind a meeting waits for the work of the others before it.
func TestMeet(t *testing.T) {
	const n = 1 << 20
	a, b := openHost(t), openHost(t)
	members, err := Open([]Member{{a, nil}, {b, nil}}, func(int) int64 { return n })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Close(members); err != nil {
			t.Error(err)
		}
	}()
	everyone := func(int) []*Seat { return members }
	for round := range 50 {
		one, two := members[0], members[1]
		err := errors.Join(one.Stream.Fill(one.Memory, 0, n, byte(round)), Meet(members, everyone),
			two.Stream.Copy(two.Memory, 0, one.Memory, 0, n), Meet(members, everyone),
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
	of := (*Error)(nil)
	if err := members[0].Fail(members[0].Stream.Sync(t.Context())); !errors.As(err, &of) || of.Device != a {
		t.Errorf("%v, want an Error of the device", err)
	}
	if members[0].Fail(nil) != nil {
		t.Error("no error has become one")
	}
}

// TestLinkOf: GPUs with a direct way between all have the fast link, host devices one of their own.
func TestLinkOf(t *testing.T) {
	gpu := func(name string, direct ...string) *Seat {
		p := device.Properties{Name: name, ComputeMajor: 9}
		for _, other := range []string{"cuda:0", "cuda:1", "cuda:2"} {
			is := false
			for _, d := range direct {
				is = is || d == other
			}
			p.Peers = append(p.Peers, device.Peer{Name: other, Direct: is})
		}
		return &Seat{Device: described{p: p}}
	}
	for _, c := range []struct {
		seats []*Seat
		want  Link
	}{
		{[]*Seat{gpu("cuda:0", "cuda:1"), gpu("cuda:1")}, Direct},
		{[]*Seat{gpu("cuda:0", "cuda:1"), gpu("cuda:1"), gpu("cuda:2")}, ByHost},
		{[]*Seat{gpu("cuda:0", "cuda:1", "cuda:2"), gpu("cuda:1"), gpu("cuda:2")}, Direct},
		{[]*Seat{{Device: described{}}, {Device: described{}}}, OnTheCPU},
	} {
		if got := LinkOf(c.seats); got != c.want {
			t.Errorf("%d seats: %+v, want %+v", len(c.seats), got, c.want)
		}
	}
}

// described is a device that has properties only.
type described struct {
	device.Device
	p device.Properties
}

func (d described) Properties() device.Properties { return d.p }
